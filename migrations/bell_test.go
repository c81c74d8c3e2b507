package migrations_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// dueNow is how a bell for a job that is due begins: with the transaction that
// rings, which TestADueBellTellsItsTransaction looks at. The other tests read 0.
var dueNow = regexp.MustCompile(`^1:\d{1,14}:`)

// ear listens on a channel of its own connection.
type ear struct {
	*bench
	conn    *pgx.Conn
	channel string
}

func (b *bench) listen(channel string) ear {
	b.t.Helper()
	e := ear{b, b.connect(), channel}
	if _, err := e.conn.Exec(b.ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		b.t.Fatal(err)
	}
	return e
}

// wantBells compares what was rung since the last look. It rings a mark and
// waits for it: notifications come in the order of the commits.
func (e ear) wantBells(what string, want ...string) {
	e.t.Helper()
	if _, err := e.bench.conn.Exec(e.ctx, "SELECT pg_notify($1::text, 'mark')", e.channel); err != nil {
		e.t.Fatal(err)
	}
	var bells []string
	for {
		n, err := e.conn.WaitForNotification(e.ctx)
		if err != nil {
			e.t.Fatal(err)
		}
		if n.Payload == "mark" {
			break
		}
		bells = append(bells, dueNow.ReplaceAllString(n.Payload, "1:0:"))
	}
	slices.Sort(bells)
	slices.Sort(want)
	if !slices.Equal(bells, want) {
		e.t.Errorf("%s rang %.300q, want %.300q", what, bells, want)
	}
}

// B30: one bell per queue and statement, however many rows; none for none.
func TestBulkInsertRingsOncePerQueue(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	e := b.listen(schema)
	const rows = 100_000
	b.script(fmt.Sprintf("INSERT INTO fencepost.jobs (kind, queue, payload) SELECT 'test', 'q' || n %% 3, to_jsonb(n) FROM generate_series(1, %d) AS n", rows))
	e.wantBells("an INSERT of many rows", "1:0:q0", "1:0:q1", "1:0:q2")
	n, err := b.conn.CopyFrom(b.ctx, pgx.Identifier{schema, "jobs"}, []string{"kind", "queue"}, pgx.CopyFromSlice(rows, func(i int) ([]any, error) {
		return []any{"test", fmt.Sprint("q", i%2)}, nil
	}))
	if err != nil || n != rows {
		t.Fatal(n, err)
	}
	e.wantBells("a COPY of many rows", "1:0:q0", "1:0:q1")
	b.script("INSERT INTO fencepost.jobs (kind) SELECT 'test' WHERE false")
	e.wantBells("an INSERT of no row")
	b.script("BEGIN; INSERT INTO fencepost.jobs (kind) VALUES ('test'); INSERT INTO fencepost.jobs (kind) VALUES ('test'); COMMIT")
	e.wantBells("two INSERTs in one transaction", "1:0:default") // the server folds equal ones
	b.script("BEGIN; INSERT INTO fencepost.jobs (kind) VALUES ('test'); ROLLBACK")
	e.wantBells("an INSERT that was rolled back")
}

// A bell tells when the earliest of the new jobs is due.
func TestBellTellsWhenTheEarliestIsDue(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	e := b.listen(schema)
	at := time.Date(2150, 3, 4, 5, 6, 7, 123456000, time.UTC)
	b.script(`INSERT INTO fencepost.jobs (kind, queue, run_at) VALUES ('test', 'a:b', '2150-03-04 05:06:07.123456Z'),
		('test', 'a:b', '2200-01-01Z'), ('test', 'c', '2200-01-01Z'), ('test', 'c', '2001-01-01Z'), ('test', 'd', '9999-12-31 23:59:59Z')`)
	e.wantBells("an INSERT of scheduled jobs",
		fmt.Sprintf("1:%d:a:b", at.UnixMicro()), "1:0:c", fmt.Sprintf("1:%d:d", time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMicro()))
}

