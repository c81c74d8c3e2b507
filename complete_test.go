package fencepost_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
)

// The completion and the effect happen together or not at all, whichever
// driver, and whether or not the queue keeps done jobs.
func TestCompletionInTheHandlersTransaction(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := pool.Exec(t.Context(), "CREATE TABLE effects (job bigint, attempt int)"); err != nil {
		t.Fatal(err)
	}
	refused := make(chan int64, 10)
	client := newClient(t, pool, fencepost.Config{
		Queues:   map[string]fencepost.Queue{"default": {}, "keeps none": {}},
		Observer: fencepost.Observer{Refused: func(id, _ int64) { refused <- id }},
	})
	if err := client.SetKeep(t.Context(), "keeps none", 0); err != nil {
		t.Fatal(err)
	}
	over := make(chan int64, 10)
	fencepost.HandleKind(client, "pgx", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx))
		if _, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1, $2)", job.ID, job.Attempt); err != nil {
			return err
		}
		if err := job.CompleteTx(ctx, tx); err != nil {
			return err
		}
		if job.Attempt == 1 {
			return fencepost.RetryAfter(0, errors.New("the first attempt rolls back"))
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		over <- job.ID
		return errors.New("an error after the commit changes nothing")
	})
	fencepost.HandleKind(client, "sql", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ($1, $2)", job.ID, job.Attempt); err != nil {
			return err
		}
		if err := job.CompleteSQLTx(ctx, tx); err != nil {
			return err
		}
		if job.Attempt == 1 {
			return fencepost.RetryAfter(0, errors.New("the first attempt rolls back"))
		}
		over <- job.ID
		return tx.Commit()
	})
	ids := enqueue(t, client,
		fencepost.NewJob{Kind: "pgx"}, fencepost.NewJob{Kind: "sql"},
		fencepost.NewJob{Kind: "pgx", Queue: "keeps none"}, fencepost.NewJob{Kind: "sql", Queue: "keeps none"})
	stop := work(t, client)
	for range ids {
		receive(t, over, "a committed handler")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, pool, "SELECT count(*) FROM fencepost.jobs"); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
	if n := count(t, pool, "SELECT count(*) FROM effects WHERE attempt = 2"); n != 4 || count(t, pool, "SELECT count(*) FROM effects") != 4 {
		t.Errorf("%d effects of second attempts, want 4 and no others", n)
	}
	for i, id := range ids {
		info, err := client.Get(t.Context(), id)
		if keeps := i < 2; keeps && (err != nil || info.Status != fencepost.StatusDone) || !keeps && !errors.Is(err, fencepost.ErrNotFound) {
			t.Errorf("job %d: %+v, %v", i, info, err)
		}
	}
	close(refused)
	for id := range refused {
		t.Errorf("the outcome of job %d was called refused", id)
	}
}

// A completion that was rolled back leaves the lease to be watched like any
// other, also in a queue that keeps no done jobs.
func TestARolledBackCompletionHidesNoLostLease(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	refused := make(chan int64, 1)
	client := newClient(t, pool, fencepost.Config{
		Lease:    2 * time.Second,
		Observer: fencepost.Observer{Refused: func(id, _ int64) { refused <- id }},
	})
	if err := client.SetKeep(t.Context(), fencepost.DefaultQueue, 0); err != nil {
		t.Fatal(err)
	}
	causes := make(chan error, 1)
	fencepost.HandleKind(client, "k", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(job.CompleteTx(ctx, tx), tx.Rollback(ctx)); err != nil {
			return err
		}
		// As a takeover does.
		if _, err := pool.Exec(ctx, "UPDATE fencepost.jobs SET fence = fence + 1, lease_until = now() + interval '1 hour'"); err != nil {
			return err
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil
	})
	enqueue(t, client, fencepost.NewJob{Kind: "k"})
	work(t, client)
	if cause := receive(t, causes, "the end of the handler's context"); !errors.Is(cause, fencepost.ErrLeaseLost) {
		t.Errorf("cause %v", cause)
	}
	receive(t, refused, "the refusal of its outcome")
}

