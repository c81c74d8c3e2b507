package rival

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
)

// program is the worker process: lab/torture/rival.
const program = "github.com/fencepost-go/fencepost/lab/torture/rival"

// build compiles the worker process into dir and returns its path. It needs to
// be run inside the module.
func build(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "worker")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, program).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return path, nil
}

// crew is the worker processes of a trial. It is used by one goroutine.
type crew struct {
	path    string
	job     assignment
	lives   int
	members []*member // those that have not been killed
}

// member is one process.
type member struct {
	name string
	os   *os.Process
	done chan struct{} // closed when it has ended and was waited for
}

// hire starts one more process.
func (c *crew) hire() error {
	c.lives++
	job := c.job
	job.Name = fmt.Sprintf("worker-%d", c.lives)
	m, err := spawn(c.path, job)
	if err != nil {
		return fmt.Errorf("start %s: %w", job.Name, err)
	}
	c.members = append(c.members, m)
	return nil
}

// spawn starts a process, and a goroutine that waits for its end.
func spawn(path string, job assignment) (*member, error) {
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path)
	cmd.SysProcAttr = attributes()
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(job.Dir, job.Name+".log"))
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	m := &member{name: job.Name, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Where the kernel tells a child of its parent's death, it means the
		// thread that forked: keep that thread until the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is told by its log
			close(m.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	m.os = cmd.Process
	if _, err := input.Write(text); err != nil {
		return nil, errors.Join(err, m.kill())
	}
	return m, nil
}

func (m *member) kill() error {
	err := m.os.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-m.done
	return err
}

func (m *member) pause() error  { return m.os.Signal(syscall.SIGSTOP) }
func (m *member) resume() error { return m.os.Signal(syscall.SIGCONT) }

// dismiss takes a member from the crew, since it was killed.
func (c *crew) dismiss(m *member) {
	c.members = slices.DeleteFunc(c.members, func(o *member) bool { return o == m })
}

// names of those that should be there.
func (c *crew) names() (names []string) {
	for _, m := range c.members {
		names = append(names, m.name)
	}
	return names
}

// gone names those that have ended by themselves.
func (c *crew) gone() (names []string) {
	for _, m := range c.members {
		select {
		case <-m.done:
			names = append(names, m.name)
		default:
		}
	}
	return names
}

// close ends all, and waits for them. A clean stop would only take time: the
// record is closed by then.
func (c *crew) close() error {
	var errs []error
	for _, m := range c.members {
		errs = append(errs, m.kill())
	}
	c.members = nil
	return errors.Join(errs...)
}
