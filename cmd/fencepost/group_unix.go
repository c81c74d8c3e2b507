//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"syscall"
)

// group is a process group that outlives neither its end nor this process,
// however that dies.
//
// Its leader is a guard, not the command: a shell that waits for our end of a
// pipe to close, which the kernel does when we are killed, and then kills its
// own group. Linux's parent-death signal would reach the command alone and not
// its children. And as long as the guard is not waited for, the number of the
// group cannot become that of another, so signals to it cannot go astray.
type group struct{ guard *exec.Cmd }

const guardScript = `trap '' HUP INT TERM; read -r never; kill -KILL 0`

func newGroup() (*group, error) {
	guard := exec.Command("sh", "-c", guardScript)
	guard.Env = []string{}
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := guard.StdinPipe(); err != nil { // open until guard.Wait or our death
		return nil, fmt.Errorf("make a process group: %w", err)
	}
	if err := guard.Start(); err != nil {
		return nil, fmt.Errorf("make a process group: %w", err)
	}
	return &group{guard}, nil
}

// adopt makes cmd, when it is started, a member.
func (g *group) adopt(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.guard.Process.Pid}
}

// terminate asks all members to end.
func (g *group) terminate() error { return syscall.Kill(-g.guard.Process.Pid, syscall.SIGTERM) }

// end kills what is left.
func (g *group) end() {
	_ = syscall.Kill(-g.guard.Process.Pid, syscall.SIGKILL)
	_ = g.guard.Wait() // reports the kill
}
