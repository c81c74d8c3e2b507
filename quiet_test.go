package fencepost_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// promisedNow asks whether somebody has promised to look into the default queue.
const promisedNow = `SELECT count(*) FROM fencepost.queues
	WHERE name = 'default' AND fencepost.promised(quiet_slot) > extract(epoch FROM clock_timestamp()) * 1000000`

// quietJobs registers a handler of kind "quiet" that counts, and waits for the
// gate if there is one.
func quietJobs(client *fencepost.Client, gate <-chan struct{}) *atomic.Int64 {
	ran := new(atomic.Int64)
	fencepost.HandleKind(client, "quiet", func(ctx context.Context, _ *fencepost.Job[struct{}]) error {
		if gate != nil {
			select {
			case <-gate:
			case <-ctx.Done():
			}
		}
		ran.Add(1)
		return nil
	})
	return ran
}

// quietPool is a pool of a producer in a hurry.
func quietPool(t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config := pool.Config()
	config.MaxConns = 8
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	hasty, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hasty.Close)
	return hasty
}

const aQuietJob = "INSERT INTO fencepost.jobs (kind) VALUES ('quiet')"

// flood inserts jobs one by one, as fast as it can, until the condition holds.
func flood(t *testing.T, pool *pgxpool.Pool, what string, holds func() bool) {
	t.Helper()
	done := make(chan struct{})
	var producers sync.WaitGroup
	for range 4 {
		producers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := pool.Exec(t.Context(), aQuietJob); err != nil {
					if t.Context().Err() == nil {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	defer producers.Wait()
	defer close(done)
	eventually(t, what, holds)
}

func floodUntilPromised(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	flood(t, pool, "a promise", func() bool { return count(t, pool, promisedNow) == 1 })
}

// silently begins a transaction that inserts a job without a bell, since a
// promise holds, and leaves it open.
func silently(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // of a test that failed
		var silent bool
		if _, err := tx.Exec(t.Context(), aQuietJob); err != nil {
			t.Fatal(err)
		}
		// Who was silent holds the lock of the slot.
		if err := tx.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
			AND classid = 'fencepost.queues'::regclass)`).Scan(&silent); err != nil {
			t.Fatal(err)
		}
		if silent {
			return tx
		}
		_ = tx.Rollback(t.Context())
	}
	t.Fatal("no job was inserted in silence")
	return nil
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func noneLeft(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	eventually(t, "every job ends", func() bool { return count(t, pool, "SELECT count(*) FROM fencepost.jobs") == 0 })
}

// asleep waits until nobody has anything to end.
func asleep(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	eventually(t, "the promise is revoked", func() bool {
		return count(t, pool, "SELECT coalesce(sum(fencepost.promised(quiet_slot)), 0) FROM fencepost.queues WHERE quiet_slot IS NOT NULL") == 0
	})
}

// A queue that is busy falls silent, and the jobs are found all the same; when
// it is not busy any more it rings again. With polling as good as off.
func TestABusyQueueFallsSilent(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never, Queues: map[string]fencepost.Queue{"default": {Slots: 50}}})
	client := newClient(t, pool, config)
	quietJobs(client, nil)
	work(t, client)
	await(t, states, true)
	hasty := quietPool(t, pool)
	for range 3 {
		floodUntilPromised(t, hasty)
		commit(t, silently(t, hasty, pgx.ReadCommitted))
		noneLeft(t, pool)
		asleep(t, pool)
		if _, err := hasty.Exec(t.Context(), aQuietJob); err != nil {
			t.Fatal(err)
		}
		noneLeft(t, pool)
	}
}

// Transactions that were silent and are still open when the promise ends are
// waited for, however long they take.
func TestSilentTransactionsOutliveThePromise(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never, Queues: map[string]fencepost.Queue{"default": {Slots: 50}}})
	client := newClient(t, pool, config)
	quietJobs(client, nil)
	work(t, client)
	await(t, states, true)
	hasty := quietPool(t, pool)
	floodUntilPromised(t, hasty)
	first, second := silently(t, hasty, pgx.RepeatableRead), silently(t, hasty, pgx.ReadCommitted)
	noneLeft(t, pool)
	asleep(t, pool)
	time.Sleep(3 * time.Second) // until every look of the guard is over
	commit(t, first)
	noneLeft(t, pool)
	commit(t, second)
	noneLeft(t, pool)
}

// byHand promises as a process does that dies at once.
func byHand(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	table := claim.In(fencepost.DefaultSchema)
	if err := table.Seat(t.Context(), pool, "default"); err != nil {
		t.Fatal(err)
	}
	p, err := table.Promise(t.Context(), pool, claim.Request{Queue: "default"}, "one that dies", 2*time.Second, 0)
	if err != nil || p.Until == 0 {
		t.Fatal(p, err)
	}
}

// The process that has promised is gone. Another one sees to what was inserted
// in silence: also to transactions that are open still, and if it was started
// only after that, and has not heard of the promise.
func TestThePromiseOfADeadProcess(t *testing.T) {
	t.Parallel()
	for _, started := range []string{"before", "after"} {
		t.Run("another one started "+started, func(t *testing.T) {
			t.Parallel()
			_, pool := database(t)
			config, states := hearing(fencepost.Config{PollInterval: never})
			client := newClient(t, pool, config)
			ran := quietJobs(client, nil)
			if started == "before" {
				work(t, client)
				await(t, states, true)
			}
			byHand(t, pool)
			at := time.Now()
			commit(t, silently(t, pool, pgx.ReadCommitted))
			open := silently(t, pool, pgx.RepeatableRead)
			if started == "after" {
				work(t, client)
				await(t, states, true)
			}
			eventually(t, "the job that was committed runs", func() bool { return ran.Load() == 1 })
			if took := time.Since(at); took > 5*time.Second {
				t.Errorf("it ran %v after the promise", took)
			}
			time.Sleep(time.Until(at.Add(6 * time.Second))) // no tick comes any more
			commit(t, open)
			eventually(t, "the job of the open transaction runs", func() bool { return ran.Load() == 2 })
			asleep(t, pool)
		})
	}
}

// A process that stops leaves what it has promised to another.
func TestAStoppedProcessLeavesItsPromise(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	busy, gate := fencepost.Config{PollInterval: never, Queues: map[string]fencepost.Queue{"default": {Slots: 1}}}, make(chan struct{})
	busy, busyHears := hearing(busy)
	other := newClient(t, pool, busy)
	quietJobs(other, gate)
	work(t, other)
	await(t, busyHears, true)
	enqueue(t, newClient(t, pool, fencepost.Config{}), fencepost.NewJob{Kind: "quiet"})
	eventually(t, "the other one is busy", func() bool {
		return count(t, pool, "SELECT count(*) FROM fencepost.jobs WHERE status = 'running'") == 1
	})

	config, states := hearing(fencepost.Config{PollInterval: never, Queues: map[string]fencepost.Queue{"default": {Slots: 50}}})
	client := newClient(t, pool, config)
	quietJobs(client, nil)
	stop := work(t, client)
	await(t, states, true)
	hasty := quietPool(t, pool)
	floodUntilPromised(t, hasty)
	open := silently(t, hasty, pgx.ReadCommitted)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	close(gate)
	noneLeft(t, pool)
	time.Sleep(6 * time.Second) // no tick comes any more
	commit(t, open)
	noneLeft(t, pool)
	asleep(t, pool)
}

// Who has promised and has no slot free any more keeps no job from others that
// have.
func TestAFullProcessKeepsNoJobFromOthers(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never, Queues: map[string]fencepost.Queue{"default": {Slots: 5}}, SoftStop: -1})
	full := newClient(t, pool, config)
	var blocked atomic.Bool
	fencepost.HandleKind(full, "quiet", func(ctx context.Context, _ *fencepost.Job[struct{}]) error {
		if blocked.Load() {
			<-ctx.Done()
		}
		return nil
	})
	work(t, full)
	await(t, states, true)
	hasty := quietPool(t, pool)
	floodUntilPromised(t, hasty)

	config, states = hearing(fencepost.Config{PollInterval: never})
	free := newClient(t, pool, config)
	ran := quietJobs(free, nil)
	work(t, free)
	await(t, states, true)
	bells, promises := listenIn(t, pool)
	// Until the one who promises knows of the other.
	flood(t, hasty, "a promise is renewed", func() bool { return promises.Load() > 1 })
	blocked.Store(true)
	had := bells.Load()
	flood(t, hasty, "the free process is told", func() bool { return bells.Load() > had })
	before := ran.Load()
	flood(t, hasty, "the free process works", func() bool { return ran.Load() > before+500 })
	eventually(t, "only what is blocked is left", func() bool {
		return count(t, pool, "SELECT count(*) FROM fencepost.jobs WHERE status = 'ready'") == 0
	})
}

// listenIn counts the bells and the promises that are heard from now on.
func listenIn(t *testing.T, pool *pgxpool.Pool) (bells, promises *atomic.Int64) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "LISTEN fencepost"); err != nil {
		t.Fatal(err)
	}
	bells, promises = new(atomic.Int64), new(atomic.Int64)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			n, err := conn.WaitForNotification(ctx)
			switch {
			case err != nil:
				return
			case strings.HasPrefix(n.Payload, "1:"):
				bells.Add(1)
			case strings.HasPrefix(n.Payload, "quiet:"):
				promises.Add(1)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = conn.Close(context.Background())
	})
	return bells, promises
}

// A role that may not promise works as ever, says so once, and bells ring.
func TestWhoMayNotPromise(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	if _, err := admin(t, pool).Exec(t.Context(), "REVOKE EXECUTE ON FUNCTION fencepost.promise(integer, bigint) FROM "+workerRole); err != nil {
		t.Fatal(err)
	}
	var log logged
	config, states := hearing(fencepost.Config{PollInterval: never, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	client := newClient(t, pool, config)
	ran := quietJobs(client, nil)
	work(t, client)
	await(t, states, true)
	hasty := quietPool(t, pool)
	flood(t, hasty, "it is said", func() bool { return log.count("bells always ring") > 0 })
	flood(t, hasty, "many more jobs", func() bool { return ran.Load() > 500 })
	noneLeft(t, pool)
	if n := log.count("bells always ring"); n != 1 {
		t.Errorf("it is said %d times", n)
	}
}

// The bell can be set: always, and never, when jobs wait for the poll.
func TestSetBell(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never})
	client := newClient(t, pool, config)
	ran := quietJobs(client, nil)
	work(t, client)
	await(t, states, true)
	set := func(bell fencepost.Bell) {
		t.Helper()
		if err := client.SetBell(t.Context(), "default", bell); err != nil {
			t.Fatal(err)
		}
		queues, err := client.Queues(t.Context())
		if err != nil || len(queues) != 1 || queues[0].Bell != bell {
			t.Errorf("queues: %+v, %v; want bell %s", queues, err, bell)
		}
	}
	set(fencepost.BellNever)
	time.Sleep(3 * time.Second) // until every look of the guard is over
	if _, err := pool.Exec(t.Context(), aQuietJob); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if n := ran.Load(); n != 0 {
		t.Errorf("%d jobs ran without a bell", n)
	}
	set(fencepost.BellAlways) // which rings for what waits
	noneLeft(t, pool)
	flood(t, quietPool(t, pool), "many jobs", func() bool { return ran.Load() > 1000 })
	noneLeft(t, pool)
	if n := count(t, pool, promisedNow); n != 0 {
		t.Error("a promise for a queue that always rings")
	}
	for name, bell := range map[string]fencepost.Bell{"": fencepost.BellAuto, "default": "sometimes"} {
		if err := client.SetBell(t.Context(), name, bell); err == nil {
			t.Errorf("SetBell(%q, %q): no error", name, bell)
		}
	}
}

// Promises are made and ended through a pooler that shares sessions, by a
// process that hears; one that is deaf makes none.
func TestPromisesBehindPgBouncer(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	direct := super(t, server)
	pooled := pgtest.Pooler(t, server, "transaction", 10)("postgres")
	for _, hears := range []bool{false, true} {
		t.Run("hearing "+strconv.FormatBool(hears), func(t *testing.T) {
			config, states := hearing(fencepost.Config{PollInterval: never, Queues: map[string]fencepost.Queue{"default": {Slots: 50}}})
			if hears {
				var err error
				if config.ListenConfig, err = pgx.ParseConfig(server.URL("postgres")); err != nil {
					t.Fatal(err)
				}
			}
			client := newClient(t, pgtest.Pool(t, pooled), config)
			ran := quietJobs(client, nil)
			stop := work(t, client)
			await(t, states, hears)
			hasty := quietPool(t, direct)
			if !hears {
				flood(t, hasty, "many jobs", func() bool { return ran.Load() > 500 })
				if n := count(t, direct, promisedNow); n != 0 {
					t.Error("a deaf process has promised")
				}
			} else {
				floodUntilPromised(t, hasty)
				open := silently(t, hasty, pgx.RepeatableRead)
				noneLeft(t, direct)
				asleep(t, direct)
				commit(t, open)
			}
			noneLeft(t, direct)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
