package migrations_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// Statements about the promise for queue q, whose slot is 7.
const (
	seat       = "INSERT INTO fencepost.queues (name, quiet_slot) VALUES ('q', 7), ('r', 8)"
	promise    = "SELECT fencepost.promise(7, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 2000000)"
	revoke     = "SELECT fencepost.promise(7, 0)"
	aJob       = "INSERT INTO fencepost.jobs (kind, queue) VALUES ('test', 'q')"
	lockOfSlot = "('fencepost.queues'::regclass::oid::integer, 7)"
)

// While it is promised that somebody looks into a queue, an INSERT into it rings
// no bell; and it does as soon as anything that the promise needs is missing.
func TestABellIsSilentOnlyWhilePromised(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	b.script(seat)
	other := b.connect()
	e := b.listen(schema)
	later := func(what string) string {
		return "SELECT fencepost.promise(7, (extract(epoch FROM clock_timestamp() + interval '" + what + "') * 1000000)::bigint)"
	}
	for _, test := range []struct {
		name   string
		before string // after the promise was made
		insert string // instead of a job for q
		want   []string
	}{
		{name: "promised"},
		{name: "in a transaction", insert: "BEGIN; " + aJob + "; " + aJob + "; COMMIT"},
		{name: "to be looked at later", insert: "INSERT INTO fencepost.jobs (kind, queue, run_at) VALUES ('test', 'q', '2150-01-01')"},
		{name: "10,000 rows", insert: "INSERT INTO fencepost.jobs (kind, queue, run_at) SELECT 'test', 'q', clock_timestamp() + interval '1 minute' FROM generate_series(1, 10000)"},
		{name: "as a replica", insert: "SET session_replication_role = replica; " + aJob + "; RESET session_replication_role"},
		{name: "with an old snapshot", before: revoke, insert: "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM fencepost.jobs; " + promise + "; " + aJob + "; COMMIT"},
		{name: "dated back by little", insert: "INSERT INTO fencepost.jobs (kind, queue, run_at) VALUES ('test', 'q', clock_timestamp() - interval '50 ms')"},
		{name: "just", before: later("2900 ms")},

		{name: "revoked", before: revoke, want: []string{"1:0:q"}},
		{name: "revoked behind an old snapshot", insert: "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM fencepost.queues; " + revoke + "; " + aJob + "; COMMIT", want: []string{"1:0:q"}},
		{name: "over", before: later("-1 ms"), want: []string{"1:0:q"}},
		{name: "of another clock", before: later("3500 ms"), want: []string{"1:0:q"}},
		{name: "no slot", before: "UPDATE fencepost.queues SET quiet_slot = NULL WHERE name = 'q'", want: []string{"1:0:q"}},
		{name: "no row", before: "DELETE FROM fencepost.queues WHERE name = 'q'", want: []string{"1:0:q"}},
		{name: "for another slot", before: "UPDATE fencepost.queues SET quiet_slot = 9 WHERE name = 'q'", want: []string{"1:0:q"}},
		{name: "always", before: "UPDATE fencepost.queues SET bell = 'always' WHERE name = 'q'", want: []string{"1:0:q"}},
		{name: "for another queue", insert: "INSERT INTO fencepost.jobs (kind, queue) VALUES ('test', 'r')", want: []string{"1:0:r"}},
		{name: "two queues", insert: "INSERT INTO fencepost.jobs (kind, queue) VALUES ('test', 'q'), ('test', 'r')", want: []string{"1:0:q", "1:0:r"}},
		{name: "two queues the other way", insert: "INSERT INTO fencepost.jobs (kind, queue) VALUES ('test', 'r'), ('test', 'q')", want: []string{"1:0:q", "1:0:r"}},
		{name: "one of many is of another queue", insert: "INSERT INTO fencepost.jobs (kind, queue) SELECT 'test', CASE n WHEN 900 THEN 'r' ELSE 'q' END FROM generate_series(1, 1000) AS n", want: []string{"1:0:q", "1:0:r"}},
		{name: "dated back", insert: "INSERT INTO fencepost.jobs (kind, queue, run_at) VALUES ('test', 'q', clock_timestamp() - interval '300 ms')", want: []string{"1:0:q"}},
		{name: "one of many is dated back", insert: "INSERT INTO fencepost.jobs (kind, queue, run_at) SELECT 'test', 'q', clock_timestamp() - CASE n WHEN 900 THEN interval '1 s' ELSE interval '-1 s' END FROM generate_series(1, 1000) AS n", want: []string{"1:0:q"}},

		{name: "never", before: revoke + "; UPDATE fencepost.queues SET bell = 'never' WHERE name = 'q'"},
		{name: "never, with another queue", before: "UPDATE fencepost.queues SET bell = 'never' WHERE name = 'q'", insert: "INSERT INTO fencepost.jobs (kind, queue) VALUES ('test', 'q'), ('test', 'r')", want: []string{"1:0:r"}},
		{name: "off", before: revoke, insert: "BEGIN; SET LOCAL fencepost.bell = off; " + aJob + "; COMMIT"},
		{name: "no rows", before: revoke, insert: "INSERT INTO fencepost.jobs (kind, queue) SELECT 'test', 'q' WHERE false"},
	} {
		b.script("DELETE FROM fencepost.queues; " + seat + "; " + promise)
		if test.before != "" {
			b.script(test.before)
		}
		if test.insert == "" {
			test.insert = aJob
		}
		b.script(test.insert)
		e.wantBells(test.name, test.want...)
	}

	// Since the server's start nothing was promised for this slot.
	b.script("DELETE FROM fencepost.queues; INSERT INTO fencepost.queues (name, quiet_slot) VALUES ('q', 63)")
	b.script(aJob)
	e.wantBells("an INSERT before any promise", "1:0:q")

	// Somebody ends the promise: he has the lock, or waits for those who were
	// silent. Not even one who has read the promise may be silent now.
	b.script("DELETE FROM fencepost.queues; " + seat)
	for name, lock := range map[string]string{"exclusive": "pg_advisory_lock", "shared": "pg_advisory_lock_shared"} {
		if _, err := other.Exec(b.ctx, "SELECT "+lock+lockOfSlot); err != nil {
			t.Fatal(err)
		}
		b.script(promise + "; " + aJob)
		e.wantBells("an INSERT under a lock that is "+name, map[string][]string{"exclusive": {"1:0:q"}}[name]...)
		if _, err := other.Exec(b.ctx, "SELECT pg_advisory_unlock_all()"); err != nil {
			t.Fatal(err)
		}
	}
}

