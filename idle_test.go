package fencepost_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
)

// statement is one as a client sends it.
type statement struct {
	sql  string
	args []any
}

// statements is a tracer that tells of every statement of a client.
type statements chan statement

func (s statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s <- statement{d.SQL, d.Args}
	return ctx
}

func (statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s statements) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	s <- statement{d.SQL, d.Args}
}

func (statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// An idle worker sends one statement in each poll interval and holds two
// connections.
func TestIdleCostsOneStatementAPoll(t *testing.T) {
	t.Parallel()
	dsn, watcher := database(t)
	sent := make(statements, 10_000)
	pool := traced(t, dsn, sent)
	config, states := hearing(fencepost.Config{PollInterval: time.Second})
	client, producer := newClient(t, pool, config), newClient(t, watcher, fencepost.Config{})
	ran := echo(client)
	work(t, client)
	await(t, states, true)

	// After a job no look of the start is pending.
	id := enqueue(t, producer, fencepost.NewJob{Kind: "echo"})[0]
	receive(t, ran, "the job")
	ended(t, producer, id)
	eventually(t, "two connections are left", func() bool { return sessions(t, watcher) == 2 })
	for len(sent) > 0 {
		<-sent
	}
	start := time.Now()
	for range 4 {
		if sql := receive(t, sent, "a statement").sql; !strings.Contains(sql, "pg_notify") {
			t.Errorf("an idle worker sends %s", sql)
		}
	}
	// Three intervals and a part of one, each 10 % shorter at most.
	if took := time.Since(start); took < 2700*time.Millisecond {
		t.Errorf("4 statements in %v", took)
	}
	if n := sessions(t, watcher); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}
