package stage_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// state is that of a process, by the kernel: T means stopped.
func state(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	return fields[0]
}

// A worker dies in every way that there is, and its lives follow each other;
// all of it is in the history, and it is its own role in the database.
func TestLives(t *testing.T) {
	w := open(t, stage.Options{})
	p := w.start(script.Assignment{Role: script.Worker, Name: "worker-1.1"})
	w.hello("worker-1.1")
	if n := w.count("SELECT count(*) FROM pg_stat_activity WHERE usename = 'worker-1'"); n != 1 {
		t.Errorf("%d sessions of its role", n)
	}
	if group, err := syscall.Getpgid(p.PID()); err != nil || group != p.PID() {
		t.Errorf("its process group is %d, %v; want its own, %d", group, err, p.PID())
	}

	first := p.PID()
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); state(t, first) != "T"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("frozen: its state is %q", state(t, first))
		}
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); state(t, first) == "T"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is frozen after Resume")
		}
	}

	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	kill, exit := w.of(history.Kill, "worker-1.1"), w.of(history.Exit, "worker-1.1")
	if exit.Error != "signal: killed" || exit.At < kill.At {
		t.Errorf("kill %+v, exit %+v", kill, exit)
	}
	w.hello("worker-1.2")
	if p.Name() != "worker-1.2" || p.PID() == first {
		t.Errorf("it is %s, process %d", p.Name(), p.PID())
	}

	rest := 700 * time.Millisecond
	if err := p.KillFor(rest); err != nil {
		t.Fatal(err)
	}
	exit = w.of(history.Exit, "worker-1.2")
	w.hello("worker-1.3")
	if hello := w.heard("hello", func(e history.Event) bool { return e.Proc == "worker-1.3" }); hello.At-exit.At < int64(rest) {
		t.Errorf("the next life began after %s, want %s at least", time.Duration(hello.At-exit.At), rest)
	}

	if err := p.Term(patience); err != nil {
		t.Fatal(err)
	}
	if exit := w.of(history.Exit, "worker-1.3"); exit.Error != "" {
		t.Errorf("told to end: %+v", exit)
	}
	w.heard("bye", func(e history.Event) bool { return e.Proc == "worker-1.3" && e.Op == history.Bye })
	if clean := w.of(history.Clean, "worker-1.3"); clean.Result != "" {
		t.Errorf("left behind: %+v", clean)
	}
	time.Sleep(500 * time.Millisecond) // more than between two lives
	if p.PID() != 0 {
		t.Error("it lives after Term")
	}
	if err := p.Kill(); err == nil {
		t.Error("killed without a life")
	}

	if err := p.Again(stage.Next{Env: []string{"X=y"}}); err != nil {
		t.Fatal(err)
	}
	w.hello("worker-1.4")
	said, err := os.ReadFile(filepath.Join(w.dir, "worker-1.4.log"))
	if err != nil || string(said) != "hello\n" {
		t.Errorf("it said %q, %v", said, err)
	}
}

func TestAProcessThatEndsByItselfIsStartedAgain(t *testing.T) {
	w := open(t, stage.Options{})
	begin := time.Now()
	w.start(script.Assignment{Role: script.Worker, Name: "worker-1.1", Break: "exit"})
	w.start(script.Assignment{Role: script.Producer, Name: "producer-1.1"})
	exit := w.of(history.Exit, "worker-1.1")
	if exit.Error != "exit status 3" {
		t.Errorf("exit: %+v", exit)
	}
	w.hello("worker-1.2")
	w.hello("producer-1.1")
	t.Logf("after %s", time.Since(begin))
	if n := len(w.Workers()); n != 1 {
		t.Errorf("%d workers", n)
	}
	if n := len(w.Processes("")); n != 2 {
		t.Errorf("%d processes", n)
	}
}

// What a process has left behind is found, and who does not end is named and
// killed.
func TestLeftBehind(t *testing.T) {
	w := open(t, stage.Options{})
	p := w.start(script.Assignment{Role: script.Worker, Name: "worker-1.1"})
	w.hello("worker-1.1")
	_, err := w.Admin().Exec(t.Context(), `INSERT INTO fencepost.jobs (kind, payload, status, worker_id, lease_until, fence, attempts)
		VALUES ('x', '{}', 'running', 'host:' || $1 || ':ABC', now() + '1 minute', 1, 1)`, itoa(p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	p.Net().Hold(0) // the server does not hear of its end
	if err := p.Term(patience); err != nil {
		t.Fatal(err)
	}
	clean := w.of(history.Clean, "worker-1.1")
	if !strings.Contains(clean.Result, "1 leases") || !strings.Contains(clean.Result, "1 connections") {
		t.Errorf("found: %+v", clean)
	}
	p.Net().Release()

	deaf := w.start(script.Assignment{Role: script.Worker, Name: "worker-2.1", Break: "deaf"})
	w.hello("worker-2.1")
	if err := deaf.Term(300 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("a process that does not end: %v", err)
	}
	if exit := w.of(history.Exit, "worker-2.1"); exit.Error != "signal: killed" {
		t.Errorf("exit: %+v", exit)
	}
}

// Who waits for the time of the next life finds that it was ended meanwhile:
// there is none, and the stage can be closed.
func TestNoLifeAfterTerm(t *testing.T) {
	w := open(t, stage.Options{})
	p := w.start(script.Assignment{Role: script.Worker, Name: "worker-1.1"})
	w.hello("worker-1.1")
	if err := p.Term(patience); err != nil {
		t.Fatal(err)
	}
	if err := p.Begin(); err != nil || p.PID() != 0 || p.Name() != "worker-1.1" {
		t.Errorf("%v; process %d lives as %s", err, p.PID(), p.Name())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Again(stage.Next{}); err == nil {
		t.Error("another life on a closed stage")
	}
}

// A fault of a network that outlives a process is one of the next life too.
func TestCutsGoOn(t *testing.T) {
	w := open(t, stage.Options{})
	p := w.start(script.Assignment{Role: script.Worker, Name: "worker-1.1"})
	p.Cut(history.Late)
	p.Cut(history.Silent)
	p.Mend(history.Late)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	w.of(history.Exit, "worker-1.1")
	if cut := w.of(history.Cut, "worker-1.2"); cut.Note != history.Silent {
		t.Errorf("the next life has %+v", cut)
	}
	for _, e := range w.events() {
		if e.Op == history.Mend {
			t.Errorf("mended while a fault goes on: %+v", e)
		}
	}
	p.Mend(history.Silent)
	w.of(history.Mend, "worker-1.2")
}

// Processes come to nothing with the stage, and Start after it fails.
func TestClosedStage(t *testing.T) {
	w := open(t, stage.Options{})
	p := w.start(script.Assignment{Role: script.Worker, Name: "worker-1.1"})
	pid := p.PID()
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if s := state(t, pid); s != "" {
		t.Errorf("process %d is there, in state %s", pid, s)
	}
	if _, err := w.Start(script.Assignment{Role: script.Worker, Name: "worker-2.1", DSN: "x"}); err == nil {
		t.Error("started on a closed stage")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Await(ctx); err == nil {
		t.Error("there is another life")
	}
}
