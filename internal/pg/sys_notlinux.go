//go:build unix && !linux

package pg

import "syscall"

// dieWithParent can do nothing here: a server whose owner was killed is ended
// by the sweep before the next start.
func dieWithParent(*syscall.SysProcAttr) {}
