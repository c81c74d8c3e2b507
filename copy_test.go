package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/faultproxy"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

const sqlJobs = "SELECT count(*) FROM fencepost.jobs"

// source is a sequence that counts what is taken from it and calls a func
// before each job, given its number.
type source struct {
	jobs   int
	taken  atomic.Int64
	before func(n int) // nil: nothing
	change func(n int, job *fencepost.NewJob)
}

func (s *source) all() iter.Seq[fencepost.NewJob] {
	return func(yield func(fencepost.NewJob) bool) {
		for int(s.taken.Load()) < s.jobs {
			n := int(s.taken.Add(1))
			if s.before != nil {
				s.before(n)
			}
			job := fencepost.NewJob{Payload: invoice{Number: int64(n)}}
			if s.change != nil {
				s.change(n, &job)
			}
			if !yield(job) {
				return
			}
		}
	}
}

// A COPY that ends early stores nothing, whatever ended it, and says what it
// was. It costs no connection unless the connection was the reason, and no
// transaction of the caller's.
func TestCopyIsAllOrNone(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	script(t, admin(t, pool), "ALTER TABLE fencepost.jobs ADD CONSTRAINT no_refused CHECK (kind <> 'refused')")
	const jobs, bad = 20_000, 12_345
	broken := errors.New("the source is broken")
	kind := func(kind string) func(int, *fencepost.NewJob) {
		return func(n int, job *fencepost.NewJob) {
			if n == bad {
				*job = fencepost.NewJob{Kind: kind}
			}
		}
	}
	for name, test := range map[string]struct {
		jobs   int
		change func(int, *fencepost.NewJob)
		says   string
		check  func(error) bool
		taken  int64 // 0: not known
		lost   bool  // the connection may be
	}{
		"an invalid job": {
			jobs: jobs, change: kind(""), says: "job 12345: ", taken: bad,
			check: func(err error) bool { return errors.Is(err, fencepost.ErrInvalid) },
		},
		"a job that the table refuses": {
			jobs: jobs, change: kind("refused"), says: "no_refused",
			check: func(err error) bool { return !errors.Is(err, fencepost.ErrInvalid) },
		},
		"a source that fails": {
			jobs: bad, says: broken.Error(), taken: bad, lost: true,
			check: func(err error) bool { return errors.Is(err, broken) },
		},
	} {
		for _, in := range []string{"pool", "transaction"} {
			t.Run(name+", "+in, func(t *testing.T) {
				pool := pgtest.Pool(t, pgtest.As(t, pgtest.Admin(t, pool.Config().ConnString()), producerRole)+"&pool_max_conns=1")
				client := newClient(t, pool, fencepost.Config{})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				from := &source{jobs: test.jobs, change: test.change}
				sequence := from.all()
				if test.lost {
					sequence = func(yield func(fencepost.NewJob) bool) {
						from.all()(yield)
						cancel(broken)
					}
				}
				attempt := func(in fencepost.Enqueuer) {
					t.Helper()
					n, err := in.EnqueueCopy(ctx, sequence)
					if n != 0 || err == nil || !strings.Contains(err.Error(), test.says) || !test.check(err) {
						t.Errorf("%d, %v, want an error that says %q", n, err, test.says)
					}
					if taken := from.taken.Load(); test.taken != 0 && taken != test.taken {
						t.Errorf("%d jobs were taken, want %d", taken, test.taken)
					}
				}
				want := 0
				if in == "pool" {
					attempt(client.In(pool))
				} else {
					err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
						attempt(client.In(tx))
						return second(client.In(tx).EnqueueCopy(t.Context(), (&source{jobs: 3}).all()))
					})
					if want = 3; test.lost {
						want = 0
					} else if err != nil {
						t.Errorf("the transaction is lost: %v", err)
					}
				}
				eventually(t, "the connection is given back", func() bool { return pool.Stat().AcquiredConns() == 0 })
				if n := pool.Stat().TotalConns(); n != 1 && !test.lost {
					t.Errorf("the connection is lost")
				}
				owner := admin(t, pool)
				if n := count(t, owner, sqlJobs); n != want {
					t.Errorf("%d jobs are stored, want %d", n, want)
				}
				script(t, owner, "DELETE FROM fencepost.jobs")
			})
		}
	}
}

