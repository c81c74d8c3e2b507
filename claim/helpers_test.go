package claim_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

const (
	schema  = "fencepost"
	awkward = `My "Queue"`           // a schema whose name must be quoted wherever it goes
	role    = "fencepost_test_claim" // has the rights that are granted to workers
	queue   = "default"
	lease   = 30 * time.Second
	over    = -time.Second // a lease that ends before it begins
	firstID = 1 << 32
)

// bench is a database with Fencepost in it, and one connection to it.
type bench struct {
	*claim.Table
	t      testing.TB
	ctx    context.Context // bounds the whole test
	dsn    string
	schema string
	conn   *pgx.Conn
}

func setUp(t testing.TB) *bench { return setUpIn(t, schema) }

func setUpIn(t testing.TB, schema string) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	var ddl strings.Builder // a template is only good for the DDL it was made with
	if err := migrations.Print(&ddl, schema, 0, migrations.Latest); err != nil {
		t.Fatal(err)
	}
	grants, err := migrations.Grants(schema, migrations.Roles{Workers: []string{role}})
	if err != nil {
		t.Fatal(err)
	}
	dsn := pgtest.New(t, "claim "+ddl.String()+grants, func(ctx context.Context, dsn string) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		if _, err := migrations.Up(ctx, conn, schema); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, named("ALTER TABLE {{schema}}.jobs ALTER COLUMN id RESTART WITH 4294967296", schema)); err != nil {
			return err
		}
		if err := pgtest.Roles(ctx, dsn, role); err != nil {
			return err
		}
		_, err = conn.PgConn().Exec(ctx, grants).ReadAll()
		return err
	})
	return &bench{claim.In(schema), t, ctx, dsn, schema, pgtest.Conn(t, dsn)}
}

// with returns the bench with other statements, such as a mutant's.
func (b *bench) with(table *claim.Table) *bench {
	other := *b
	other.Table = table
	return &other
}

// fresh returns the bench for the next case of a test, without jobs and workers. Cases
// share a database because making one takes longer than most of them.
func (b *bench) fresh(t testing.TB) *bench {
	t.Helper()
	other := *b
	other.t = t
	for _, table := range []string{"jobs", "finished", "queues", "workers", "claims"} { // by hand: a worker may not TRUNCATE
		other.exec("DELETE FROM {{schema}}." + table)
	}
	return &other
}

// connect opens one more connection, with the rights of a worker and no others.
func (b *bench) connect() *pgx.Conn { return pgtest.Conn(b.t, pgtest.As(b.t, b.dsn, role)) }

// named puts the schema's name into a statement of a test.
func named(sql, schema string) string {
	return strings.ReplaceAll(sql, "{{schema}}", pgx.Identifier{schema}.Sanitize())
}

// exec runs a statement of the test on the bench's connection.
func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.conn.Exec(b.ctx, named(sql, b.schema), args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// ask returns the one value that a statement of the test selects.
func ask[T any](b *bench, sql string, args ...any) (value T) {
	b.t.Helper()
	if err := b.conn.QueryRow(b.ctx, named(sql, b.schema), args...).Scan(&value); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// expect compares the one value that a statement selects.
func expect[T comparable](b *bench, want T, sql string, args ...any) {
	b.t.Helper()
	if got := ask[T](b, sql, args...); got != want {
		b.t.Errorf("%s: got %v, want %v", sql, got, want)
	}
}

// insert adds n jobs that are due.
func (b *bench) insert(n int) {
	b.t.Helper()
	b.exec("INSERT INTO {{schema}}.jobs (kind) SELECT 'test' FROM generate_series(1, $1::int)", n)
}

// insertOne adds a job with the given columns and returns its id.
func (b *bench) insertOne(columns, values string) int64 {
	b.t.Helper()
	return ask[int64](b, "INSERT INTO {{schema}}.jobs (kind, "+columns+") VALUES ('test', "+values+") RETURNING id")
}

// take claims up to n jobs of the default queue.
func (b *bench) take(n int, lease time.Duration) []claim.Row {
	b.t.Helper()
	claimed, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: n}, lease, "worker")
	if err != nil {
		b.t.Fatal(err)
	}
	return claimed.Rows
}

// takeOne claims one job, which must be there.
func (b *bench) takeOne(lease time.Duration) claim.Row {
	b.t.Helper()
	rows := b.take(1, lease)
	if len(rows) != 1 {
		b.t.Fatalf("claimed %d jobs, want 1", len(rows))
	}
	return rows[0]
}

// finish sends one outcome and wants the given result.
func (b *bench) finish(want claim.Result, o claim.Outcome) {
	b.t.Helper()
	results, err := b.Finish(b.ctx, b.conn, []claim.Outcome{o})
	if err != nil {
		b.t.Fatal(err)
	}
	if results[0] != want {
		b.t.Errorf("%s of job %d under fence %d: %v, want %v", o.Verb, o.ID, o.Fence, results[0], want)
	}
}

