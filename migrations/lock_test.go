package migrations_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// B105: a transaction that has read jobs is open. DDL does not queue up behind
// it for long, with everybody else behind the DDL: it steps back and comes
// again, and the table stays in use.
func TestDDLDoesNotStopTheTable(t *testing.T) { // not parallel: it replaces the migrations
	b := migrated(t)
	migrations.Replace(t, withNext(t, 1))
	dump, err := b.connect().Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dump.Exec(b.ctx, "SELECT count(*) FROM fencepost.jobs"); err != nil {
		t.Fatal(err)
	}
	migrator, user := b.connect(), b.connect()
	type answer struct {
		applied []migrations.Migration
		err     error
	}
	up := make(chan answer, 1)
	go func() {
		applied, err := migrations.Up(b.ctx, migrator, schema)
		up <- answer{applied, err}
	}()
	for range 2 {
		b.until("the migrator waits for the table", "SELECT "+waiting+" > 0")
		// Behind the waiting DDL this waits too, but no longer than DDL may.
		ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
		if _, err := user.Exec(ctx, "INSERT INTO fencepost.jobs (kind) VALUES ('test')"); err != nil {
			t.Fatal(err)
		}
		cancel()
		b.until("the migrator steps back", "SELECT "+waiting+" = 0")
	}
	select {
	case got := <-up:
		t.Fatalf("gave up or went through: %+v", got)
	default:
	}
	if err := dump.Rollback(b.ctx); err != nil {
		t.Fatal(err)
	}
	got := <-up
	if got.err != nil || len(got.applied) != 1 || got.applied[0].Version != migrations.Latest {
		t.Errorf("applied %+v, %v", got.applied, got.err)
	}
	expect(b, int64(2), "SELECT count(extra) + count(*) FROM fencepost.jobs")

	// Stepwise down and up again.
	if reverted, err := migrations.Down(b.ctx, b.conn, schema, migrations.Latest-1); err != nil || len(reverted) != 1 || reverted[0].Version != migrations.Latest {
		t.Errorf("one version down reverted %+v, %v", reverted, err)
	}
	expect(b, int64(2), "SELECT count(*) FROM fencepost.jobs")
	if applied := b.up(schema); len(applied) != 1 {
		t.Errorf("applied %+v", applied)
	}
}

// B105: every real migration, while somebody has read every table and does not
// end and others work: nobody waits behind it for long, and it comes through
// as soon as it can.
func TestMigrationsDoNotStopTheTables(t *testing.T) {
	t.Parallel()
	for version := 2; version <= migrations.Latest; version++ {
		t.Run(fmt.Sprint("to version ", version), func(t *testing.T) {
			b := setUp(t)
			var before strings.Builder
			if err := migrations.Print(&before, schema, 0, version-1); err != nil {
				t.Fatal(err)
			}
			b.script(before.String())
			dump, err := b.connect().Begin(b.ctx)
			if err != nil {
				t.Fatal(err)
			}
			tables := ask[[]string](b, "SELECT array_agg(relname::text) FROM pg_class WHERE relnamespace = 'fencepost'::regnamespace AND relkind IN ('r', 'v') AND relname <> 'schema_migrations'")
			for _, table := range tables {
				if _, err := dump.Exec(b.ctx, "SELECT count(*) FROM fencepost."+table); err != nil {
					t.Fatal(err)
				}
			}
			ctx, stop := context.WithCancel(b.ctx)
			defer stop()
			worker := b.connect()
			rounds := make(chan int, 1)
			go func() {
				defer close(rounds)
				n := 0
				for ; ctx.Err() == nil; n++ {
					// Ten times what it may wait, since the machine may be busy.
					err := runScript(b.ctx, worker, `BEGIN; SET LOCAL lock_timeout = '3s';
						INSERT INTO fencepost.jobs (kind) VALUES ('test');
						UPDATE fencepost.jobs SET status = 'running', lease_until = clock_timestamp(), worker_id = 'w', attempts = attempts + 1
							WHERE id = (SELECT min(id) FROM fencepost.jobs WHERE status = 'ready' AND NOT EXISTS (SELECT FROM fencepost.queues));
						DELETE FROM fencepost.jobs WHERE status = 'running'; SELECT count(*) FROM fencepost.all_jobs; COMMIT`)
					if err != nil {
						t.Error("a worker's statement:", err)
						break
					}
				}
				rounds <- n
			}()
			migrator := b.connect()
			up := make(chan error, 1)
			go func() {
				_, err := migrations.Up(b.ctx, migrator, schema)
				up <- err
			}()
			pid := migrator.PgConn().PID()
			const isWaiting = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1::int AND wait_event_type = 'Lock')"
			// Until it has stepped back twice, or is through because it needs none
			// of these tables.
			for steps, waits := 0, false; steps < 2 && len(up) == 0 && b.ctx.Err() == nil; {
				now := ask[bool](b, isWaiting, pid)
				if waits && !now {
					steps++
				}
				waits = now
			}
			if err := dump.Rollback(b.ctx); err != nil {
				t.Fatal(err)
			}
			if err := <-up; err != nil {
				t.Error(err)
			}
			expect(b, migrations.Latest, "SELECT max(version) FROM fencepost.schema_migrations")
			stop()
			if n := <-rounds; n < 3 {
				t.Errorf("%d rounds of work meanwhile", n)
			}
		})
	}
}

