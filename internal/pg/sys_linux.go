package pg

import "syscall"

// dieWithParent lets the kernel end the child, by an immediate shutdown, when
// the thread that starts it ends, even by kill -9.
func dieWithParent(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = syscall.SIGQUIT
}
