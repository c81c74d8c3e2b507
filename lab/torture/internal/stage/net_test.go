package stage_test

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage/filter"
)

func itoa(n int) string { return strconv.Itoa(n) }

// client is a connection on the network of a process, in this one.
func (w *world) client(dsn string) *pgx.Conn {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

// A reset inside a message: the client has some of an answer, and no more.
func TestToxics(t *testing.T) {
	w := open(t, stage.Options{})
	p := w.start(script.Assignment{Role: script.Worker, Name: "worker-1.1"})
	dsn := p.Assignment().DSN
	pure := func() {
		t.Helper()
		if err := p.Net().Pure(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	big := "SELECT repeat('x', 100000)"

	conn := w.client(dsn)
	if err := p.Net().Toxic("limit_data", filter.Down, map[string]int{"bytes": 5000}); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Exec(t.Context(), big, pgx.QueryExecModeSimpleProtocol)
	if !errors.Is(err, io.ErrUnexpectedEOF) && (err == nil || !strings.Contains(err.Error(), "reset by peer")) {
		t.Errorf("cut after 5000 bytes: %v", err)
	}
	pure()

	conn = w.client(dsn)
	if _, err := conn.Exec(t.Context(), big); err != nil {
		t.Errorf("when it is pure again: %v", err)
	}
	if err := p.Net().Toxic("latency", filter.Down, map[string]int{"latency": 300}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := conn.Exec(t.Context(), "SELECT 1", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took < 250*time.Millisecond {
		t.Errorf("an answer took %s", took)
	}
	pure()
	if err := p.Net().Toxic("reset_peer", filter.Down, map[string]int{"timeout": 0}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("an answer came through a reset")
	}
	pure()
	w.client(dsn)
}

// The standby takes over without the last commits; what was lost is known;
// clients that know both places go on with the DSN that they have. A second
// failover goes the other way.
func TestFailover(t *testing.T) {
	w := open(t, stage.Options{Standby: true})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p := w.start(script.Assignment{Role: script.Worker, Name: "worker-1.1"})
	dsn := p.Assignment().DSN
	add := func(token string) {
		t.Helper()
		if _, err := w.client(dsn).Exec(ctx, "INSERT INTO fencepost.jobs (kind, payload) VALUES ('x', jsonb_build_object('token', $1::text))", token); err != nil {
			t.Fatal(err)
		}
	}
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, suffix := range []string{"", " again"} {
		add("kept" + suffix)
		step(w.Raise(ctx))
		step(w.Follow(ctx))
		step(w.CutOff(ctx))
		add("lost" + suffix)
		step(w.Leave())
		old, err := w.Promote(ctx)
		step(err)
		add("after" + suffix)
		step(w.Retire(ctx, old))
		if n := w.count("SELECT count(*) FROM fencepost.jobs WHERE payload->>'token' LIKE '%' || $1", suffix); n < 2 {
			t.Errorf("%d jobs", n)
		}
		if n := w.count("SELECT count(*) FROM fencepost.jobs WHERE payload->>'token' LIKE 'lost%'"); n != 0 {
			t.Errorf("%d jobs that should be lost are there", n)
		}
		lost, err := w.Lost(ctx)
		step(err)
		if len(lost) != i+1 || lost[i].Token != "lost"+suffix || lost[i].Op != "INSERT" {
			t.Errorf("lost: %+v", lost)
		}
	}
	for _, server := range []string{"server a", "server b"} {
		w.of(history.Ready, server)
	}
}

// A worker goes through the pooler, and its network is the way there too.
func TestPooled(t *testing.T) {
	w := open(t, stage.Options{Pooler: true})
	p := w.start(script.Assignment{Role: script.Worker, Name: "worker-1.1"})
	w.hello("worker-1.1")
	if err := p.Term(patience); err != nil {
		t.Fatal(err)
	}
	dsn, err := w.Pooled(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Again(stage.Next{DSN: dsn}); err != nil {
		t.Fatal(err)
	}
	w.hello("worker-1.2")
	conn := w.client(dsn)
	var pid uint32
	if err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if pid == conn.PgConn().PID() {
		t.Error("there is no pooler in between")
	}
	if n := p.Net().Links(); n != 2 {
		t.Errorf("%d connections on its network, want 2", n)
	}
	p.Net().Hold(filter.Down)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, "SELECT 1", pgx.QueryExecModeExec); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("held: %v", err)
	}
	p.Net().Release()
}
