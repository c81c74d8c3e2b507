package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// crew is the workers of one story: processes that are told what to do on
// their standard input and report on their standard output, in lines of JSON.
// A worker ends cleanly when its input ends, so none outlives this process
// unless it is frozen; on Linux the kernel ends those too.
type crew struct {
	command []string // of a worker
	job     assignment

	mu      sync.Mutex
	members []*worker
	refused int           // late outcomes, by all workers
	failed  error         // the first worker that ended by itself
	changed chan struct{} // closed, and made anew, at every change
}

// worker is one process of the crew. All but name, os, input and done is
// guarded by the crew's mutex.
type worker struct {
	name  string
	os    *os.Process
	input io.WriteCloser
	done  chan struct{} // closed when the process has ended and was waited for

	working    bool    // ready to take jobs
	dismissed  bool    // its end is expected
	started    []int64 // of probes, in nanoseconds since 1970
	statements int64   // newest answer; -1 while it is awaited
}

func newCrew(p Plan, s *stage, naive bool) *crew {
	return &crew{
		command: p.Command,
		job: assignment{
			DatabaseURL: s.url, Schema: s.schema, Naive: naive,
			Lease: p.Lease, Poll: p.Poll, Effort: p.Effort,
		},
		changed: make(chan struct{}),
	}
}

// hire starts one more worker and waits until it takes jobs.
func (c *crew) hire(ctx context.Context) (*worker, error) {
	c.mu.Lock()
	job := c.job
	w := &worker{name: fmt.Sprint(len(c.members) + 1), done: make(chan struct{})}
	c.mu.Unlock()
	job.Name = w.name
	if err := c.start(w, job); err != nil {
		return nil, fmt.Errorf("start worker %s: %w", w.name, err)
	}
	return w, c.await(ctx, "worker "+w.name+" to begin", func() bool { return w.working })
}

// hireMany hires n workers, one after the other.
func (c *crew) hireMany(ctx context.Context, n int) (hired []*worker, err error) {
	for len(hired) < n {
		w, err := c.hire(ctx)
		if err != nil {
			return nil, err
		}
		hired = append(hired, w)
	}
	return hired, nil
}

func (c *crew) start(w *worker, job assignment) error {
	text, err := json.Marshal(job)
	if err != nil {
		return err
	}
	cmd := exec.Command(c.command[0], c.command[1:]...)
	cmd.SysProcAttr = attributes()
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if w.input, err = cmd.StdinPipe(); err != nil {
		return err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	started := make(chan error)
	go func() {
		// Where the kernel tells a child of its parent's death, it means the
		// thread that forked: keep that thread until the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.listen(w, output) // to its end, which comes with the process's
		c.buried(w, cmd.Wait(), complaints.String())
	}()
	if err := <-started; err != nil {
		return err
	}
	w.os = cmd.Process
	c.mu.Lock()
	c.members = append(c.members, w)
	c.mu.Unlock()
	_, err = w.input.Write(append(text, '\n'))
	return err
}

// listen takes what the worker reports.
func (c *crew) listen(w *worker, output io.Reader) {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		var said report
		if err := json.Unmarshal(lines.Bytes(), &said); err != nil {
			said = report{} // the last line of a killed process may be cut
		}
		c.change(func() {
			switch said.Event {
			case eventWorking:
				w.working = true
			case eventRefused:
				c.refused++
			case eventStarted:
				w.started = append(w.started, said.Value)
			case eventStatements:
				w.statements = said.Value
			}
		})
	}
}

func (c *crew) buried(w *worker, err error, complaints string) {
	c.change(func() {
		if !w.dismissed && c.failed == nil {
			c.failed = fmt.Errorf("worker %s ended by itself (%v): %s", w.name, err, strings.TrimSpace(complaints))
		}
	})
	close(w.done)
}

// change applies a change and tells whoever awaits one.
func (c *crew) change(apply func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	apply()
	close(c.changed)
	c.changed = make(chan struct{})
}

// await returns when the condition, which is looked at under the mutex, holds.
func (c *crew) await(ctx context.Context, what string, holds func() bool) error {
	for {
		c.mu.Lock()
		ok, failed, changed := holds(), c.failed, c.changed
		c.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// statements asks a worker how many statements it has sent to the database.
func (c *crew) statements(ctx context.Context, w *worker) (n int64, err error) {
	c.change(func() { w.statements = -1 })
	if _, err := io.WriteString(w.input, "statements\n"); err != nil {
		return 0, fmt.Errorf("ask worker %s: %w", w.name, err)
	}
	err = c.await(ctx, "worker "+w.name+" to answer", func() bool { n = w.statements; return n >= 0 })
	return n, err
}

// kill ends a worker as a crash would, and waits for its end. It works on one
// that is frozen.
func (c *crew) kill(w *worker) error {
	c.change(func() { w.dismissed = true })
	err := w.os.Kill()
	<-w.done
	return err
}

// dismissTimeout bounds the clean end of all workers.
const dismissTimeout = 10 * time.Second

// dismiss lets all workers end cleanly, and waits for them.
func (c *crew) dismiss(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, dismissTimeout, errors.New("a worker does not end"))
	defer cancel()
	members := c.all()
	for _, w := range members {
		c.change(func() { w.dismissed = true })
		_ = w.input.Close() // it may have ended
	}
	for _, w := range members {
		select {
		case <-w.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// disband ends at once whoever is left, frozen or not, and waits for them.
func (c *crew) disband() {
	for _, w := range c.all() {
		_ = c.kill(w) // no error but that it has ended
	}
}

// late returns how many late outcomes of workers were refused so far.
func (c *crew) late() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

func (c *crew) all() []*worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*worker(nil), c.members...)
}
