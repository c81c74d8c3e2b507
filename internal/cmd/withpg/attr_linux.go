package main

import "syscall"

// attributes lets the kernel end the command when withpg is killed: without
// its server it could only fail.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
