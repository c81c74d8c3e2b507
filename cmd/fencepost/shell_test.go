//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A witness is a pipe that every process of a command holds open, as its
// standard output: its end says that none of them is left.
type witness struct {
	r, w  *os.File
	lines *bufio.Reader
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &witness{r, w, bufio.NewReader(r)}
}

// says waits for a line.
func (w *witness) says(t *testing.T, want string) {
	t.Helper()
	line, err := w.lines.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != want {
		t.Fatalf("the command says %q, want %q (%v)", line, want, err)
	}
}

// allGone waits until no process holds the pipe.
func (w *witness) allGone(t *testing.T) {
	t.Helper()
	w.w.Close()
	if rest, err := io.ReadAll(w.lines); err != nil {
		t.Errorf("processes of the command are left: %v (%q)", err, rest)
	}
}

func newShell(w *witness, line string) *shell {
	return &shell{line: line, env: os.Environ(), stdout: w.w, stderr: io.Discard, grace: patience}
}

func TestCommandLeavesNothingBehind(t *testing.T) {
	for name, line := range map[string]string{
		"child without our pipes": `sleep 1000 2>/dev/null </dev/null &`,
		"child with our errors":   `sleep 1000 &`,
		"child that minds TERM":   `(trap '' TERM HUP; sleep 1000; sleep 1000) &`,
		"grandchild":              `(sleep 1000 & sleep 1000) & exit 0`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWitness(t)
			s := newShell(w, line)
			s.grace = 10 * time.Millisecond
			if err := s.run(t.Context(), []byte("{}")); err != nil {
				t.Errorf("the command has worked, and the job gets %v", err)
			}
			w.allGone(t)
		})
	}
}

// A command that does not read its payload must not keep us writing it.
func TestCommandThatReadsNothing(t *testing.T) {
	w := newWitness(t)
	if err := newShell(w, "exit 0").run(t.Context(), make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
}

func TestStopTerminatesTheGroup(t *testing.T) {
	w := newWitness(t)
	// The shell dies of TERM at once; its child, which does not even hold our
	// pipes any more, has something to tidy up that takes a while. (It waits
	// in a busy loop: a shell that is about to fork may lose a TERM.)
	file := filepath.Join(t.TempDir(), "tidied")
	s := newShell(w, `(trap 'sleep 0.1; echo tidied > "$FILE"; exit' TERM; echo ready; exec >/dev/null 2>&1; while :; do :; done) & wait`)
	s.env = append(s.env, "FILE="+file)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, nil) }()
	w.says(t, "ready")
	stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("got %v, want the signal", err)
	}
	if got, err := os.ReadFile(file); string(got) != "tidied\n" {
		t.Errorf("the child was not given time: %q, %v", got, err)
	}
	w.allGone(t)
}

func TestStopKillsWhoMindsNoTERM(t *testing.T) {
	w := newWitness(t)
	s := newShell(w, `trap '' TERM; echo ready; while :; do sleep 1000; done`)
	s.grace = 10 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, nil) }()
	w.says(t, "ready")
	stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v, want the signal", err)
	}
	w.allGone(t)
}

// A worker that is killed takes along its commands with their children, which
// no parent-death signal would do.
func TestKilledWorkerLeavesNothingBehind(t *testing.T) {
	w := newWitness(t)
	dsn := database(t)
	if got := run(t, invocation{args: []string{"enqueue", "mail"}}, "DATABASE_URL="+dsn); got.code != exitOK {
		t.Fatal(got.stderr)
	}
	worker := command(t.Context(), dsn, "work", "--exec", `(trap '' TERM HUP; echo ready; sleep 1000; sleep 1000) & wait`)
	worker.Stdout = w.w
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	w.says(t, "ready")
	if err := worker.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = worker.Wait() // reports the kill
	w.allGone(t)
}

// The first TERM drains, the second does not wait for the command: the job is
// handed back.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	w := newWitness(t)
	dsn := database(t)
	if got := run(t, invocation{args: []string{"enqueue", "mail"}}, "DATABASE_URL="+dsn); got.code != exitOK {
		t.Fatal(got.stderr)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	worker := command(ctx, dsn, "work", "--exec", `echo ready; sleep 1000`)
	worker.Stdout = w.w
	log, err := worker.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	w.says(t, "ready")
	began := time.Now()
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), "stopping") {
	}
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	for lines.Scan() {
	}
	if err := worker.Wait(); err != nil {
		t.Error(err)
	}
	// Without the second signal it takes the 20 s of the soft stop.
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("took %v", took)
	}
	w.allGone(t)
	if err := eventually(dsn, "SELECT status = 'ready' AND attempts = 1 FROM fencepost.jobs"); err != nil {
		t.Error(err)
	}
}

func TestTail(t *testing.T) {
	tail := &tail{also: io.Discard}
	for range 3 {
		if _, err := io.WriteString(tail, strings.Repeat("a", maxTail-1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(tail, "the end"); err != nil {
		t.Fatal(err)
	}
	got := tail.String()
	if !strings.HasPrefix(got, "(cut)") || !strings.HasSuffix(got, "aathe end") || len(got) > maxTail+len("(cut) …") {
		t.Errorf("%d bytes: %.20s…", len(got), got)
	}
}

func TestWithoutSecrets(t *testing.T) {
	got := withoutSecrets([]string{"A=1", "DATABASE_URL=x", "PGPASSWORD=x", "PGSSLPASSWORD=x", "FENCEPOST_SCHEMA=x", "DATABASE_URLS=2", "PATH=a=b"})
	if want := []string{"A=1", "DATABASE_URLS=2", "PATH=a=b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
