package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// Two installs in one database, whose names need quotes and differ in case
// alone, share nothing: neither jobs, nor bells, nor settings, nor keys.
func TestTwoInstallsShareNothing(t *testing.T) {
	t.Parallel()
	schemas := []string{`My "Queue"`, `my "queue"`}
	pool := pgtest.Pool(t, pgtest.New(t, "fencepost two installs", func(ctx context.Context, dsn string) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		for _, schema := range schemas {
			if _, err := migrations.Up(ctx, conn, schema); err != nil {
				return err
			}
		}
		return nil
	}))
	type run struct {
		id  int64
		key string
	}
	var clients []*fencepost.Client
	var runs []chan run
	for _, schema := range schemas {
		config, states := hearing(fencepost.Config{Schema: schema, PollInterval: never})
		client, ran := newClient(t, pool, config), make(chan run, 10)
		fencepost.HandleKind(client, "k", func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
			ran <- run{job.ID, job.Key()}
			return nil
		})
		work(t, client)
		await(t, states, true)
		clients, runs = append(clients, client), append(runs, ran)
	}
	if err := clients[0].SetKeep(t.Context(), fencepost.DefaultQueue, 0); err != nil {
		t.Fatal(err)
	}
	keys := make(map[string]bool)
	for i, client := range clients {
		// Both sequences begin with the same id.
		id := enqueue(t, client, fencepost.NewJob{Kind: "k"})[0]
		got := receive(t, runs[i], "the job in "+schemas[i])
		if got.id != id || id != 1 || keys[got.key] {
			t.Errorf("%s: ran job %d with key %q, want job %d, which is 1, with a key of its own", schemas[i], got.id, got.key, id)
		}
		keys[got.key] = true
	}
	if info := ended(t, clients[1], 1); info.Status != fencepost.StatusDone {
		t.Errorf("the job that is kept is %s", info.Status)
	}
	eventually(t, "the job that is not kept is gone", func() bool {
		_, err := clients[0].Get(t.Context(), 1)
		return errors.Is(err, fencepost.ErrNotFound)
	})
	for i, ran := range runs {
		if len(ran) > 0 {
			t.Errorf("%s: another job ran: %v", schemas[i], <-ran)
		}
	}
}

// Columns that a later version has added do not disturb this one: it names
// every column that it reads and writes.
func TestMoreColumnsDoNoHarm(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	owner := admin(t, pool)
	for _, table := range []string{"jobs", "finished", "queues", "workers"} {
		if _, err := owner.Exec(t.Context(), "ALTER TABLE fencepost."+table+" ADD COLUMN later text NOT NULL DEFAULT 'x'"); err != nil {
			t.Fatal(err)
		}
	}
	client := newClient(t, pool, fencepost.Config{RetryDelay: func(int, error) time.Duration { return time.Millisecond }})
	if err := client.SetKeep(t.Context(), fencepost.DefaultQueue, time.Hour); err != nil {
		t.Fatal(err)
	}
	fencepost.HandleKind(client, "k", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		if job.Attempt == 1 {
			return errors.Join(job.SetProgress(ctx, 1), errors.New("once more"))
		}
		return nil
	})
	fencepost.HandleKind(client, "tx", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return job.CompleteTx(ctx, tx) })
	})
	ids := enqueue(t, client, fencepost.NewJob{Kind: "k"}, fencepost.NewJob{Kind: "tx"})
	// One whose worker died, and one whose time is up.
	if _, err := pool.Exec(t.Context(), `INSERT INTO fencepost.jobs (kind, status, attempts, max_attempts, lease_until, worker_id)
		VALUES ('k', 'running', 1, 1, now(), 'dead')`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `INSERT INTO fencepost.finished
			(id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload)
		VALUES (1, 1, now(), now(), now(), 1, 1, 0, 0, 'done', 'default', 'old', '{}')`); err != nil {
		t.Fatal(err)
	}
	work(t, client)
	for _, id := range ids {
		if info := ended(t, client, id); info.Status != fencepost.StatusDone {
			t.Errorf("job %d is %s: %s", id, info.Status, info.LastError)
		}
	}
	eventually(t, "the dead worker's job is buried, and what is old is gone", func() bool {
		return count(t, pool, "SELECT count(*) FROM fencepost.finished WHERE status = 'dead'") == 1 &&
			count(t, pool, "SELECT count(*) FROM fencepost.finished WHERE kind = 'old'") == 0
	})
	if jobs, err := client.List(t.Context(), fencepost.Filter{}); err != nil || len(jobs) != 3 {
		t.Errorf("%d jobs listed, %v", len(jobs), err)
	}
}

// A keep that makes no sense is refused.
func TestSetKeepRefuses(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	for queue, keep := range map[string]time.Duration{"": time.Hour, "a\x00": time.Hour, "a": -1} {
		if err := client.SetKeep(t.Context(), queue, keep); err == nil {
			t.Errorf("SetKeep(%q, %v) is accepted", queue, keep)
		}
	}
	if n := count(t, pool, "SELECT count(*) FROM fencepost.queues"); n != 0 {
		t.Errorf("%d settings were stored", n)
	}
}

// Statements that are prepared already live through a column that is added (B88).
func TestMoreColumnsDoNoHarmToAWarmPool(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	owner := admin(t, pool)
	client := newClient(t, pool, fencepost.Config{RetryDelay: func(int, error) time.Duration { return time.Millisecond }})
	fencepost.HandleKind(client, "tx", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		if job.Attempt == 1 {
			return errors.Join(job.SetProgress(ctx, 1), errors.New("once more"))
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return job.CompleteTx(ctx, tx) })
	})
	work(t, client)
	for round := range 2 {
		if round == 1 {
			for _, table := range []string{"jobs", "finished", "queues", "workers"} {
				if _, err := owner.Exec(t.Context(), "ALTER TABLE fencepost."+table+" ADD COLUMN later text NOT NULL DEFAULT 'x'"); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 20 {
			id := enqueue(t, client, fencepost.NewJob{Kind: "tx"})[0]
			if info := ended(t, client, id); info.Status != fencepost.StatusDone || info.Attempts != 2 {
				t.Fatalf("%+v", info)
			}
			for _, err := range []error{second(client.List(t.Context(), fencepost.Filter{})), second(client.Queues(t.Context())), second(client.Workers(t.Context())), second(client.Retry(t.Context(), 1))} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
