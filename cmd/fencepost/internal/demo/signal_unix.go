//go:build unix

package demo

import (
	"os"
	"syscall"
)

// attributes gives a worker a process group of its own: Ctrl-C is for us, and
// we end the workers.
func attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attr)
	return attr
}

// canFreeze says that freeze and thaw work here.
const canFreeze = true

func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
