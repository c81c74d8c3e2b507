package fencepost_test

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// The name of the database leads to a standby for a while, as a stale answer of
// a name server does: no connection of ours stays there, also none that only
// listens, and new ones are made at a pace until one leads to the primary
// (B84).
func TestANameThatLeadsToAStandby(t *testing.T) {
	t.Parallel()
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
	poolOn := func(s *pg.Server) *pgxpool.Config {
		config, err := pgxpool.ParseConfig(pgtest.As(t, s.URL("postgres"), workerRole))
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	var stale atomic.Bool
	var dials atomic.Int64
	stale.Store(true)
	good, bad := poolOn(primary), poolOn(standby)
	dial := good.ConnConfig.DialFunc
	good.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		if stale.Load() {
			address = strings.Replace(address, good.ConnConfig.Host, bad.ConnConfig.Host, 1)
		}
		return dial(ctx, network, address)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	config, states := hearing(fencepost.Config{PollInterval: never})
	client := newClient(t, pool, config)
	ran := echo(client)
	work(t, client)
	await(t, states, false)

	begin, before := time.Now(), dials.Load()
	eventually(t, "some attempts are made", func() bool { return dials.Load() >= before+6 })
	if took := time.Since(begin); took < 500*time.Millisecond {
		t.Errorf("6 attempts within %v: no pace", took)
	}
	if n := count(t, super(t, standby), "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'fencepost %' AND state = 'idle' AND state_change < now() - interval '1 second'"); n != 0 {
		t.Errorf("%d connections of ours stay on the standby", n)
	}
	stale.Store(false)
	await(t, states, true)
	eventually(t, "an enqueue works", func() bool {
		_, err := client.Enqueue(t.Context(), fencepost.NewJob{Kind: "echo"})
		return err == nil
	})
	receive(t, ran, "a job, by its bell")
}

// Contexts that end at any moment of a call leave no connection of a small
// pool behind, and none in a transaction (B90).
func TestEndedContextsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	dsn, _ := database(t)
	pool := pgtest.Pool(t, dsn+"&pool_max_conns=3")
	client := newClient(t, pool, fencepost.Config{})
	fencepost.HandleKind(client, "complete", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(job.ID%20)*200*time.Microsecond)
		defer cancel()
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = tx.Rollback(ctx)
		}()
		if err := job.CompleteTx(ctx, tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	stop := work(t, client)
	big := slices.Repeat([]fencepost.NewJob{{Kind: "other", Payload: raw(`{"text": "` + strings.Repeat("x", 1000) + `"}`)}}, 300)
	calls := map[string]func(context.Context) error{
		"enqueue": func(ctx context.Context) error {
			return second(client.Enqueue(ctx, fencepost.NewJob{Kind: "complete"}))
		},
		"enqueue many":       func(ctx context.Context) error { return second(client.Enqueue(ctx, big...)) },
		"list":               func(ctx context.Context) error { return second(client.List(ctx, fencepost.Filter{})) },
		"queues":             func(ctx context.Context) error { return second(client.Queues(ctx)) },
		"pause":              func(ctx context.Context) error { return client.Pause(ctx, "other") },
		"retry, in a batch":  func(ctx context.Context) error { return second(client.Retry(ctx, 1, 2, 3)) },
		"cancel, in a batch": func(ctx context.Context) error { return second(client.Cancel(ctx, 1, 2, 3)) },
	}
	ended := make(map[string]int)
	var mu sync.Mutex
	var group sync.WaitGroup
	for name, call := range calls {
		group.Go(func() {
			for i := range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*300*time.Microsecond)
				err := call(ctx)
				cancel()
				if err != nil {
					mu.Lock()
					ended[name]++
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	for name := range calls {
		if ended[name] == 0 {
			t.Errorf("%s: no context has ended it", name)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	eventually(t, "all connections are given back", func() bool { return pool.Stat().AcquiredConns() == 0 })
	direct := admin(t, pool)
	eventually(t, "no transaction is open", func() bool {
		return count(t, direct, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'") == 0
	})
	if _, err := client.Enqueue(t.Context(), fencepost.NewJob{Kind: "complete"}); err != nil {
		t.Error(err)
	}
}
