package demo

import "syscall"

// dieWithParent lets the kernel kill a worker, also a frozen one, when the
// thread that has started it ends, even by kill -9.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
