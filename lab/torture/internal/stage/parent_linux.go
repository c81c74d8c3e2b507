package stage

import "syscall"

// dieWithParent lets the kernel kill the child when the thread that starts it
// ends, even by kill -9.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
