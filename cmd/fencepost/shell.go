package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/payload"
)

const (
	// killAfter is how long a process group has between TERM and KILL, and at
	// most what a command has left behind, between its end and KILL. It must
	// be shorter than the client's hard stop (5 s), so that a stop waits for
	// the KILL.
	killAfter = 3 * time.Second
	// maxTail is how much of a failed command's standard error is kept.
	maxTail = 4 << 10

	exitSnooze = 75 // EX_TEMPFAIL of sysexits.h
	exitDead   = 65 // EX_DATAERR
)

// shell runs a command line for each job.
type shell struct {
	line   string
	env    []string // of every job
	stdout io.Writer
	stderr io.Writer
	snooze time.Duration
	grace  time.Duration
}

// handle is the handler of every kind.
func (s *shell) handle(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
	return s.run(ctx, job.Payload,
		"FENCEPOST_JOB_ID="+strconv.FormatInt(job.ID, 10),
		"FENCEPOST_KIND="+job.Kind,
		"FENCEPOST_QUEUE="+job.Queue,
		"FENCEPOST_ATTEMPT="+strconv.Itoa(job.Attempt),
		"FENCEPOST_FENCE="+strconv.FormatInt(job.Fence, 10),
		"FENCEPOST_KEY="+job.Key(),
	)
}

// run runs the command once. When it returns, no process of the command's
// group is left.
func (s *shell) run(ctx context.Context, stdin []byte, env ...string) error {
	group, err := newGroup()
	if err != nil {
		return err
	}
	defer group.end()
	// Every process of the group inherits the one end of this pipe: the other
	// is at its end when all of them are.
	all, member, err := os.Pipe()
	if err != nil {
		return err
	}
	defer all.Close()
	stderr := &tail{also: s.stderr}
	cmd := exec.CommandContext(ctx, "sh", "-c", s.line)
	cmd.Env = append(slices.Clip(s.env), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), s.stdout, stderr
	cmd.ExtraFiles = []*os.File{member}
	group.adopt(cmd)
	stopped := false
	cmd.Cancel = func() error {
		stopped = true
		return errors.Join(all.SetReadDeadline(time.Now().Add(s.grace)), group.terminate())
	}
	// How long to wait, once ctx or the command has ended, for whoever still
	// holds its input or errors open.
	cmd.WaitDelay = s.grace
	err = cmd.Start()
	member.Close()
	if err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	err = cmd.Wait()
	if cmd.ProcessState == nil {
		return fmt.Errorf("wait for the command: %w", err)
	}
	if stopped { // the command may be gone already, its children not
		_, _ = io.Copy(io.Discard, all)
	}
	return s.verdict(cmd.ProcessState, stderr.String())
}

// verdict reads from a command's end what becomes of its job.
func (s *shell) verdict(state *os.ProcessState, stderr string) error {
	if state.Success() {
		return nil
	}
	if state.ExitCode() == exitSnooze {
		return fencepost.Snooze(s.snooze)
	}
	reason := fmt.Errorf("command: %v", state) // names the signal, if it was one
	if text := strings.TrimSpace(payload.CleanText(stderr, 2*maxTail)); text != "" {
		reason = fmt.Errorf("%w: %s", reason, text)
	}
	if state.ExitCode() == exitDead {
		return fencepost.Dead(reason)
	}
	return reason
}

// withoutSecrets is the environment without what is not for commands: how to
// reach our database, and our own settings.
func withoutSecrets(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == "DATABASE_URL" || name == "PGPASSWORD" || name == "PGSSLPASSWORD" || strings.HasPrefix(name, "FENCEPOST_")
	})
}

// tail passes on what is written to it and keeps the end of it.
type tail struct {
	also io.Writer
	kept []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	// That our own standard error is broken is no fault of the command's.
	_, _ = t.also.Write(p)
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - maxTail; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
		t.cut = true
	}
	return len(p), nil
}

func (t *tail) String() string {
	if t.cut {
		return "(cut) …" + string(t.kept)
	}
	return string(t.kept)
}
