package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/faultproxy"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// echo registers a handler of kind "echo" that says that it ran.
func echo(client *fencepost.Client) <-chan int64 {
	ran := make(chan int64, 1000)
	fencepost.HandleKind(client, "echo", func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
		ran <- job.ID
		return nil
	})
	return ran
}

// hold registers a handler of kind "hold" that runs until it is released or
// its context ends.
func hold(client *fencepost.Client) (began <-chan int, release chan<- struct{}) {
	b, r := make(chan int, 100), make(chan struct{})
	fencepost.HandleKind(client, "hold", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		b <- job.Attempt
		select {
		case <-r:
			return nil
		case <-ctx.Done():
			return fencepost.Dead(fmt.Errorf("context ended: %w", context.Cause(ctx)))
		}
	})
	return b, r
}

// Whichever of our connections is ended, work goes on, by bells, and no
// connection is leaked (B43, B47).
func TestTerminatedConnections(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never, Lease: 2 * time.Second})
	client := newClient(t, pool, config)
	ran := echo(client)
	began, release := hold(client)
	work(t, client)
	await(t, states, true)
	held := enqueue(t, client, fencepost.NewJob{Kind: "hold"})[0]
	receive(t, began, "the held job")
	for _, role := range []string{"listener", "exchange", "keeper", "listener", "exchange", "keeper", "listener", "listener", "listener", "listener", "listener", "listener", "%"} {
		eventually(t, "a "+role+" to terminate", func() bool {
			return count(t, pool, "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'fencepost ' || $1) AS x", role) > 0
		})
		if role == "listener" || role == "%" {
			await(t, states, false)
			await(t, states, true)
		}
		id := enqueue(t, client, fencepost.NewJob{Kind: "echo"})[0]
		if got := receive(t, ran, "a job after the "+role+" was terminated"); got != id {
			t.Errorf("job %d ran, want %d", got, id)
		}
	}
	if n := sessions(t, pool); n > 3 {
		t.Errorf("%d connections, want at most 3", n)
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d of the pool's connections are in use", n)
	}
	close(release)
	if info := ended(t, client, held); info.Status != fencepost.StatusDone || info.Attempts != 1 {
		t.Errorf("the held job is %s after %d attempts: %s", info.Status, info.Attempts, info.LastError)
	}
}

// A restart of the server ends no lease, is not noticed by a running handler,
// and afterwards bells are heard again (B41, B73).
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"fast", "immediate"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Server(t, pg.Options{Durable: true})
			if err := migrate(t.Context(), server.URL("postgres")); err != nil {
				t.Fatal(err)
			}
			pool := pgtest.Pool(t, pgtest.As(t, server.URL("postgres"), workerRole))
			config, states := hearing(fencepost.Config{PollInterval: never})
			client := newClient(t, pool, config)
			ran := echo(client)
			began, release := hold(client)
			work(t, client)
			await(t, states, true)
			held := enqueue(t, client, fencepost.NewJob{Kind: "hold"})[0]
			receive(t, began, "the held job")

			if err := server.Shutdown(mode); err != nil {
				t.Fatal(err)
			}
			await(t, states, false)
			close(release) // finished while there is nowhere to store it (B72)
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			await(t, states, true)
			pool.Reset()
			enqueue(t, client, fencepost.NewJob{Kind: "echo"})
			receive(t, ran, "a job after the restart")
			if info := ended(t, client, held); info.Status != fencepost.StatusDone || info.Attempts != 1 {
				t.Errorf("the job that ran through the restart is %s after %d attempts: %s", info.Status, info.Attempts, info.LastError)
			}
		})
	}
}

// With the database out of reach a lease ends by our own clock: the handler is
// told before anybody else can have the job. Afterwards work goes on (B61, B39,
// B40).
func TestDatabaseOutOfReachEndsLeases(t *testing.T) {
	t.Parallel()
	dsn, direct := database(t)
	proxy := faultproxy.New(t, dsn)
	through, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Through(through.ConnConfig)
	pool, err := pgxpool.NewWithConfig(t.Context(), through)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)

	config, states := hearing(fencepost.Config{Lease: 2 * time.Second, PollInterval: time.Second})
	client := newClient(t, pool, config)
	ran := echo(client)
	began, causes := make(chan struct{}, 10), make(chan error, 10)
	fencepost.HandleKind(client, "asks why", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		if job.Attempt > 1 {
			return nil
		}
		began <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	work(t, client)
	await(t, states, true)
	id := enqueue(t, newClient(t, direct, fencepost.Config{}), fencepost.NewJob{Kind: "asks why"})[0]
	receive(t, began, "the handler")

	proxy.Stall()
	if cause := receive(t, causes, "the end of the lease"); !errors.Is(cause, fencepost.ErrLeaseLost) {
		t.Errorf("cause %v, want ErrLeaseLost", cause)
	}
	proxy.Cut()
	proxy.Resume()
	await(t, states, false)
	await(t, states, true)
	enqueue(t, newClient(t, direct, fencepost.Config{}), fencepost.NewJob{Kind: "echo"})
	receive(t, ran, "a job after the outage")
	eventually(t, "the job is done by its second attempt or stored by its first", func() bool {
		return count(t, direct, "SELECT count(*) FROM fencepost.finished WHERE id = $1", id) == 1
	})
	eventually(t, "at most three connections", func() bool { return sessions(t, direct) <= 3 })
}

// Handlers that hold every connection of the pool for two leases starve
// neither the extension of their leases nor their completion (B71).
func TestBusyPoolStarvesNobody(t *testing.T) {
	t.Parallel()
	dsn, direct := database(t)
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	client := newClient(t, pool, fencepost.Config{Lease: 2 * time.Second, PollInterval: time.Second})
	other := newClient(t, direct, fencepost.Config{Lease: 2 * time.Second, PollInterval: time.Second})
	began, release := make(chan struct{}, 10), make(chan struct{})
	fencepost.HandleKind(client, "greedy", func(ctx context.Context, _ *fencepost.Job[json.RawMessage]) error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return fencepost.Dead(err)
		}
		defer conn.Release()
		began <- struct{}{}
		<-release
		return context.Cause(ctx)
	})
	fencepost.HandleKind(other, "greedy", func(context.Context, *fencepost.Job[json.RawMessage]) error {
		return fencepost.Dead(errors.New("taken over"))
	})
	ids := enqueue(t, client, fencepost.NewJob{Kind: "greedy"}, fencepost.NewJob{Kind: "greedy"}, fencepost.NewJob{Kind: "greedy"}, fencepost.NewJob{Kind: "greedy"})
	work(t, client)
	receive(t, began, "the first handler")
	receive(t, began, "the second handler")
	work(t, other)
	eventually(t, "two leases pass", func() bool {
		return count(t, direct, "SELECT (extract(epoch FROM clock_timestamp() - created_at) > 5)::int FROM fencepost.all_jobs WHERE id = $1", ids[0]) == 1
	})
	close(release)
	for _, id := range ids {
		eventually(t, "a job ends", func() bool {
			return count(t, direct, "SELECT count(*) FROM fencepost.finished WHERE id = $1 AND status = 'done' AND attempts = 1", id) == 1
		})
	}
}