// tick reaps and looks at the default queue.
func (b *bench) tick() claim.Ticked {
	b.t.Helper()
	ticked, err := b.Tick(b.ctx, b.conn, claim.TickRequest{
		Queues: []string{queue}, Reap: true, Worker: "watcher", Own: "own", Token: "token",
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return ticked
}

// takeOver lets the lease of a claim end and gives the job to another worker.
func (b *bench) takeOver(old claim.Row) claim.Row {
	b.t.Helper()
	b.expire("id = $1::bigint", old.ID)
	b.tick()
	b.makeDue()
	claimed, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: old.Queue, Limit: 1}, lease, "successor")
	if err != nil {
		b.t.Fatal(err)
	}
	if len(claimed.Rows) != 1 || claimed.Rows[0].ID != old.ID {
		b.t.Fatalf("takeover of job %d: claimed %v", old.ID, claimed.Rows)
	}
	return claimed.Rows[0]
}

// expire lets the leases of running jobs end, as if an hour had passed since: a
// claim is to be looked into when the first of its leases is over.
func (b *bench) expire(which string, args ...any) {
	b.t.Helper()
	b.exec("UPDATE {{schema}}.jobs SET lease_until = clock_timestamp() - interval '1 hour' WHERE status = 'running' AND "+which, args...)
	b.exec(`UPDATE {{schema}}.claims AS c SET look_at = least(c.look_at,
		(SELECT min(j.lease_until) FROM {{schema}}.jobs AS j WHERE j.id = ANY (c.ids) AND j.status = 'running'))`)
}

// wait makes every claim due that a tick has put off, as if the second had passed.
func (b *bench) wait() {
	b.t.Helper()
	b.exec("UPDATE {{schema}}.claims SET look_at = clock_timestamp() WHERE look_at <= clock_timestamp() + interval '1 second'")
}

// adopt finds all jobs that were set to running by hand, and returns how many
// parts of the table that took.
func (b *bench) adopt() (parts int) {
	b.t.Helper()
	for page := int64(0); parts == 0 || page > 0; parts++ {
		var err error
		if _, page, err = b.Adopt(b.ctx, b.conn, page); err != nil {
			b.t.Fatal(err)
		}
	}
	return parts
}

// makeDue ends the pause of every ready job.
func (b *bench) makeDue() {
	b.t.Helper()
	b.exec("UPDATE {{schema}}.jobs SET run_at = clock_timestamp() WHERE status = 'ready' AND run_at > clock_timestamp()")
}

// dump returns everything that is stored about jobs, to be compared.
func (b *bench) dump() string {
	b.t.Helper()
	return ask[string](b, `SELECT coalesce(jsonb_pretty(jsonb_agg(d.doc ORDER BY d.doc::text)), '') FROM (
		SELECT to_jsonb(j) AS doc FROM {{schema}}.jobs AS j
		UNION ALL SELECT to_jsonb(f) FROM {{schema}}.finished AS f) AS d`)
}

// open begins a transaction on a connection of its own.
func (b *bench) open() pgx.Tx {
	b.t.Helper()
	tx, err := b.connect().Begin(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return tx
}

// commit ends a transaction.
func (b *bench) commit(tx pgx.Tx) {
	b.t.Helper()
	if err := tx.Commit(b.ctx); err != nil {
		b.t.Fatal(err)
	}
}

// rollback ends a transaction the other way.
func (b *bench) rollback(tx pgx.Tx) {
	b.t.Helper()
	if err := tx.Rollback(b.ctx); err != nil {
		b.t.Fatal(err)
	}
}

// answerOrWait runs call, which uses conn, in a goroutine and returns when it
// has returned, or when it waits for a row. The result of the call comes on the
// channel. There is no event for "a session waits", hence the polling.
//
// Who waits for a row waits for the transaction that holds it ("transactionid"),
// or for whoever is first in line for it ("tuple"). On a busy server any session
// waits now and then for another kind of lock, which nobody holds for long: to
// extend a table that grows, or to send a notification.
func answerOrWait[T any](b *bench, conn *pgx.Conn, call func() (T, error)) <-chan answer[T] {
	b.t.Helper()
	const isWaiting = `SELECT EXISTS (SELECT FROM pg_stat_activity
		WHERE pid = $1::int AND wait_event_type = 'Lock' AND wait_event IN ('transactionid', 'tuple'))`
	pid := conn.PgConn().PID()
	answers := make(chan answer[T], 1)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		value, err := call()
		answers <- answer[T]{value, err}
	}()
	b.t.Cleanup(func() { <-returned })
	for b.ctx.Err() == nil {
		select {
		case <-returned:
			return answers
		default:
		}
		if ask[bool](b, isWaiting, pid) {
			return answers
		}
	}
	b.t.Fatal("the call neither returned nor waited for a row")
	return nil
}

type answer[T any] struct {
	value T
	err   error
}

// isLost reports the error that a worker gets whose claim is over.
func isLost(err error) bool { return errors.Is(err, claim.ErrLeaseLost) }
