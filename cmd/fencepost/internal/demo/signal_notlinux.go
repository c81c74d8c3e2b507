//go:build unix && !linux

package demo

import "syscall"

// dieWithParent can do nothing here: workers end with their input, but one
// that is frozen when we are killed stays.
func dieWithParent(*syscall.SysProcAttr) {}
