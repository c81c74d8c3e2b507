//go:build !linux

package stage

import "syscall"

// dieWithParent can do nothing here.
func dieWithParent(*syscall.SysProcAttr) {}
