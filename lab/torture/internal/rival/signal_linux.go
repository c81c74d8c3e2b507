package rival

import "syscall"

// attributes have the kernel kill a child, also a frozen one, when the thread
// that has started it ends, even by kill -9. An interrupt of the terminal is for
// the parent alone.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