// A sequence that panics does so where it was called, and nothing is stored.
func TestCopyOfASequenceThatPanics(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	func() {
		defer func() {
			if r := recover(); r != "out of jobs" {
				t.Errorf("recovered %v", r)
			}
		}()
		from := source{jobs: 10_000, before: func(n int) {
			if n == 5000 {
				panic("out of jobs")
			}
		}}
		_, _ = client.EnqueueCopy(t.Context(), from.all())
	}()
	if s := pool.Stat(); s.AcquiredConns() != 0 || s.NewConnsCount() != 1 {
		t.Errorf("%d connections are in use, %d were made, want 0 and 1", s.AcquiredConns(), s.NewConnsCount())
	}
	if n := count(t, pool, sqlJobs); n != 0 {
		t.Errorf("%d jobs are stored", n)
	}
}

// A connection that breaks in the middle leaves nothing, also if it is the
// client that cannot be reached, and the server finds out.
func TestCopyOverAConnectionThatBreaks(t *testing.T) {
	t.Parallel()
	dsn, watch := database(t)
	proxy := faultproxy.New(t, dsn)
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Through(config.ConnConfig)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	client := newClient(t, pool, fencepost.Config{})
	from := source{jobs: 50_000, before: func(n int) {
		if n == 25_000 {
			proxy.Cut()
		}
	}}
	if n, err := client.EnqueueCopy(t.Context(), from.all()); err == nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if n := from.taken.Load(); n == 50_000 {
		t.Error("the whole sequence was taken")
	}
	eventually(t, "the server has ended the COPY", func() bool {
		return count(t, watch, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY%' AND state <> 'idle'") == 0
	})
	if n := count(t, watch, sqlJobs); n != 0 {
		t.Errorf("%d jobs are stored", n)
	}
	// The next one has a new connection.
	if err := all(7)(client.EnqueueCopy(t.Context(), (&source{jobs: 7}).all())); err != nil {
		t.Error(err)
	}
}

// A sequence is taken as the server reads, not ahead of it: while the COPY has
// to wait, no more is held than what fits into a few buffers.
func TestCopyHoldsFewJobs(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	tx, err := admin(t, pool).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "LOCK TABLE fencepost.jobs IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	large := raw(`"` + strings.Repeat("x", 1<<20-2) + `"`)
	const jobs = 16
	from := source{jobs: jobs, change: func(_ int, job *fencepost.NewJob) { *job = fencepost.NewJob{Kind: "k", Payload: large} }}
	ended := make(chan error, 1)
	go func() { ended <- all(jobs)(client.EnqueueCopy(t.Context(), from.all())) }()
	eventually(t, "the COPY waits for the table", func() bool {
		return count(t, pool, "SELECT count(*) FROM pg_locks WHERE relation = 'fencepost.jobs'::regclass AND NOT granted") == 1
	})
	if n := from.taken.Load(); n > jobs*3/4 {
		t.Errorf("%d of %d MiB were taken from the sequence before the server read any", n, jobs)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, ended, "the COPY"); err != nil {
		t.Error(err)
	}
}

// A server that takes no writes is left before a job is taken from the
// sequence, which may not be walked twice.
func TestCopyLeavesADemotedServer(t *testing.T) {
	t.Parallel()
	d, pool := newDemotion(t)
	client := newClient(t, pool, fencepost.Config{})
	enqueue(t, client, fencepost.NewJob{Kind: "k"}) // so that there is a connection to the old primary
	d.demote()
	from := source{jobs: 1000}
	if err := all(1000)(client.EnqueueCopy(t.Context(), from.all())); err != nil {
		t.Fatal(err)
	}
	if n := count(t, d.new, sqlJobs+" WHERE kind = 'invoice'"); n != 1000 {
		t.Errorf("%d jobs on the new primary, want 1000", n)
	}
}

// In a transaction of the caller's the refusal is the caller's to know, and the
// sequence still whole.
func TestCopyInAReadOnlyTransaction(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	from := source{jobs: 10}
	if _, err := client.In(tx).EnqueueCopy(t.Context(), from.all()); !errors.Is(err, fencepost.ErrReadOnly) {
		t.Errorf("%v, want ErrReadOnly", err)
	}
	if n := from.taken.Load(); n != 0 {
		t.Errorf("%d jobs were taken", n)
	}
}

// COPY leaves no names with the sessions of a pooler, in no mode.
func TestCopyBehindPgBouncer(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	direct := super(t, server)
	pooled := pgtest.Pooler(t, server, "transaction", 2)("postgres")
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			client := newClient(t, pgtest.Pool(t, pooled+"&pool_max_conns=20&default_query_exec_mode="+mode), fencepost.Config{})
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() {
					for range 5 {
						if err := all(100)(client.EnqueueCopy(t.Context(), (&source{jobs: 100}).all())); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			if n := count(t, direct, sqlJobs); n != 10_000 {
				t.Errorf("%d jobs, want 10000", n)
			}
			script(t, direct, "DELETE FROM fencepost.jobs")
		})
	}
}

