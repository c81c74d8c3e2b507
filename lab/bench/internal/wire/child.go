package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Child is a process that speaks the protocol. Its methods may be called from
// several goroutines; requests to one child follow each other, so what is to
// happen at once (producing while a worker works) is asked of two children.
type Child struct {
	Described Described // what it said of itself when it was opened

	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	mu   sync.Mutex
	done bool
}

// Start starts a child. Its standard error goes to log.
func Start(name string, cmd *exec.Cmd, log io.Writer) (*Child, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = log
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &Child{name: name, cmd: cmd, in: in, out: bufio.NewReaderSize(out, 1<<20)}, nil
}

// PID is the child's process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// answer is what a child sends back.
type answer struct {
	Error  string          `json:"error"`
	Result json.RawMessage `json:"result"`
}

// Call sends a request and waits for its answer, which is read into result
// unless that is nil. A context that ends kills the child: it cannot be told
// anything more.
func (c *Child) Call(ctx context.Context, do string, with, result any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return fmt.Errorf("%s: %s: the process has ended", c.name, do)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })
	defer stop()
	a, err := c.roundTrip(Message{do, with})
	switch {
	case err != nil:
		c.done = true
		return fmt.Errorf("%s: %s: %w", c.name, do, errors.Join(err, ctx.Err()))
	case a.Error != "":
		return fmt.Errorf("%s: %s: %s", c.name, do, a.Error)
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fmt.Errorf("%s: %s: %w", c.name, do, err)
	}
	return nil
}

func (c *Child) roundTrip(m Message) (a answer, err error) {
	line, err := json.Marshal(m)
	if err != nil {
		return a, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return a, err
	}
	if line, err = c.out.ReadBytes('\n'); err != nil {
		return a, fmt.Errorf("no answer: %w", err)
	}
	return a, json.Unmarshal(line, &a)
}

// Signal sends the child's process a signal, without a word to it.
func (c *Child) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// Close asks the child to end, and ends it if it does not.
func (c *Child) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	asked := c.Call(ctx, DoClose, nil, nil)
	_ = c.in.Close() // it may have gone already
	late := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	if asked != nil {
		_ = c.cmd.Process.Kill() // it does not listen
	}
	c.mu.Lock()
	c.done = true
	c.mu.Unlock()
	return errors.Join(asked, c.cmd.Wait())
}
