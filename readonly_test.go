package fencepost_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// demotion is a primary and its standby behind one name, which change their
// roles while all connections stay open.
type demotion struct {
	t        *testing.T
	old, new *pgxpool.Pool // of the superuser
	moved    atomic.Bool   // the name leads to the new primary
}

// newDemotion returns a pool on the name as well, of a worker.
func newDemotion(t *testing.T) (*demotion, *pgxpool.Pool) {
	t.Helper()
	primary := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), primary.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	standby, err := primary.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	d := &demotion{t: t, new: super(t, standby)}
	d.old = pgtest.Pool(t, primary.URL("postgres")+"&default_transaction_read_only=off") // stronger than ALTER SYSTEM
	config, err := pgxpool.ParseConfig(pgtest.As(t, primary.URL("postgres"), workerRole))
	if err != nil {
		t.Fatal(err)
	}
	dial, from, to := config.ConnConfig.DialFunc, config.ConnConfig.Host, d.new.Config().ConnConfig.Host
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if d.moved.Load() {
			address = strings.Replace(address, from, to, 1)
		}
		return dial(ctx, network, address)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return d, pool
}

// demote makes the old primary read-only for good, for the sessions that are
// open as well, and the standby the primary, with nothing lost.
func (d *demotion) demote() {
	d.t.Helper()
	script(d.t, d.old, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	var lsn string
	if err := d.old.QueryRow(d.t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&lsn); err != nil {
		d.t.Fatal(err)
	}
	eventually(d.t, "the standby has caught up", func() bool {
		return count(d.t, d.new, "SELECT (pg_last_wal_replay_lsn() >= $1::pg_lsn)::int", lsn) == 1
	})
	promote(d.t, d.new)
	d.moved.Store(true)
}

const sqlOurs = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'fencepost ' || $1"

// Every connection leaves a server that was demoted and whose sockets stay
// open: the pool's, the exchange's, the keeper's, and the listener's, to which
// nothing is refused and nothing rings any more (B83).
func TestADemotedServerIsLeftByAll(t *testing.T) {
	t.Parallel()
	d, pool := newDemotion(t)
	config, states := hearing(fencepost.Config{PollInterval: time.Second, Lease: 10 * time.Second})
	client := newClient(t, pool, config)
	ran := echo(client)
	began, release := hold(client)
	work(t, client)
	await(t, states, true)
	held := enqueue(t, client, fencepost.NewJob{Kind: "hold"})[0]
	receive(t, began, "the held job")
	const lease = "SELECT (extract(epoch FROM lease_until) * 1000)::bigint FROM fencepost.jobs WHERE id = $1"
	before := count(t, d.old, lease, held)
	eventually(t, "the keeper works", func() bool { return count(t, d.old, lease, held) > before })

	d.demote()
	before = count(t, d.new, lease, held)
	eventually(t, "an enqueue works", func() bool {
		_, err := client.Enqueue(t.Context(), fencepost.NewJob{Kind: "echo"})
		return err == nil
	})
	receive(t, ran, "a job on the new primary")
	await(t, states, false)
	await(t, states, true)
	eventually(t, "the keeper works on the new primary", func() bool { return count(t, d.new, lease, held) > before })
	close(release)
	if info := ended(t, client, held); info.Status != fencepost.StatusDone || info.Attempts != 1 {
		t.Errorf("the held job is %s after %d attempts: %s", info.Status, info.Attempts, info.LastError)
	}
	eventually(t, "nothing of ours stays on the old primary", func() bool { return count(t, d.old, sqlOurs, "%") == 0 })
}

// A worker with a job in hand leaves a demoted server also while it has nothing
// to write: the lock that it holds there tells nobody on the new primary that
// it lives, and the others would take it for dead.
func TestAWorkerShowsThatItLivesOnTheNewPrimary(t *testing.T) {
	t.Parallel()
	d, pool := newDemotion(t)
	config, states := hearing(fencepost.Config{PollInterval: never, Lease: time.Hour})
	client := newClient(t, pool, config)
	began, release := hold(client)
	defer close(release)
	work(t, client)
	await(t, states, true)
	enqueue(t, client, fencepost.NewJob{Kind: "hold"})
	receive(t, began, "the held job")
	// The look that the bell asked for is over: from now on there are only pings.
	eventually(t, "the last look is over", func() bool { return time.Since(client.Health().Tick.Last) > 3*time.Second })

	d.demote()
	eventually(t, "the worker holds its lock on the new primary", func() bool {
		return count(t, d.new, `SELECT count(*) FROM pg_locks AS l JOIN fencepost.workers AS w
			ON l.locktype = 'advisory' AND l.classid = w.tableoid AND l.objid = w.lock_key::bigint::oid`) == 1
	})
	if n := count(t, d.old, sqlOurs, "exchange"); n != 0 {
		t.Errorf("%d connections stay on the old primary", n)
	}
	// Nobody has asked anything of the pool since.
	eventually(t, "the pool has left the old primary", func() bool { return pool.Stat().TotalConns() == 0 })
}

// A process that enqueues, or completes, in transactions of its own alone leaves
// a demoted server too (B83).
func TestADemotedServerIsLeftByTransactions(t *testing.T) {
	t.Parallel()
	for _, works := range []bool{false, true} {
		t.Run(map[bool]string{false: "producer", true: "worker"}[works], func(t *testing.T) {
			t.Parallel()
			d, pool := newDemotion(t)
			client := newClient(t, pool, fencepost.Config{
				PollInterval: time.Second,
				RetryDelay:   func(int, error) time.Duration { return 100 * time.Millisecond },
				Queues:       map[string]fencepost.Queue{"default": {Slots: 1}}, // so that the pool makes one connection
			})
			enqueue := func() error {
				return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					return second(client.In(tx).Enqueue(t.Context(), fencepost.NewJob{Kind: "k"}))
				})
			}
			if err := enqueue(); err != nil {
				t.Fatal(err)
			}
			if !works {
				d.demote()
				eventually(t, "an enqueue in a transaction works", func() bool { return enqueue() == nil })
				return
			}
			fencepost.HandleKind(client, "k", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return job.CompleteTx(ctx, tx) })
			})
			work(t, client)
			d.demote()
			script(t, d.new, "INSERT INTO fencepost.jobs (kind) VALUES ('k')") // only the handler uses the pool
			eventually(t, "the jobs complete in their handler's transaction", func() bool {
				return count(t, d.new, "SELECT count(*) FROM fencepost.finished WHERE status = 'done'") == 2
			})
		})
	}
}

