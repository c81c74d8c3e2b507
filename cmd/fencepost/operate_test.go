package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// script runs SQL and returns the connection, with its transaction if it has
// begun one.
func script(t *testing.T, dsn, sql string) *pgx.Conn {
	t.Helper()
	conn := pgtest.Conn(t, dsn)
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
	return conn
}

// 1200 dead jobs, three batches.
const deadJobs = `
INSERT INTO fencepost.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload)
SELECT n, 7, now(), now(), 'infinity', 3, 3, 0, 0, 'dead', 'many', 'mail', '{}' FROM generate_series(1, 1200) AS n;`

// An interrupt lets the batch in hand end, begins no other, and says how far it
// got.
func TestInterruptStopsBetweenBatches(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	script(t, dsn, deadJobs)
	// Holds up the second batch for as long as the client is patient.
	holder := script(t, dsn, "BEGIN; SELECT FROM fencepost.finished WHERE id = 600 FOR UPDATE")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var stdout, stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, []string{"retry", "--queue", "many"}, []string{"DATABASE_URL=" + dsn}, nil, &stdout, &stderr)
	}()
	if err := eventually(dsn, "SELECT count(*) = 999 FROM fencepost.jobs"); err != nil {
		t.Error(err)
	}
	interrupt()
	if err := holder.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := <-code; got != exitFailed || !strings.Contains(stderr.String(), "retry: stopped after 1000 of 1200 jobs") {
		t.Errorf("exit code %d, %q", got, stderr.String())
	}
	if !strings.Contains(stdout.String(), "retried") {
		t.Errorf("standard output is %q", stdout.String())
	}
	rows, err := query(t.Context(), dsn, "SELECT count(*) FILTER (WHERE id <= 500), count(*) FILTER (WHERE id > 1000) FROM fencepost.jobs")
	if err != nil || rows[0] != "500 0" {
		t.Errorf("retried are %v, %v; want all of the first batch and none of the third", rows, err)
	}
}

// A job whose row somebody holds stays as it was, and the command says so.
func TestBusyJobs(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	script(t, dsn, "INSERT INTO fencepost.jobs (id, kind) VALUES (1, 'held'), (2, 'held')")
	script(t, dsn, "BEGIN; SELECT FROM fencepost.jobs WHERE id = 1 FOR UPDATE")
	c := invocation{args: []string{"cancel", "--kind", "held"}}
	got := run(t, c, "DATABASE_URL="+dsn)
	mustFail(t, c, got, exitFailed, "1 of 2 jobs were not cancelled: 1 busy")
	if !strings.Contains(got.stdout, "busy: held by a transaction  -              1") {
		t.Errorf("standard output is %q", got.stdout)
	}
	c.args = []string{"delete", "1", "3"}
	got = run(t, c, "DATABASE_URL="+dsn)
	mustFail(t, c, got, exitFailed, "2 of 2 jobs were not deleted: 1 busy, 1 missing")
	if !strings.Contains(got.stdout, "1   busy: held by a transaction  ready") {
		t.Errorf("standard output is %q", got.stdout)
	}
	if rows, err := query(t.Context(), dsn, "SELECT id, status FROM fencepost.all_jobs ORDER BY id"); err != nil || strings.Join(rows, ", ") != "1 ready, 2 cancelled" {
		t.Errorf("the jobs are %v, %v", rows, err)
	}
}
