package stage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// childVariable makes this program one of the processes of a stage.
const childVariable = "TORTURE_STAGE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Setenv(childVariable, "yes")
	goleak.VerifyTestMain(m,
		// Toxiproxy does not wait for its own, and leaves some of a connection
		// that was ended by a toxic.
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).write"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}

// child is a process that has a connection and does nothing, until it is told
// to end; or, by the guard it is to break, one that ends in its first life, or
// that does not want to end.
func child() error {
	var a script.Assignment
	if err := json.NewDecoder(os.Stdin).Decode(&a); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	h, err := history.Create(a.Dir, a.Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, a.DSN)
	if err != nil {
		return err
	}
	h.Write(history.Event{Op: history.Hello, Note: time.Now().Format(time.RFC3339) + " " + a.DSN})
	fmt.Println("hello")
	if a.Break == "exit" && a.Name[len(a.Name)-2:] == ".1" {
		os.Exit(3)
	}
	for range stop {
		if a.Break != "deaf" {
			break
		}
	}
	h.Write(history.Event{Op: history.Bye})
	return conn.Close(ctx)
}

const patience = 60 * time.Second

// world is a stage with its history.
type world struct {
	*stage.Stage
	t   *testing.T
	dir string
}

type testLog struct {
	t  *testing.T
	mu sync.Mutex
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t != nil {
		l.t.Logf("%s", p[:len(p)-1])
	}
	return len(p), nil
}

func open(t *testing.T, o stage.Options) *world {
	t.Helper()
	o.Dir = t.TempDir()
	h, err := history.Create(o.Dir, "harness")
	if err != nil {
		t.Fatal(err)
	}
	log := &testLog{t: t}
	o.History, o.Crew, o.Log = h, os.Args[0], log
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := stage.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		log.mu.Lock()
		defer log.mu.Unlock()
		log.t = nil
	})
	return &world{s, t, o.Dir}
}

func (w *world) start(a script.Assignment) *stage.Process {
	w.t.Helper()
	p, err := w.Start(a)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// heard waits until the histories have an event.
func (w *world) heard(what string, is func(history.Event) bool) history.Event {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		events := w.events()
		if i := slices.IndexFunc(events, is); i >= 0 {
			return events[i]
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("no event: %s; there are %+v", what, events)
		}
	}
}

func (w *world) events() []history.Event {
	w.t.Helper()
	events, err := history.Read(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	return events
}

func (w *world) hello(name string) {
	w.t.Helper()
	w.heard(name+" says hello", func(e history.Event) bool { return e.Proc == name && e.Op == history.Hello })
}

func (w *world) of(op history.Op, target string) history.Event {
	w.t.Helper()
	return w.heard(string(op)+" of "+target, func(e history.Event) bool {
		return e.Proc == "harness" && e.Op == op && e.Target == target
	})
}

func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	if err := w.Admin().QueryRow(w.t.Context(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}
