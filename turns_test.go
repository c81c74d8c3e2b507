package fencepost_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
)

// claimer is a client among several, and an eye on its claims.
type claimer struct {
	client *fencepost.Client
	claims atomic.Int64
	frozen atomic.Pointer[chan struct{}] // nothing is sent before it is closed; nil: it is not
}

func (c *claimer) freeze(t *testing.T) (thaw func()) {
	gate := make(chan struct{})
	c.frozen.Store(&gate)
	thaw = func() {
		if c.frozen.CompareAndSwap(&gate, nil) {
			close(gate)
		}
	}
	t.Cleanup(thaw)
	return thaw
}

// TraceBatchStart waits while the client is frozen, and counts claims.
func (c *claimer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	if gate := c.frozen.Load(); gate != nil {
		<-*gate
	}
	for _, q := range d.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "attempts = j.attempts + 1") {
			c.claims.Add(1)
		}
	}
	return ctx
}

func (c *claimer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (c *claimer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (c *claimer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (c *claimer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// claimers starts n clients with a handler of kind "echo" each, and waits until
// all hear. What has run comes from one channel.
func claimers(t *testing.T, n int, config fencepost.Config) (pool *pgxpool.Pool, all []*claimer, ran chan int64) {
	t.Helper()
	dsn, pool := database(t)
	ran = make(chan int64, 10_000)
	for range n {
		c := &claimer{}
		config, states := hearing(config)
		c.client = newClient(t, traced(t, dsn, c), config)
		echoInto(c.client, ran)
		work(t, c.client)
		await(t, states, true)
		all = append(all, c)
	}
	return pool, all, ran
}

// echoInto registers a handler of kind "echo" that says that it ran.
func echoInto(client *fencepost.Client, ran chan<- int64) {
	fencepost.HandleKind(client, "echo", func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
		ran <- job.ID
		return nil
	})
}

// acquaint has jobs run until all of n clients know of each other: each of them
// has told that nothing is left. It returns what stands for their kinds.
func acquaint(t *testing.T, pool *pgxpool.Pool, n int, ran <-chan int64) (kinds string) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), "LISTEN fencepost"); err != nil {
		t.Fatal(err)
	}
	met := make(map[string]bool)
	for deadline := time.Now().Add(2 * patience); len(met) < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d have told that nothing is left", len(met), n)
		}
		echoes(t, pool, 1)
		receive(t, ran, "a job")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		for ctx.Err() == nil {
			news, err := conn.WaitForNotification(ctx)
			if err != nil {
				break
			}
			if rest, ok := strings.CutPrefix(news.Payload, "drained:"); ok {
				f := strings.Split(rest, ":")
				kinds, met[f[4]] = f[3], true
			}
		}
		cancel()
	}
	return kinds
}

// echoes inserts jobs for one of the claimers, by one statement.
func echoes(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "INSERT INTO fencepost.jobs (kind) SELECT 'echo' FROM generate_series(1, $1)", n); err != nil {
		t.Fatal(err)
	}
}

// Eight idle processes hear every bell, and few of them claim.
func TestOneBellFewClaims(t *testing.T) {
	t.Parallel()
	pool, all, ran := claimers(t, 8, fencepost.Config{PollInterval: never})
	acquaint(t, pool, len(all), ran)
	claims := func() (n int64) {
		for _, c := range all {
			n += c.claims.Load()
		}
		return n
	}
	const jobs = 50
	var ids []int64
	var counted, made int64
	for range jobs {
		before, begin := claims(), time.Now()
		echoes(t, pool, 1)
		ids = append(ids, receive(t, ran, "a job"))
		slow := time.Since(begin) > 15*time.Millisecond
		time.Sleep(40 * time.Millisecond) // longer than anybody waits for his turn
		if !slow {                        // or the machine is so busy that news come after the last turn
			counted++
			made += claims() - before
		}
	}
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != jobs {
		t.Errorf("%d of %d jobs have run", n, jobs)
	}
	t.Logf("%d claims for %d jobs", made, counted)
	if made > 4*counted {
		t.Errorf("%d claims for %d jobs, by %d processes", made, counted, len(all))
	}
}

