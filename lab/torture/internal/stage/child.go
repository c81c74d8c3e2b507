package stage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// child is one life of a process.
type child struct {
	name string
	pid  int
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was waited for
	err  error         // of Wait; to be read when done is closed
}

// spawn starts a program in a process group of its own, with the assignment on
// its standard input. What it prints goes to a file of its name.
func spawn(program string, env []string, a script.Assignment) (*child, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	said, err := os.OpenFile(filepath.Join(a.Dir, a.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer said.Close()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = a.Dir
	cmd.Stdin = bytes.NewReader(append(text, '\n'))
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	c := &child{name: a.Name, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Where the kernel tells a child of its parent's death, it means the
		// thread that forked: keep that thread until the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	c.pid = cmd.Process.Pid
	return c, nil
}

// signal is no error if the process has ended already.
func (c *child) signal(sig syscall.Signal) error {
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s: %w", sig, err)
	}
	return nil
}

// how it has ended; "": by itself, with code 0.
func (c *child) how() string {
	if c.err == nil {
		return ""
	}
	return c.err.Error()
}