// A job that is being completed in an open transaction for longer than its
// lease is not given away, not reported lost, and does not keep the leases of
// others from being extended.
func TestALongOpenCompletionHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{
		Lease:    2 * time.Second,
		Observer: fencepost.Observer{Refused: func(id, _ int64) { t.Errorf("job %d was refused", id) }},
	})
	other := newClient(t, pool, fencepost.Config{Lease: 2 * time.Second, PollInterval: time.Second})
	stole := func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
		t.Errorf("job %d was given to another worker", job.ID)
		return nil
	}
	fencepost.HandleKind(other, "completes", stole)
	fencepost.HandleKind(other, "waits", stole)

	began, release := make(chan struct{}, 2), make(chan struct{})
	fencepost.HandleKind(client, "completes", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := job.CompleteTx(ctx, tx); err != nil {
				return err
			}
			began <- struct{}{}
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return fmt.Errorf("context ended: %w", context.Cause(ctx))
			}
		})
	})
	fencepost.HandleKind(client, "waits", func(ctx context.Context, _ *fencepost.Job[json.RawMessage]) error {
		began <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("context ended: %w", context.Cause(ctx))
		}
	})
	ids := enqueue(t, client, fencepost.NewJob{Kind: "completes"}, fencepost.NewJob{Kind: "waits"})
	stop := work(t, client)
	receive(t, began, "the first handler")
	receive(t, began, "the second handler")
	stopOther := work(t, other)

	// Two leases, by the database's clock.
	eventually(t, "two leases pass", func() bool {
		return count(t, pool, "SELECT (extract(epoch FROM clock_timestamp() - created_at) > 5)::int FROM fencepost.jobs WHERE id = $1", ids[1]) == 1
	})
	close(release)
	for _, id := range ids {
		if info := ended(t, client, id); info.Status != fencepost.StatusDone || info.Attempts != 1 {
			t.Errorf("job %d is %s after %d attempts: %s", id, info.Status, info.Attempts, info.LastError)
		}
	}
	if err := errors.Join(stop(), stopOther()); err != nil {
		t.Error(err)
	}
}

// The guard for other tables: the old holder's write changes nothing.
func TestFencedWrites(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	ctx := t.Context()
	if _, err := pool.Exec(ctx, "CREATE TABLE invoices (id bigint, fence bigint NOT NULL DEFAULT 0, by text)"); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "INSERT INTO invoices (id) VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	const write = "UPDATE invoices SET fence = $1, by = $2 WHERE id = 1 AND fence < $1"
	if err := fencepost.Fenced(pool.Exec(ctx, write, 20, "new")); err != nil {
		t.Error(err)
	}
	if err := fencepost.Fenced(pool.Exec(ctx, write, 10, "old")); !errors.Is(err, fencepost.ErrLeaseLost) {
		t.Errorf("the old holder's write: %v", err)
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := fencepost.FencedSQL(db.ExecContext(ctx, write, 15, "old")); !errors.Is(err, fencepost.ErrLeaseLost) {
		t.Errorf("the old holder's write: %v", err)
	}
	if err := fencepost.FencedSQL(db.ExecContext(ctx, write, 30, "newest")); err != nil {
		t.Error(err)
	}
	if err := fencepost.Fenced(pool.Exec(ctx, "nonsense")); err == nil || errors.Is(err, fencepost.ErrLeaseLost) {
		t.Errorf("a bad statement: %v", err)
	}
}

// Completions are not slow because the session has kept a plan from when the queue
// was empty, nor is progress.
func TestCompletionsLookJobsUp(t *testing.T) {
	t.Parallel()
	const many, jobs = 10_000, 40
	dsn, direct := database(t)
	owner := admin(t, direct)
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	empty := func() {
		for _, table := range []string{"jobs", "finished"} {
			if _, err := owner.Exec(t.Context(), "ALTER TABLE fencepost."+table+" SET (autovacuum_enabled = off)"); err != nil {
				t.Fatal(err)
			}
			if _, err := owner.Exec(t.Context(), "VACUUM ANALYZE fencepost."+table); err != nil {
				t.Fatal(err)
			}
		}
	}
	client := newClient(t, pool, fencepost.Config{Queues: map[string]fencepost.Queue{fencepost.DefaultQueue: {Slots: 1}}})
	over := make(chan int64, 100)
	fencepost.HandleKind(client, "complete", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		if err := job.SetProgress(ctx, job.Attempt); err != nil {
			return err
		}
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return job.CompleteTx(ctx, tx) })
		over <- job.ID
		return err
	})
	complete := func(n int) {
		for range n {
			enqueue(t, newClient(t, direct, fencepost.Config{}), fencepost.NewJob{Kind: "complete"})
			receive(t, over, "a job that has completed itself")
		}
	}
	work(t, client)
	complete(8) // so that it is time for the server to keep a plan
	empty()
	complete(2)
	if _, err := direct.Exec(t.Context(), "INSERT INTO fencepost.jobs (kind, run_at) SELECT 'later', now() + interval '1 hour' FROM generate_series(1, $1::int)", many); err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := conn.Conn().PgConn().PID()
	conn.Release()
	complete(jobs)
	// What the one session has read is added up when it ends. That of the trips, which
	// has a plan of its own to get rid of, goes on.
	pool.Close()
	eventually(t, "the session has ended", func() bool {
		return count(t, direct, fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE pid = %d", pid)) == 0
	})
	read := count(t, direct, "SELECT sum(seq_tup_read)::bigint FROM pg_stat_user_tables WHERE relname IN ('jobs', 'finished')")
	if t.Logf("%d rows read by reading whole tables", read); read > jobs*many/2 {
		t.Errorf("%d rows read by reading whole tables, for %d completions beside %d jobs", read, jobs, many)
	}
}