// With polling as good as off, and all processes but one frozen just before they
// claim, that one takes every job, whoever's turn it is.
func TestWhoseTurnItIsMayBeFrozen(t *testing.T) {
	t.Parallel()
	pool, all, ran := claimers(t, 4, fencepost.Config{PollInterval: never})
	acquaint(t, pool, len(all), ran)
	for _, c := range all[1:] {
		c.freeze(t)
	}
	var slowest time.Duration
	for range 30 {
		begin := time.Now()
		echoes(t, pool, 1)
		receive(t, ran, "a job")
		slowest = max(slowest, time.Since(begin))
	}
	t.Logf("the slowest of 30 jobs ran after %v", slowest)
	if slowest > 2*time.Second {
		t.Errorf("a job ran only after %v", slowest)
	}
}

// News that nothing is left, right behind the bell, from somebody who was there
// before: they are about other transactions, or about other kinds, so nobody
// believes them of this bell. That the test would see it, and what news that
// nobody has a right to send can do, is shown by such that do cover the bell: the
// job waits for a tick.
func TestWhatNewsSpareNoClaim(t *testing.T) {
	t.Parallel()
	pool, all, ran := claimers(t, 4, fencepost.Config{PollInterval: never})
	kinds := acquaint(t, pool, len(all), ran)
	for _, c := range all[1:] {
		c.freeze(t)
	}
	const everything, nothing = "9000000000000000000:9000000000000000000:", "3:3:"
	runs := func(snapshot, kinds string) time.Duration {
		t.Helper()
		begin := time.Now()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "INSERT INTO fencepost.jobs (kind) VALUES ('echo')"); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "SELECT pg_notify('fencepost', $1)", "drained:"+snapshot+":"+kinds+":0000000000000001:0:default"); err != nil {
			t.Fatal(err)
		}
		commit(t, tx)
		receive(t, ran, "a job")
		return time.Since(begin)
	}
	const tick = 1500 * time.Millisecond // none is sooner after a bell
	for range 30 {
		if d := runs(nothing, kinds); d > tick {
			t.Errorf("news of a snapshot in which the bell's transaction was not over: the job ran after %v", d)
		}
		if d := runs(everything, "0123456789abcdef"); d > tick {
			t.Errorf("news about other kinds: the job ran after %v", d)
		}
	}
	for range 50 {
		time.Sleep(2200 * time.Millisecond) // the tick after the last bell is over
		if runs(everything, kinds) > tick {
			return
		}
	}
	t.Error("the test does not see that news are believed")
}

// Bells of jobs, some of which are for one of two processes only, in all orders:
// nobody is spared a claim by one who cannot run the same. Without polling.
func TestOthersKindsSpareNoClaim(t *testing.T) {
	t.Parallel()
	pool, _, ran := claimers(t, 3, fencepost.Config{PollInterval: never})
	config, states := hearing(fencepost.Config{PollInterval: never})
	other := newClient(t, pool, config)
	echoInto(other, ran)
	_, release := hold(other)
	work(t, other)
	await(t, states, true)
	acquaint(t, pool, 3, ran)
	for range 40 {
		if _, err := pool.Exec(t.Context(), "INSERT INTO fencepost.jobs (kind) VALUES ('echo'), ('hold')"); err != nil {
			t.Fatal(err)
		}
		select {
		case release <- struct{}{}:
		case <-time.After(patience):
			t.Fatal("a job of a kind that one process alone can run was left")
		}
	}
}

// Without the bell of its own, a job that was inserted along with one that was
// due is known by who took that one, and by those whom he has told. So it starts
// in time even if he is gone by then.
func TestWhoIsSparedAClaimSetsItsAlarm(t *testing.T) {
	t.Parallel()
	queues := map[string]fencepost.Queue{"default": {}, "a": {}, "b": {}, "c": {}, "d": {}, "e": {}, "f": {}}
	pool, all, ran := claimers(t, 2, fencepost.Config{PollInterval: never, Queues: queues})
	acquaint(t, pool, len(all), ran)
	time.Sleep(2500 * time.Millisecond) // no tick follows soon after those of the bells
	begin := time.Now()
	for name := range queues {
		if _, err := pool.Exec(t.Context(), `INSERT INTO fencepost.jobs (kind, queue, run_at)
			SELECT 'echo', $1, clock_timestamp() + n * interval '1 second' FROM generate_series(0, 1) AS n`, name); err != nil {
			t.Fatal(err)
		}
	}
	for range queues {
		receive(t, ran, "a job")
	}
	all[0].freeze(t)
	for range queues {
		receive(t, ran, "a job that is due later")
	}
	if late := time.Since(begin) - time.Second; late > 900*time.Millisecond { // ticks come 2 s after the bells
		t.Errorf("the last job was %v late", late)
	}
}
