package main

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

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
	var ids []string
	for id := range 1200 {
		ids = append(ids, strconv.Itoa(id+1))
	}
	for name, which := range map[string][]string{"filter": {"--queue", "many"}, "ids": ids} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := database(t)
			script(t, dsn, deadJobs)
			script(t, dsn, `
				CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN IF NEW.id = 600 THEN PERFORM pg_advisory_xact_lock(1); END IF; RETURN NEW; END $$;
				CREATE TRIGGER hold BEFORE INSERT ON fencepost.jobs FOR EACH ROW EXECUTE FUNCTION hold()`)
			holder := script(t, dsn, "SELECT pg_advisory_lock(1)")
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var stdout, stderr bytes.Buffer
			code := make(chan int, 1)
			go func() {
				code <- Run(ctx, append([]string{"retry"}, which...), []string{"DATABASE_URL=" + dsn}, nil, &stdout, &stderr)
			}()
			if err := eventually(dsn, `SELECT count(*) = 1 FROM pg_locks
				WHERE locktype = 'advisory' AND objid = 1 AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); err != nil {
				t.Error(err)
			}
			interrupt()
			time.Sleep(100 * time.Millisecond) // for whoever would break off the statement
			if err := holder.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if got := <-code; got != exitFailed || !strings.Contains(stderr.String(), "retry: stopped after 1000 of 1200 jobs") {
				t.Errorf("exit code %d, %q", got, stderr.String())
			}
			if !strings.Contains(stdout.String(), "retried") {
				t.Errorf("standard output is %q", stdout.String())
			}
			rows, err := query(t.Context(), dsn, "SELECT count(*), max(id) FROM fencepost.jobs")
			if err != nil || rows[0] != "1000 1000" {
				t.Errorf("retried are %v, %v; want the first two batches", rows, err)
			}
		})
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

// A job that the database does not let go keeps no other from being changed,
// and the command says why.
func TestRefusedJobs(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	script(t, dsn, `INSERT INTO fencepost.jobs (id, kind) VALUES (1, 'kept'), (2, 'kept'), (3, 'kept');
		CREATE TABLE mine (job bigint REFERENCES fencepost.jobs); INSERT INTO mine VALUES (2)`)
	c := invocation{args: []string{"cancel", "--kind", "kept"}}
	got := run(t, c, "DATABASE_URL="+dsn)
	mustFail(t, c, got, exitFailed, "1 of 3 jobs were not cancelled: 1 refused by the database (cancel job 2: ERROR: update or delete on table \"jobs\" violates")
	if !strings.Contains(got.stdout, "refused by the database  -              1") {
		t.Errorf("standard output is %q", got.stdout)
	}
	c.args = []string{"delete", "2"}
	got = run(t, c, "DATABASE_URL="+dsn)
	mustFail(t, c, got, exitFailed, "1 of 1 jobs were not deleted: 1 refused by the database")
	if !strings.Contains(got.stdout, "2   refused by the database  ready") {
		t.Errorf("standard output is %q", got.stdout)
	}
}