// INSERT is all that a role needs, and is named if it is missing. Row security
// is refused by the server.
func TestCopyNeedsInsertOnly(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	owner := admin(t, pool)
	producer := newClient(t, as(t, pool, producerRole), fencepost.Config{})
	script(t, owner, "REVOKE SELECT (id) ON fencepost.jobs FROM "+producerRole)
	copied := func() error { return all(3)(producer.EnqueueCopy(t.Context(), (&source{jobs: 3}).all())) }
	if err := copied(); err != nil {
		t.Errorf("with INSERT alone: %v", err)
	}
	script(t, owner, "ALTER TABLE fencepost.jobs ENABLE ROW LEVEL SECURITY")
	if err := copied(); err == nil || !strings.Contains(err.Error(), "row-level security") {
		t.Errorf("under row security: %v", err)
	}
	script(t, owner, "ALTER TABLE fencepost.jobs DISABLE ROW LEVEL SECURITY", "REVOKE INSERT ON fencepost.jobs FROM "+producerRole)
	if err := copied(); err == nil || !strings.Contains(err.Error(), "42501") || !strings.Contains(err.Error(), "fencepost migrate grants --producer") {
		t.Errorf("without INSERT: %v", err)
	}
	if n := count(t, pool, sqlJobs); n != 3 {
		t.Errorf("%d jobs, want 3", n)
	}
}

// database/sql has no COPY, and says so before a job is taken.
func TestNoCopyInSQL(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	from := source{jobs: 3}
	if _, err := client.InSQL(tx).EnqueueCopy(t.Context(), from.all()); !errors.Is(err, fencepost.ErrInvalid) || !strings.Contains(err.Error(), "database/sql") {
		t.Errorf("%v, want ErrInvalid", err)
	}
	if n := from.taken.Load(); n != 0 {
		t.Errorf("%d jobs were taken", n)
	}
	if err := second(client.InSQL(tx).Enqueue(t.Context(), fencepost.NewJob{Kind: "k"})); err != nil {
		t.Errorf("the transaction is lost: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
}

// One bell for each queue, at the end, however many jobs and chunks there were;
// none for no job. A rule or trigger that keeps rows out is found.
func TestCopyRingsOncePerQueue(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	ear := pgtest.Conn(t, dsn)
	if _, err := ear.Exec(t.Context(), "LISTEN fencepost"); err != nil {
		t.Fatal(err)
	}
	dueNow := regexp.MustCompile(`^1:\d{1,14}:`) // with the transaction that rings
	bells := func() (heard []string) {
		script(t, pool, "NOTIFY fencepost, 'mark'")
		for {
			n, err := ear.WaitForNotification(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n.Payload == "mark" {
				slices.Sort(heard)
				return heard
			}
			heard = append(heard, dueNow.ReplaceAllString(n.Payload, "1:0:"))
		}
	}
	from := source{jobs: 5000, change: func(n int, job *fencepost.NewJob) { job.Queue = fmt.Sprint("q", n%2) }}
	if err := all(5000)(client.EnqueueCopy(t.Context(), from.all())); err != nil {
		t.Fatal(err)
	}
	if heard := bells(); !slices.Equal(heard, []string{"1:0:q0", "1:0:q1"}) {
		t.Errorf("heard %q", heard)
	}
	if err := all(0)(client.EnqueueCopy(t.Context(), (&source{}).all())); err != nil {
		t.Error(err)
	}
	if heard := bells(); len(heard) != 0 {
		t.Errorf("no job rang %q", heard)
	}

	script(t, admin(t, pool),
		"CREATE FUNCTION public.half() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.id % 2 = 0 THEN RETURN NULL; END IF; RETURN NEW; END'",
		"CREATE TRIGGER half BEFORE INSERT ON fencepost.jobs FOR EACH ROW EXECUTE FUNCTION public.half()")
	n, err := client.EnqueueCopy(t.Context(), (&source{jobs: 10}).all())
	if n != 0 || err == nil || !strings.Contains(err.Error(), "10 jobs became 5 rows") {
		t.Errorf("%d, %v", n, err)
	}
	if n := count(t, pool, sqlJobs); n != 5000 {
		t.Errorf("%d jobs, want 5000", n)
	}
}