// Each way into a transaction of the caller's resets the pool at the first
// refusal: the next transaction is on a new connection.
func TestARefusalInATransactionResetsThePool(t *testing.T) {
	t.Parallel()
	type tools struct {
		client *fencepost.Client
		job    *fencepost.Job[json.RawMessage]
		pgx    pgx.Tx
		sql    *sql.Tx
	}
	job := fencepost.NewJob{Kind: "k"}
	for name, call := range map[string]func(context.Context, tools) error{
		"In":            func(ctx context.Context, on tools) error { return second(on.client.In(on.pgx).Enqueue(ctx, job)) },
		"InSQL":         func(ctx context.Context, on tools) error { return second(on.client.InSQL(on.sql).Enqueue(ctx, job)) },
		"CompleteTx":    func(ctx context.Context, on tools) error { return on.job.CompleteTx(ctx, on.pgx) },
		"CompleteSQLTx": func(ctx context.Context, on tools) error { return on.job.CompleteSQLTx(ctx, on.sql) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, pool := database(t)
			db := stdlib.OpenDBFromPool(pool)
			defer db.Close()
			client := newClient(t, pool, fencepost.Config{})
			refusals := make(chan error, 1)
			fencepost.HandleKind(client, "k", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
				tx, err := pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
				if err != nil {
					return err
				}
				defer tx.Rollback(ctx)
				sqlTx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
				if err != nil {
					return err
				}
				defer sqlTx.Rollback()
				refusals <- call(ctx, tools{client, job, tx, sqlTx})
				return nil
			})
			enqueue(t, client, job)
			work(t, client)
			if err := receive(t, refusals, "a refusal"); !errors.Is(err, fencepost.ErrReadOnly) {
				t.Errorf("%v, want ErrReadOnly", err)
			}
			eventually(t, "the connections are closed", func() bool { return pool.Stat().TotalConns() == 0 })
		})
	}
}

// Somebody who sits in a transaction with the advisory locks that Fencepost
// uses stops nobody: not one that starts, nor one that works (B94).
func TestLeftoverLocksSilenceNobody(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	tx, err := admin(t, pool).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, sql := range []string{
		"SELECT pg_advisory_xact_lock(hashtextextended('fencepost migrate fencepost', 0))",
		"SELECT pg_advisory_xact_lock('fencepost.workers'::regclass::oid::bigint::integer, k) FROM generate_series(1, 100) AS k",
	} {
		if _, err := tx.Exec(t.Context(), sql, pgx.QueryExecModeExec); err != nil {
			t.Fatal(err)
		}
	}
	config, states := hearing(fencepost.Config{PollInterval: never})
	client := newClient(t, pool, config)
	ran := echo(client)
	work(t, client)
	await(t, states, true)
	for range 3 {
		id := enqueue(t, client, fencepost.NewJob{Kind: "echo"})[0]
		receive(t, ran, "a job")
		ended(t, client, id)
	}
}
