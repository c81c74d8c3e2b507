package fencepost_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/claim"
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
				begin := time.Now()
				stop := work(t, client)
				await(t, states, listens)
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("it took %v to find out what is heard", took)
				}

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

// A process that only enqueues dials nothing of its own, so it learns of the
// pooler by the first name that is lost: that statement is sent once more, and
// no other one has a name (B87). In a transaction of the caller only the caller
// can try again; the second time it gets through.
func TestProducersBehindPgBouncer(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(map[bool]string{false: "pool", true: "transactions"}[inTx], func(t *testing.T) {
			server := pgtest.Server(t, pg.Options{})
			if err := migrate(t.Context(), server.URL("postgres")); err != nil {
				t.Fatal(err)
			}
			pooled := pgtest.Pooler(t, server, "transaction", 1)("postgres")
			var log logged
			pool := pgtest.Pool(t, pooled+"&default_query_exec_mode=cache_statement&pool_max_conns=20")
			client := newClient(t, pool, fencepost.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			insert := func(ctx context.Context) error {
				job := fencepost.NewJob{Kind: "echo"}
				if !inTx {
					_, err := client.Enqueue(ctx, job)
					return err
				}
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					_, err := client.In(tx).Enqueue(ctx, job)
					return err
				})
			}
			const producers, each = 20, 10
			var group sync.WaitGroup
			for range producers {
				group.Go(func() {
					for range each {
						err := insert(t.Context())
						if inTx && errors.Is(err, claim.ErrUnprepared) {
							err = insert(t.Context())
						}
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			if n := log.count("a pooler sits between"); n != 1 {
				t.Errorf("the pooler was met %d times, want 1:\n%s", n, log.text.String())
			}
			if n := count(t, super(t, server), "SELECT count(*) FROM fencepost.jobs"); n != producers*each {
				t.Errorf("%d jobs, want %d", n, producers*each)
			}
		})
	}
}

// Jobs go into transactions of database/sql too, in the modes that leave no
// names, which its user has to choose.
func TestSQLBehindPgBouncer(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	pooled := pgtest.Pooler(t, server, "transaction", 1)("postgres")
	for _, mode := range []string{"cache_describe", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			pool := pgtest.Pool(t, pooled+"&default_query_exec_mode="+mode)
			client := newClient(t, pool, fencepost.Config{})
			db := stdlib.OpenDBFromPool(pool)
			defer db.Close()
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() {
					tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := client.InSQL(tx).Enqueue(t.Context(), fencepost.NewJob{Kind: mode}); err != nil {
						t.Error(err)
					}
					if err := tx.Commit(); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if n := count(t, pool, "SELECT count(*) FROM fencepost.jobs WHERE kind = $1::text", mode); n != 20 {
				t.Errorf("%d jobs, want 20", n)
			}
		})
	}
}

// opening keeps the start-up packets that go over connections.
type opening struct {
	mu     sync.Mutex
	params []map[string]string
}

func (o *opening) watch(config *pgx.ConnConfig) {
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &opened{Conn: conn, opening: o}, nil
	}
}

type opened struct {
	net.Conn
	opening *opening
	once    sync.Once
}

func (c *opened) Write(p []byte) (int, error) {
	c.once.Do(func() {
		var m pgproto3.StartupMessage
		if len(p) > 4 && m.Decode(p[4:]) == nil { // else a request to cancel
			c.opening.mu.Lock()
			defer c.opening.mu.Unlock()
			c.opening.params = append(c.opening.params, m.Parameters)
		}
	})
	return c.Conn.Write(p)
}

// With every option on, nothing is asked for in the start-up packet that a
// connection of pgx alone does not ask for, but application_name (B85).
func TestNothingForPoolersToRefuse(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	pooled := pgtest.Pooler(t, server, "transaction", 1)("postgres")
	var plain, ours opening
	alone, err := pgx.ParseConfig(pooled)
	if err != nil {
		t.Fatal(err)
	}
	plain.watch(alone)
	conn, err := pgx.ConnectConfig(t.Context(), alone)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	poolConfig, err := pgxpool.ParseConfig(pooled)
	if err != nil {
		t.Fatal(err)
	}
	ours.watch(poolConfig.ConnConfig)
	pool, err := pgxpool.NewWithConfig(t.Context(), poolConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	config, states := hearing(fencepost.Config{PollInterval: time.Hour, Lease: 2 * time.Second})
	client := newClient(t, pool, config)
	ran := echo(client)
	stop := work(t, client)
	await(t, states, false)
	enqueue(t, client, fencepost.NewJob{Kind: "echo"})
	receive(t, ran, "a job")
	if err := stop(); err != nil {
		t.Error(err)
	}

	allowed := append(slices.Collect(maps.Keys(plain.params[0])), "application_name")
	ours.mu.Lock()
	defer ours.mu.Unlock()
	if len(ours.params) < 3 {
		t.Errorf("%d connections, want those of the pool and our own", len(ours.params))
	}
	for _, params := range ours.params {
		for name, value := range params {
			if !slices.Contains(allowed, name) {
				t.Errorf("start-up parameter %s = %s", name, value)
			}
		}
	}
}