// A bell for a job that is due tells which transaction rings, also from within a
// savepoint: the one whose end makes the job visible.
func TestADueBellTellsItsTransaction(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	e := b.listen(schema)
	for _, ring := range []string{
		"INSERT INTO fencepost.jobs (kind, queue) VALUES ('test', 'q')",
		"SELECT fencepost.ring('q')",
		"SAVEPOINT s; INSERT INTO fencepost.jobs (kind, queue) VALUES ('test', 'q'); RELEASE s",
	} {
		b.script("CREATE TABLE IF NOT EXISTS rang (xid bigint); TRUNCATE rang")
		b.script("BEGIN; " + ring + "; INSERT INTO rang VALUES (pg_current_xact_id()::text::bigint); COMMIT")
		n, err := e.conn.WaitForNotification(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("1:%d:q", ask[int64](b, "SELECT xid FROM rang")); n.Payload != want {
			t.Errorf("%s rang %q, want %q", ring, n.Payload, want)
		}
	}
}

// B25, B26: the size of a job has nothing to do with the size of its bell.
func TestBigJobsRing(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	e := b.listen(schema)
	long := strings.Repeat("🙂", 32) // 128 bytes
	sizes := []int{7_900, 100_000}
	for size := 7_980; size <= 8_010; size++ {
		sizes = append(sizes, size)
	}
	for _, unit := range []string{"x", "é", "🙂"} {
		for _, size := range sizes {
			payload := strings.Repeat(unit, size/len(unit))
			if _, err := b.conn.Exec(b.ctx, "INSERT INTO fencepost.jobs (kind, queue, payload) VALUES ($1::text, $1::text, to_jsonb($2::text))", long, payload); err != nil {
				t.Fatalf("%d bytes of %s: %v", size, unit, err)
			}
			e.wantBells("the INSERT", "1:0:"+long)
		}
	}
}

// What makes no job, or is told not to, rings nobody.
func TestWhoDoesNotRing(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	b.script("INSERT INTO fencepost.jobs (id, kind) VALUES (-1, 'test')")
	e := b.listen(schema)
	for _, sql := range []string{
		"INSERT INTO fencepost.jobs (id, kind) VALUES (-1, 'test') ON CONFLICT (id) DO UPDATE SET priority = 1",
		"INSERT INTO fencepost.jobs (id, kind) VALUES (-1, 'test') ON CONFLICT DO NOTHING",
		"UPDATE fencepost.jobs SET run_at = clock_timestamp()",
		"BEGIN; SET LOCAL fencepost.bell = off; INSERT INTO fencepost.jobs (kind) VALUES ('test'); COMMIT",
		"DELETE FROM fencepost.jobs WHERE id <> -1",
		"TRUNCATE fencepost.finished",
	} {
		b.script(sql)
		e.wantBells(sql)
	}
	for _, sql := range []string{
		"INSERT INTO fencepost.jobs (kind) VALUES ('test')", // the setting ended with its transaction
		"SET fencepost.bell = on; INSERT INTO fencepost.jobs (kind) VALUES ('test'); RESET fencepost.bell",
		"SET session_replication_role = replica; INSERT INTO fencepost.jobs (kind) VALUES ('test'); RESET session_replication_role",
		"INSERT INTO fencepost.jobs (id, kind) VALUES (-1, 'test'), (-2, 'test') ON CONFLICT (id) DO UPDATE SET priority = 1",
	} {
		b.script(sql)
		e.wantBells(sql, "1:0:default")
	}
}

// ring() by hand takes anything, and fails for nothing.
func TestRingByHand(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	e := b.listen(schema)
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMicro()
	for _, test := range []struct{ arguments, want string }{
		{"'a'", "1:0:a"},
		{"'a', NULL", "1:0:a"},
		{"'a', '-infinity'", "1:0:a"},
		{"'a', '2001-01-01'", "1:0:a"},
		{"'a', 'infinity'", fmt.Sprintf("1:%d:a", last)},
		{"'a', '294276-12-31'", fmt.Sprintf("1:%d:a", last)},
		{"'a', '2200-01-01 00:00:00.000001Z'", fmt.Sprintf("1:%d:a", time.Date(2200, 1, 1, 0, 0, 0, 1000, time.UTC).UnixMicro())},
		{"due => '2001-01-01', queue => ':'", "1:0::"},
		{"NULL", ""},
		{"''", ""},
		{"repeat('x', 128)", "1:0:" + strings.Repeat("x", 128)},
		{"repeat('x', 129)", ""},
		{"repeat('x', 100000)", ""},
	} {
		b.script("SELECT fencepost.ring(" + test.arguments + ")")
		if test.want == "" {
			e.wantBells("ring(" + test.arguments + ")")
		} else {
			e.wantBells("ring("+test.arguments+")", test.want)
		}
	}
}

// While the server's notification queue is more than half full nobody rings,
// because a full one would fail the commit: an INSERT never fails because of
// its bell. The function that says how full it is gets a value of ours.
func TestNobodyRingsIntoAFullQueue(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	e := b.listen(schema)
	for usage, want := range map[string][]string{"0.5": {"1:0:default"}, "0.51": nil, "1": nil} {
		b.script("CREATE OR REPLACE FUNCTION pg_catalog.pg_notification_queue_usage() RETURNS double precision LANGUAGE sql AS 'SELECT " + usage + "::float8'")
		b.script("INSERT INTO fencepost.jobs (kind) VALUES ('test')")
		e.wantBells("an INSERT at "+usage, want...)
	}
	expect(b, int64(3), "SELECT count(*) FROM fencepost.jobs")
}

// A transaction that notifies cannot be prepared. With the bell off it can.
func TestTwoPhaseCommit(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{Settings: map[string]string{"max_prepared_transactions": "5"}})
	b := setUp(t)
	b = &bench{t, b.ctx, server.URL("postgres"), pgtest.Conn(t, server.URL("postgres"))}
	if _, err := migrations.Up(b.ctx, b.conn, schema); err != nil {
		t.Fatal(err)
	}
	const prepared = "BEGIN; %s INSERT INTO fencepost.jobs (kind) VALUES ('test'); PREPARE TRANSACTION 'x'"
	if err := runScript(b.ctx, b.conn, fmt.Sprintf(prepared, "")); code(err) != "0A000" {
		t.Errorf("with its bell: %v; the test does not see what the setting is for", err)
	}
	b.script("ROLLBACK")
	b.script(fmt.Sprintf(prepared, "SET LOCAL fencepost.bell = off;"))
	b.script("COMMIT PREPARED 'x'")
	expect(b, int64(1), "SELECT count(*) FROM fencepost.jobs WHERE status = 'ready'")
}