// COPY is an INSERT like any other.
func TestCopyIsSilentWhilePromised(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	b.script(seat)
	e := b.listen(schema)
	for name, want := range map[string][]string{promise: nil, revoke: {"1:0:q"}} {
		b.script(name)
		n, err := b.conn.CopyFrom(b.ctx, pgx.Identifier{schema, "jobs"}, []string{"kind", "queue"}, pgx.CopyFromSlice(100, func(int) ([]any, error) {
			return []any{"test", "q"}, nil
		}))
		if err != nil || n != 100 {
			t.Fatal(n, err)
		}
		e.wantBells(name, want...)
	}
}

// Whoever is silent holds the lock of the slot until it commits, and nobody
// else does.
func TestWhoIsSilentHoldsTheLock(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	b.script(seat)
	free := func(want bool, when string) {
		t.Helper()
		if got := ask[bool](b, "SELECT pg_try_advisory_xact_lock"+lockOfSlot); got != want {
			t.Errorf("%s the lock is free: %v", when, got)
		}
	}
	writer := b.connect()
	run := func(sql string) {
		t.Helper()
		if err := runScript(b.ctx, writer, sql); err != nil {
			t.Fatal(err)
		}
	}
	run("BEGIN; " + aJob)
	free(true, "after an INSERT that rings")
	run("ROLLBACK")
	for _, end := range []string{"COMMIT", "ROLLBACK", "ROLLBACK TO s; COMMIT"} {
		b.script(promise)
		run("BEGIN; SAVEPOINT s; " + aJob)
		free(false, "after a silent INSERT")
		b.script(revoke)
		free(false, "after the promise was revoked")
		run(end)
		free(true, "after "+end)
	}
}

// A silent transaction can be prepared, and holds the lock until that is
// committed. One that rings cannot be prepared, so two-phase commit needs the
// bell off all the same.
func TestASilentTransactionCanBePrepared(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{Settings: map[string]string{"max_prepared_transactions": "5"}})
	b := setUp(t)
	b = &bench{t, b.ctx, server.URL("postgres"), pgtest.Conn(t, server.URL("postgres"))}
	if _, err := migrations.Up(b.ctx, b.conn, schema); err != nil {
		t.Fatal(err)
	}
	b.script(seat + "; " + promise)
	b.script("BEGIN; " + aJob + "; PREPARE TRANSACTION 'x'")
	b.script(revoke)
	expect(b, false, "SELECT pg_try_advisory_xact_lock"+lockOfSlot)
	b.script("COMMIT PREPARED 'x'")
	expect(b, true, "SELECT pg_try_advisory_xact_lock"+lockOfSlot)
	expect(b, int64(1), "SELECT count(*) FROM fencepost.jobs")
	if err := runScript(b.ctx, b.conn, fmt.Sprintf("BEGIN; %s; PREPARE TRANSACTION 'x'", aJob)); code(err) != "0A000" {
		t.Errorf("a transaction that rings: %v", err)
	}
}

// hush() is what others hear of a promise.
func TestHush(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	e := b.listen(schema)
	b.script("SELECT fencepost.hush('a:b', 1700000000123456)")
	e.wantBells("hush()", "quiet:1700000000123456:a:b")
	for _, arguments := range []string{"'', 1", "NULL, 1", "'a', NULL", "'a', 0", "repeat('x', 129), 1"} {
		b.script("SELECT fencepost.hush(" + arguments + ")")
	}
	e.wantBells("hush() of nothing")
}