// If who holds the lock does not end, the error says who that is: but not what
// it does.
func TestGivingUpNamesWhoHoldsTheLock(t *testing.T) { // not parallel: it replaces the migrations
	migrations.Attempts(t, 2)
	b := migrated(t)
	owner := b.role()
	b.grant(schema, migrations.Roles{Owner: owner})
	migrations.Replace(t, withNext(t, 1))
	holder := b.connect()
	if err := runScript(b.ctx, holder, "BEGIN; SELECT count(*) AS secret FROM fencepost.jobs"); err != nil {
		t.Fatal(err)
	}
	b.until("the transaction is old enough to be why", "SELECT clock_timestamp() - xact_start > interval '400 ms' FROM pg_stat_activity WHERE pid = $1::int", holder.PgConn().PID())
	process := fmt.Sprintf("process %d of role %q", holder.PgConn().PID(), ask[string](b, "SELECT current_user::text"))
	for who, test := range map[string]struct {
		conn *pgx.Conn
		says string
	}{
		"superuser": {b.connect(), process + `, in a transaction for \d+s, idle in transaction, its last statement began at 20\d\d-[-T:0-9]+Z; end that transaction`},
		"owner":     {b.become(owner), process + ` \(a member of pg_read_all_stats would see since when\); end that transaction`},
	} {
		_, err := migrations.Up(b.ctx, test.conn, schema)
		if code(err) != "55P03" || !regexp.MustCompile(test.says).MatchString(err.Error()) || !strings.Contains(err.Error(), "2 times") {
			t.Errorf("as %s: %v", who, err)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("as %s: the statement is shown: %v", who, err)
		}
	}
	if err := runScript(b.ctx, holder, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if applied := b.up(schema); len(applied) != 1 {
		t.Errorf("applied %+v once the lock was free", applied)
	}
}

// A prepared transaction has no process, and is named all the same. Autovacuum
// steps back for DDL, but only for one that waits for as long as it takes the
// server to look for deadlocks.
func TestPreparedTransactionsAndAutovacuum(t *testing.T) { // not parallel: it replaces the migrations
	migrations.Attempts(t, 2)
	server := pgtest.Server(t, pg.Options{Settings: map[string]string{"max_prepared_transactions": "5", "autovacuum_naptime": "1s", "autovacuum": "on"}})
	b := setUp(t)
	b = &bench{t, b.ctx, server.URL("postgres"), pgtest.Conn(t, server.URL("postgres"))}
	b.up(schema)
	migrations.Replace(t, withNext(t, 1))
	b.script("BEGIN; SELECT count(*) FROM fencepost.jobs; PREPARE TRANSACTION 'x'")
	if _, err := migrations.Up(b.ctx, b.conn, schema); code(err) != "55P03" || !strings.Contains(err.Error(), "pg_prepared_xacts") {
		t.Errorf("behind a prepared transaction: %v", err)
	}
	b.script("ROLLBACK PREPARED 'x'")

	// A vacuum that takes very long.
	b.script(`ALTER TABLE fencepost.jobs SET (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1);
		INSERT INTO fencepost.jobs (kind) SELECT 'test' FROM generate_series(1, 50000); DELETE FROM fencepost.jobs WHERE id % 2 = 0`)
	b.until("autovacuum is at work", "SELECT EXISTS (SELECT FROM pg_stat_progress_vacuum WHERE relid = 'fencepost.jobs'::regclass)")
	if applied, err := migrations.Up(b.ctx, b.conn, schema); err != nil || len(applied) != 1 {
		t.Errorf("behind autovacuum: %+v, %v", applied, err)
	}
}

// Somebody sits in a transaction with the lock of those who migrate: the others
// do not wait for ever, and say who that is (B92, B94).
func TestGivingUpNamesWhoMigrates(t *testing.T) { // not parallel: it changes how long is waited
	migrations.LockWait(t, 100*time.Millisecond)
	b := setUp(t)
	tx, err := b.connect().Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(b.ctx, migrations.LockStatement, schema); err != nil {
		t.Fatal(err)
	}
	_, err = migrations.Up(b.ctx, b.conn, schema)
	if want := fmt.Sprintf("held by process %d of role %q", tx.Conn().PgConn().PID(), ask[string](b, "SELECT current_user::text")); code(err) != "55P03" || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want it to say %s", err, want)
	}
	if err := tx.Rollback(b.ctx); err != nil {
		t.Fatal(err)
	}
	if applied := b.up(schema); len(applied) != migrations.Latest {
		t.Errorf("applied %+v once the lock was free", applied)
	}
}
