//go:build unix

package fencepost_test

import "syscall"

// Signals of tests with real processes.
const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// killSession ends a server process as nothing else does.
func killSession(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }
