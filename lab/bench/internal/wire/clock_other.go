//go:build !linux

package wire

import "time"

// Now stands in for the shared clock where the bench does not run.
func Now() int64 { return time.Now().UnixNano() }
