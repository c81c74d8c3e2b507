package fencepost_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// Behind PgBouncer in transaction mode with two server sessions, twenty
// producers and a worker do everything, in each mode in which pgx sends
// statements, the default included, whose names a pooler loses (B86, B87).
// Without a way of its own the worker is deaf, finds that out, says so once,
// and polls; with one it hears. Nothing stays with the sessions of the pooler.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	direct := super(t, server)
	pooled := pgtest.Pooler(t, server, "transaction", 2)("postgres")
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		for _, listens := range []bool{false, true} {
			name := mode + ", deaf"
			if listens {
				name = mode + ", with a listener of its own"
			}
			t.Run(name, func(t *testing.T) {
				var log logged
				config, states := hearing(fencepost.Config{
					PollInterval: time.Hour, // what a deaf worker does not wait for
					Logger:       slog.New(slog.NewTextHandler(&log, nil)),
				})
				if listens {
					var err error
					if config.ListenConfig, err = pgx.ParseConfig(server.URL("postgres")); err != nil {
						t.Fatal(err)
					}
				}
				pool := pgtest.Pool(t, pooled+"&default_query_exec_mode="+mode)
				client := newClient(t, pool, config)
				ran := echo(client)
				fencepost.HandleKind(client, "in a transaction", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
					if err := job.SetProgress(ctx, 1); err != nil {
						return err
					}
					tx, err := pool.Begin(ctx)
					if err != nil {
						return err
					}
					defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
					if err := job.CompleteTx(ctx, tx); err != nil {
						return err
					}
					if _, err := client.In(tx).Enqueue(ctx, fencepost.NewJob{Kind: "echo"}); err != nil {
						return err
					}
					return tx.Commit(ctx)
				})
				stop := work(t, client)
				await(t, states, listens)

				const producers = 20
				var group sync.WaitGroup
				for range producers {
					group.Go(func() {
						if _, err := client.Enqueue(t.Context(), fencepost.NewJob{Kind: "echo"}); err != nil {
							t.Error(err)
						}
					})
				}
				group.Wait()
				for range producers {
					receive(t, ran, "a job of a producer")
				}
				own := enqueue(t, client, fencepost.NewJob{Kind: "in a transaction"})[0]
				receive(t, ran, "the job that another one has enqueued")
				if job := ended(t, client, own); job.Status != fencepost.StatusDone || job.Attempts != 1 {
					t.Errorf("the job that completed in its own transaction: %+v", job)
				}
				if jobs, err := client.List(t.Context(), fencepost.Filter{Kind: "echo"}); err != nil || len(jobs) < producers {
					t.Errorf("%d jobs are listed, %v", len(jobs), err)
				}
				later := enqueue(t, client, fencepost.NewJob{Kind: "echo", Delay: time.Hour})[0]
				if did, err := client.Cancel(t.Context(), later); err != nil || !did[0].Done {
					t.Errorf("cancel: %+v, %v", did, err)
				}
				if n := count(t, direct, "SELECT count(*) FROM fencepost.workers WHERE lock_key IS NULL"); n != 1 {
					t.Errorf("%d workers without a lock, want 1", n)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				want := 1
				if listens {
					want = 0
				}
				if n := log.count("notifications are not heard"); n != want {
					t.Errorf("it was said %d times that nothing is heard, want %d:\n%s", n, want, log.text.String())
				}
				if n := log.count("ListenConfig"); n != want {
					t.Errorf("ListenConfig was named %d times, want %d:\n%s", n, want, log.text.String())
				}
				if n := count(t, direct, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n != 0 {
					t.Errorf("%d advisory locks are left with sessions of the pooler", n)
				}
			})
		}
	}
}

// In session mode a pooler carries notifications, and a process that hears is
// not told otherwise by a guess.
func TestBehindPgBouncerInSessionMode(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	config, states := hearing(fencepost.Config{PollInterval: never})
	client := newClient(t, pgtest.Pool(t, pgtest.Pooler(t, server, "session", 20)("postgres")), config)
	ran := echo(client)
	work(t, client)
	await(t, states, true)
	enqueue(t, client, fencepost.NewJob{Kind: "echo"})
	receive(t, ran, "a job that a bell brought")
}
