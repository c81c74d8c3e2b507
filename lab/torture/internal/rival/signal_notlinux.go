//go:build unix && !linux

package rival

import "syscall"

// attributes: an interrupt of the terminal is for the parent alone.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
