package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// A database with jobs in every state, and nothing wrong.
func (w *ward) fill() {
	w.Helper()
	w.script(`
		INSERT INTO {{schema}}.jobs (kind, run_at) SELECT 'test', clock_timestamp() + interval '1 hour' FROM generate_series(1, 10);
		INSERT INTO {{schema}}.jobs (kind, status, worker_id, attempts, lease_until, fence)
		    SELECT 'test', 'running', 'w', 1, clock_timestamp() + interval '1 hour', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - n
		    FROM generate_series(1, 10) AS n;
		INSERT INTO {{schema}}.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload)
		    SELECT -n, 1, now(), now(), now() + interval '1 day', 1, 20, 0, 0, 'done', 'default', 'test', '{}' FROM generate_series(1, 10) AS n`)
	w.claim()
}

func TestAHealthyDatabaseIsOK(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.fill()
	want := len(checks) + 1
	for name, prepare := range map[string]func(*ward){
		"superuser": func(*ward) {},
		"monitor": func(w *ward) {
			w.role(`GRANT USAGE ON SCHEMA {{schema}} TO {{role}}; GRANT SELECT ON ALL TABLES IN SCHEMA {{schema}} TO {{role}}; GRANT pg_monitor TO {{role}}`)
		},
		"above read committed": func(w *ward) { // the transactions say their level themselves
			w.patient.Conn = w.patient.Conn.Copy()
			w.patient.Conn.RuntimeParams["default_transaction_deferrable"] = "on"
		},
		"simple protocol": func(w *ward) {
			w.patient.Conn = w.patient.Conn.Copy()
			w.patient.Conn.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.fresh(t)
			prepare(w)
			list, err := w.examine()
			if err != nil || len(list) != want {
				t.Errorf("%d findings, %v; want %d", len(list), err, want)
			}
			for _, f := range list {
				if f.Verdict != OK {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// A role that may see nothing is told what it lacks, and nothing fails for it.
func TestWithoutRightsItCannotTell(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.role("")
	list, err := w.examine()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if f.Verdict == Fail {
			t.Errorf("%+v", f)
		}
		if f.Check == "queues" {
			if f.Verdict != Skip {
				t.Errorf("%+v; want skip", f)
			}
			w.says(f, "cannot tell: missing right: permission denied for schema", "fencepost migrate grants")
		}
	}
}

// Whatever the doctor is kept from, it comes to an end.
func TestEachStatementIsBounded(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	tx, err := w.conn.Begin(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(w.ctx, filled("LOCK TABLE {{schema}}.jobs")); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	w.want("attempts", Skip, "cannot tell: the server has not answered within 5s")
	if took := time.Since(start); took < timeLimit {
		t.Errorf("ended after %v; the test does not see the limit", took)
	}
}

// The doctor changes nothing, and cannot by a slip.
func TestItCannotWrite(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	e := newExam(w.patient)
	defer e.close()
	_, err := ask[struct{ ID int64 }](w.ctx, e, "INSERT INTO {{schema}}.jobs (kind) VALUES ('test') RETURNING id")
	if err == nil || !strings.Contains(err.Error(), "25006") {
		t.Errorf("an INSERT: %v; want a refusal", err)
	}
}

// A pooler gives the session to others afterwards.
func TestItLeavesTheSessionAsItWas(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	e := newExam(w.patient)
	defer e.close()
	const state = `SELECT current_setting('statement_timeout') || ' ' || current_setting('jit') || ' '
		|| (SELECT count(*) FROM pg_prepared_statements) || ' ' || (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())`
	look := func() (is string) {
		conn, err := e.connection(w.ctx)
		if err == nil {
			err = conn.QueryRow(w.ctx, state).Scan(&is)
		}
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	before := look()
	for _, c := range checks {
		c.findings(w.ctx, e)
	}
	if after := look(); after != before {
		t.Errorf("the session has %q, and had %q", after, before)
	}
}

// A connection that breaks is replaced for the next check.
func TestAConnectionThatBreaks(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	e := newExam(w.patient)
	defer e.close()
	if _, err := reachable(w.ctx, e); err != nil {
		t.Fatal(err)
	}
	pid := e.conn.PgConn().PID()
	w.script("SELECT pg_terminate_backend(" + value[string](w, "SELECT $1::bigint::text", int64(pid)) + ")")
	w.until("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1::bigint)", int64(pid))
	if f := checks[0].findings(w.ctx, e); f[0].Verdict != Fail {
		t.Errorf("on the broken connection: %+v", f)
	}
	if f := checks[0].findings(w.ctx, e); f[0].Verdict != OK {
		t.Errorf("after it: %+v", f)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	w := &ward{T: t, ctx: t.Context()}
	w.patient = Patient{Conn: w.config("postgres://x:hunter2@127.0.0.1:1/none?sslmode=disable"), Schema: testSchema}
	list, err := w.examine()
	if !errors.Is(err, ErrUnreachable) || len(list) != 1 || list[0].Verdict != Fail || list[0].Check != "reachable" {
		t.Errorf("%+v, %v", list, err)
	}
	if strings.Contains(list[0].Message, "hunter2") {
		t.Error("the password is shown")
	}
}

// An end of the context ends the examination.
func TestItEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	ctx, cancel := context.WithCancel(w.ctx)
	n := 0
	err := Examine(ctx, w.patient, func(Finding) {
		if n++; n == 3 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || n != 3 {
		t.Errorf("%d findings, %v", n, err)
	}
}

// Behind PgBouncer in transaction mode everything works but the way to listen,
// which another way mends.
func TestBehindAPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	pooled := pgtest.Pooler(t, server, "transaction", 2)
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	w := on(t, server.URL("postgres"))
	w.patient.Conn = w.config(pooled("postgres"))
	notOK := func() []string {
		return slices.Concat(w.verdicts(Warn), w.verdicts(Fail), w.verdicts(Skip))
	}
	if got := notOK(); !slices.Equal(got, []string{"wake"}) {
		t.Errorf("not ok: %q; want the wake path alone", got)
	}
	// By luck the notification may have come to the session that listens.
	w.want("wake", Warn, "a pooler sits between", "--listen-url")
	w.patient.Listen = w.config(pgtest.Pooler(t, server, "session", 2)("postgres"))
	w.want("wake", Warn, "a notification arrived in", "but a pooler sits between")
	w.patient.Listen = w.config(w.dsn)
	if got := notOK(); len(got) > 0 {
		t.Errorf("with a direct way to listen, not ok: %q", got)
	}
	if f, err := reachable(w.ctx, newExam(w.patient)); err != nil || f.Figures["pooled"] != true {
		t.Errorf("%+v, %v; want to be told of the pooler", f, err)
	}
}

// On a standby everything can be asked, and nothing can be done.
func TestOnAStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	standby, err := server.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := on(t, standby.URL("postgres"))
	if got := w.verdicts(Fail); !slices.Equal(got, []string{"writable", "wake"}) {
		t.Errorf("failed: %q; want writable and wake", got)
	}
	w.want("writable", Fail, "standby", "primary")
	w.want("wake", Fail, "recovery", "connect to the primary")
}

// What a live client leaves in the tables is healthy to the doctor.
func TestWithARealClient(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	pool, err := pgxpool.New(w.ctx, w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	client, err := fencepost.New(pool, fencepost.Config{Schema: testSchema})
	if err != nil {
		t.Fatal(err)
	}
	started, release := make(chan struct{}), make(chan struct{})
	fencepost.HandleAny(client, func(ctx context.Context, _ *fencepost.Job[json.RawMessage]) error {
		close(started)
		<-release
		return nil
	})
	ctx, stop := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	defer func() {
		stop()
		close(release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	w.script("INSERT INTO {{schema}}.jobs (kind) VALUES ('test')")
	select {
	case <-started:
	case <-time.After(patience):
		t.Fatal("the job has not started")
	}
	w.want("workers", OK, "1 live")
	for _, v := range []Verdict{Warn, Fail, Skip} {
		if got := w.verdicts(v); len(got) > 0 {
			t.Errorf("%s: %q", v, got)
		}
	}
}

// The tables of another version are not read.
func TestTablesThatDoNotFit(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.script("INSERT INTO {{schema}}.schema_migrations (version, name, checksum, oldest_code) VALUES (99, 'future', '', 99)")
	for schema, words := range map[string][]string{
		testSchema: {"version 99", "install a newer one"},
		"other":    {"no Fencepost", "fencepost migrate up --schema other"},
	} {
		w.patient.Schema = schema
		list, err := w.examine()
		if !errors.Is(err, migrations.ErrSchema) {
			t.Errorf("%s: %v", schema, err)
		}
		seen := make(map[string]bool)
		for _, f := range list {
			seen[f.Check] = true
			if f.Check == "schema" {
				w.says(f, words...)
			}
		}
		if !seen["schema"] || !seen["wake"] || seen["queues"] {
			t.Errorf("%s: checked %v; want those that need no tables", schema, seen)
		}
	}
	// One that was migrated by other text under the same number.
	w = setUp(t)
	w.script("UPDATE {{schema}}.schema_migrations SET checksum = 'x' WHERE version = 1")
	w.want("schema", Warn, "1 queue")
}
