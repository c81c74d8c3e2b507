package pg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var (
	errPortTaken = errors.New("the port is taken")
	errStillBusy = errors.New("processes of the run before are still there")
)

// process is one run of the server's main process.
type process struct {
	pid  int
	os   *os.Process
	done chan struct{} // closed when it has ended and was waited for
}

// launch starts cmd and a goroutine that waits for its end.
func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Where the kernel tells a child of its parent's death, it means
		// the thread that forked: keep that thread until the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how a server ended is told by its log
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.pid, p.os = cmd.Process.Pid, cmd.Process
	return p, nil
}

// stop sends the signal and waits for the end of the process.
func (p *process) stop(sig syscall.Signal, patience time.Duration) error {
	if err := p.os.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-p.done:
		return nil
	case <-timeout.C:
		return fmt.Errorf("process %d did not end within %s of %s", p.pid, patience, sig)
	}
}

// run starts the main process and waits until it accepts connections.
func (s *Server) run(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		select {
		case <-s.proc.done:
		case <-ctx.Done():
			return fmt.Errorf("process %d of the run before has not ended: %w", s.proc.pid, context.Cause(ctx))
		}
	}
	log, err := os.OpenFile(filepath.Join(s.home.path, "log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}

	data := filepath.Join(s.home.path, "data")
	cmd := exec.Command(filepath.Join(s.inst.bin, "postgres"), "-D", data)
	cmd.Dir = data
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes(s.owner)
	p, err := launch(cmd)
	if err != nil {
		return err
	}
	s.proc = p

	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ready(data, p.pid) {
		select {
		case <-tick.C:
		case <-p.done:
			return startError(log, begin)
		case <-ctx.Done():
			err := p.stop(syscall.SIGQUIT, stopPatience)
			return errors.Join(context.Cause(ctx), err)
		}
	}
	return nil
}

// ready looks at the status line of the file in which the main process tells
// pg_ctl how far it is. The file may be left over from a killed run.
func ready(data string, pid int) bool {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	lines := strings.Split(string(b), "\n")
	return err == nil && len(lines) > 7 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

// startError makes an error of what the server has logged since begin.
func startError(log *os.File, begin int64) error {
	said, err := io.ReadAll(io.NewSectionReader(log, begin, 1<<20))
	if err != nil {
		return err
	}
	cause := errors.New("the server ended at once")
	switch {
	case bytes.Contains(said, []byte("could not create any TCP/IP sockets")):
		cause = errPortTaken
	case bytes.Contains(said, []byte("pre-existing shared memory block")):
		cause = errStillBusy
	}
	return fmt.Errorf("%w; its log says:\n%s", cause, bytes.TrimSpace(said))
}

// environment is all that the server and initdb see: with the caller's own,
// the locale, the time zone and PG variables would leak into the server.
func environment() []string {
	return []string{"LC_ALL=C", "TZ=UTC", "PATH=" + os.Getenv("PATH")}
}
