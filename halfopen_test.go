package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/faultproxy"
)

// poolThrough opens a pool through the proxy. What a client makes from its
// configuration goes through the proxy too.
func poolThrough(t *testing.T, dsn string, proxy *faultproxy.Proxy, change ...func(*pgx.ConnConfig)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Through(config.ConnConfig)
	for _, change := range change {
		change(config.ConnConfig)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// All connections of a worker are open on its own side alone, as after a
// failover behind a proxy, and none ever raises an error. The worker finds out
// by itself, whether it is idle or has a job in hand, whose outcome is stored;
// and work goes on (B10, B39, B40).
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{false, true} {
		t.Run(map[bool]string{false: "idle", true: "busy"}[busy], func(t *testing.T) {
			t.Parallel()
			dsn, direct := database(t)
			proxy := faultproxy.New(t, dsn)
			config, states := hearing(fencepost.Config{PollInterval: time.Second})
			client := newClient(t, poolThrough(t, dsn, proxy), config)
			producer := newClient(t, direct, fencepost.Config{})
			ran := echo(client)
			began, release := hold(client)
			work(t, client)
			await(t, states, true)
			// After a first job no claim is under way: idle means ticks alone.
			first := enqueue(t, producer, fencepost.NewJob{Kind: "echo"})[0]
			receive(t, ran, "the first job")
			ended(t, producer, first)
			var held int64
			if busy {
				held = enqueue(t, producer, fencepost.NewJob{Kind: "hold"})[0]
				receive(t, began, "the held job")
			}

			proxy.Strand()
			close(release)
			await(t, states, false)
			await(t, states, true)
			id := enqueue(t, producer, fencepost.NewJob{Kind: "echo"})[0]
			if got := receive(t, ran, "a job over new connections"); got != id {
				t.Errorf("job %d ran, want %d", got, id)
			}
			if busy {
				if info := ended(t, producer, held); info.Status != fencepost.StatusDone || info.Attempts != 1 {
					t.Errorf("the held job is %s after %d attempts: %s", info.Status, info.Attempts, info.LastError)
				}
			}
		})
	}
}

// The pool's connections are half open when a worker starts: Run says so in time
// (B91).
func TestRunOnAHalfOpenPoolEndsInTime(t *testing.T) {
	t.Parallel()
	dsn, _ := database(t)
	proxy := faultproxy.New(t, dsn)
	pool := poolThrough(t, dsn, proxy)
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := newClient(t, pool, fencepost.Config{})
	echo(client)
	proxy.Strand()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	begin := time.Now()
	err := client.Run(ctx)
	if took := time.Since(begin); took > 10*time.Second || err == nil {
		t.Errorf("Run returned %v after %v", err, took)
	}
}

// A stop in a network that has gone silent ends in time, with an outcome in
// flight, and says what it could not store (B10, B40).
func TestStopInASilentNetwork(t *testing.T) {
	t.Parallel()
	dsn, direct := database(t)
	proxy := faultproxy.New(t, dsn)
	config, states := hearing(fencepost.Config{SoftStop: time.Second, HardStop: time.Second, PollInterval: time.Second})
	client := newClient(t, poolThrough(t, dsn, proxy), config)
	began, release := hold(client)
	stop := work(t, client)
	await(t, states, true)
	id := enqueue(t, newClient(t, direct, fencepost.Config{}), fencepost.NewJob{Kind: "hold"})[0]
	receive(t, began, "the held job")

	proxy.Stall()
	close(release)
	begin := time.Now()
	err := stop()
	// Soft and hard stop, 5 s to store or for a statement in flight, and a
	// second for each of two goodbyes; the rest is for a busy machine.
	if took := time.Since(begin); took > 13*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if !errors.Is(err, fencepost.ErrStuck) || !strings.Contains(err.Error(), fmt.Sprint("outcomes not stored: jobs ", id)) {
		t.Errorf("Run returned %v; want ErrStuck that names job %d", err, id)
	}
	proxy.Cut()
	proxy.Resume()
	eventually(t, "no connection is left", func() bool { return sessions(t, direct) == 0 })
}

// A claim whose answer is lost has taken jobs that nobody works on. The call
// ends by its own deadline, and the jobs come back when their lease is over
// (B10).
func TestAClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	dsn, direct := database(t)
	proxy := faultproxy.New(t, dsn)
	// The proxy reads statements of this mode only.
	pool := poolThrough(t, dsn, proxy, func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol })
	config, states := hearing(fencepost.Config{Lease: 2 * time.Second, PollInterval: time.Second})
	client := newClient(t, pool, config)
	attempts := make(chan int, 10)
	fencepost.HandleKind(client, "k", func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
		attempts <- job.Attempt
		return nil
	})
	work(t, client)
	await(t, states, true)

	var once sync.Once
	lost := make(chan struct{})
	proxy.OnQuery(func(sql string) *pgproto3.ErrorResponse {
		var there bool
		if strings.Contains(sql, "attempts = j.attempts + 1") &&
			direct.QueryRow(context.Background(), "SELECT EXISTS (SELECT FROM fencepost.jobs WHERE status = 'ready')").Scan(&there) == nil && there {
			once.Do(func() {
				proxy.Strand() // this statement still gets through, its answer does not
				close(lost)
			})
		}
		return nil
	})
	producer := newClient(t, direct, fencepost.Config{})
	var id int64
	for taken := true; taken; {
		id = enqueue(t, producer, fencepost.NewJob{Kind: "k"})[0]
		select {
		case <-lost:
			taken = false
		case <-attempts: // by a claim that was on its way before the job was there
		case <-time.After(patience):
			t.Fatal("no claim")
		}
	}
	if attempt := receive(t, attempts, "the handler"); attempt != 2 {
		t.Errorf("attempt %d has run, want the second: the first was lost with its claim", attempt)
	}
	if info := ended(t, newClient(t, direct, fencepost.Config{}), id); info.Status != fencepost.StatusDone || info.Attempts != 2 {
		t.Errorf("the job is %s after %d attempts: %s", info.Status, info.Attempts, info.LastError)
	}
}
