package migrations_test

import (
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/migrations"
)

const processes = 6

// upTogether lets six connections migrate at once. It returns how many
// migrations they applied in all, and their errors.
func (b *bench) upTogether(conns []*pgx.Conn) (applied func() int, errs func() []error) {
	var wg sync.WaitGroup
	counts, failures := make([]int, len(conns)), make([]error, len(conns))
	for i, conn := range conns {
		wg.Go(func() {
			list, err := migrations.Up(b.ctx, conn, schema)
			counts[i], failures[i] = len(list), err
		})
	}
	return func() (sum int) {
			wg.Wait()
			for _, n := range counts {
				sum += n
			}
			return sum
		}, func() []error {
			wg.Wait()
			return failures
		}
}

func (b *bench) connections() []*pgx.Conn {
	b.t.Helper()
	conns := make([]*pgx.Conn, processes)
	for i := range conns {
		conns[i] = b.connect()
		// A version read before the wait for the lock would be an old one; so
		// would one that is read with a snapshot from before it.
		level := []string{"read committed", "repeatable read", "serializable"}[i%3]
		if _, err := conns[i].Exec(b.ctx, "SET default_transaction_isolation = '"+level+"'"); err != nil {
			b.t.Fatal(err)
		}
	}
	return conns
}

// B95: six processes migrate at once: an empty database, an empty schema, and
// one that is a version behind. None fails, and each migration is applied once.
func TestSixProcessesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	rounds := 9
	if os.Getenv("FENCEPOST_LONG") != "" {
		rounds = 50
	}
	b := setUp(t)
	conns := b.connections()
	for round := range rounds {
		want := migrations.Latest
		switch round % 3 {
		case 0:
			b.script("DROP SCHEMA IF EXISTS fencepost CASCADE")
		case 1: // the schema stays
			if _, err := migrations.Down(b.ctx, b.conn, schema, 0); err != nil {
				t.Fatal(err)
			}
		case 2:
			want = 1
			if _, err := migrations.Down(b.ctx, b.conn, schema, migrations.Latest-1); err != nil {
				t.Fatal(err)
			}
		}
		applied, errs := b.upTogether(conns)
		for _, err := range errs() {
			if err != nil {
				t.Error(err)
			}
		}
		if n := applied(); n != want {
			t.Errorf("%d migrations were applied, want %d", n, want)
		}
		expect(b, int64(migrations.Latest), "SELECT count(*) FROM fencepost.schema_migrations")
		if err := migrations.Check(b.ctx, b.conn, schema); err != nil {
			t.Error(err)
		}
	}
}

// B95: a process that is killed while it waits, or in the middle of its work,
// holds up nobody and leaves nothing half done.
func TestKilledMigratorHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	conns := b.connections()
	for name, hold := range map[string]struct {
		block  string // makes them wait
		args   []any
		victim string // selects the pid of the one to be killed
	}{
		"while it waits for the others": {
			migrations.LockStatement,
			[]any{schema},
			"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory' LIMIT 1",
		},
		"in the middle": {
			// The one that holds the migration lock waits for the fate of this schema.
			"CREATE SCHEMA fencepost",
			nil, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid' LIMIT 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b.script("DROP SCHEMA IF EXISTS fencepost CASCADE")
			for i := range conns {
				if conns[i].IsClosed() { // the victim of the other case
					conns[i] = b.connect()
				}
			}
			tx, err := b.connect().Begin(b.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(b.ctx, hold.block, hold.args...); err != nil {
				t.Fatal(err)
			}
			applied, errs := b.upTogether(conns)
			b.until("all wait", "SELECT "+waiting+" = $1::int", processes)
			b.until("one is killed", "SELECT coalesce(bool_or(pg_terminate_backend(pid)), false) FROM ("+hold.victim+") AS v")
			if err := tx.Rollback(b.ctx); err != nil {
				t.Fatal(err)
			}
			failed := 0
			for i, err := range errs() {
				if err != nil {
					failed++
					if !conns[i].IsClosed() {
						t.Error("one that was not killed failed:", err)
					}
				}
			}
			if n := applied(); failed != 1 || n != migrations.Latest {
				t.Errorf("%d failed and %d migrations were applied; want one victim and each migration once", failed, n)
			}
			if err := migrations.Check(b.ctx, b.conn, schema); err != nil {
				t.Error(err)
			}
		})
	}
}
