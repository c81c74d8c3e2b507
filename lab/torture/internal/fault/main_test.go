package fault

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// childVariable makes this program one of the processes of a stage.
const childVariable = "TORTURE_FAULT_TEST_CHILD"

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

// child asks the database something again and again, as best it can, until it
// is told to end.
func child() error {
	var a script.Assignment
	if err := json.NewDecoder(os.Stdin).Decode(&a); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	h, err := history.Create(a.Dir, a.Name)
	if err != nil {
		return err
	}
	defer h.Close()
	config, err := pgxpool.ParseConfig(a.DSN)
	if err != nil {
		return err
	}
	config.MaxConns = 2
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "LISTEN fencepost")
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	for n := int64(1000); ctx.Err() == nil; n++ {
		if a.Break == "promise" { // for one queue, and then for two for a moment
			for _, e := range []history.Event{{DB: 1, Ref: history.Ref{Queue: "a"}}, {DB: 1, Ref: history.Ref{Queue: "b"}}, {Ref: history.Ref{Queue: "b"}}} {
				e.Op = history.Promise
				h.Write(e)
			}
		}
		if a.Break == "claim" {
			// A claim, of which every second one begins at once and ends.
			c := history.Event{Ref: history.Ref{Job: n, Fence: n}}
			if n%2 == 0 {
				c.Op = history.Start
				h.Write(c)
				c.Op = history.End
				h.Write(c)
			}
		}
		ask, cancel := context.WithTimeout(ctx, 2*time.Second)
		sql := "SELECT pg_notify('fencepost', 'x')"
		if a.Role == script.Producer {
			sql = "INSERT INTO fencepost.jobs (kind) VALUES ('fake')"
		}
		_, err := pool.Exec(ask, sql)
		cancel()
		if err == nil {
			h.Write(history.Event{Op: history.Seen})
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

const patience = 90 * time.Second

// world is a stage with its history.
type world struct {
	*stage.Stage
	t        *testing.T
	dir      string
	withheld int // notifications, so far
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

// open sets a stage, with so many workers and a producer.
func open(t *testing.T, o stage.Options, workers int) *world {
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
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		log.mu.Lock()
		defer log.mu.Unlock()
		log.t = nil
	})
	w := &world{Stage: s, t: t, dir: o.Dir}
	for i := range workers {
		w.start(script.Assignment{Role: script.Worker, Name: fmt.Sprintf("worker-%d.1", i+1), Lease: 2 * time.Second})
	}
	if workers > 0 {
		w.start(script.Assignment{Role: script.Producer, Name: "producer-1.1"})
	}
	return w
}

func (w *world) start(a script.Assignment) *stage.Process {
	w.t.Helper()
	p, err := w.Start(a)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) events() []history.Event {
	w.t.Helper()
	events, err := history.Read(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	return events
}

// well waits until every process has asked the database something since a
// moment, and the harness can write.
func (w *world) well(since int64) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ill := ""
		seen := make(map[string]bool)
		for _, e := range w.events() {
			if e.Op == history.Seen && e.At > since {
				seen[e.Proc] = true
			}
		}
		for _, p := range w.Processes("") {
			if !seen[p.Name()] {
				ill = p.Name()
			}
		}
		_, err := w.Admin().Exec(w.t.Context(), "INSERT INTO fencepost.jobs (kind) VALUES ('control')")
		if ill == "" && err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s is not well, or %v", ill, err)
		}
	}
}
