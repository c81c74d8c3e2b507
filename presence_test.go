package fencepost_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// terminate ends all sessions of a kind in the database of an admin's pool.
func terminate(t *testing.T, super *pgxpool.Pool, role string) int {
	t.Helper()
	return count(t, super, "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencepost ' || $1) AS x", role)
}

// live is how many workers hold their lock.
func live(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return count(t, pool, "SELECT count(*) FROM fencepost.workers AS w WHERE NOT pg_try_advisory_xact_lock_shared(w.tableoid::int4, w.lock_key)")
}

func lockKey(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return count(t, pool, "SELECT lock_key FROM fencepost.workers")
}

// A worker says in its row what it does, and takes the row away when it stops.
func TestAWorkerHasARow(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{Queues: map[string]fencepost.Queue{"a": {Slots: 3}, "b": {}}})
	client := newClient(t, pool, config)
	echo(client)
	stop := work(t, client)
	await(t, states, true)
	if n := count(t, pool, `SELECT count(*) FROM fencepost.workers WHERE queues = '{"a": 3, "b": 10}' AND kinds = '{echo}'`); n != 1 || live(t, pool) != 1 {
		t.Errorf("%d rows, %d locks; want one", n, live(t, pool))
	}
	if !client.Health().Locked {
		t.Error("the worker does not know that it has a lock")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, pool, "SELECT count(*) FROM fencepost.workers"); n != 0 {
		t.Errorf("%d rows are left behind", n)
	}
}

// With a job in hand and nothing else to do, a worker finds within a second
// that the connection with its lock is gone, and takes a new lock. So long as
// the job runs: also through a drain.
func TestALockThatIsLostIsTakenAnew(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never})
	client := newClient(t, pool, config)
	began, release := hold(client)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	t.Cleanup(stop)
	await(t, states, true)
	enqueue(t, client, fencepost.NewJob{Kind: "hold"})
	receive(t, began, "the job")
	super := admin(t, pool)
	time.Sleep(2500 * time.Millisecond) // no tick follows after that of the bell
	for _, when := range []string{"at work", "once more", "in a drain"} {
		if when == "in a drain" {
			stop()
			eventually(t, "the listener has stopped", func() bool {
				return count(t, pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencepost listener'") == 0
			})
		}
		before := lockKey(t, pool)
		if n := terminate(t, super, "exchange"); n != 1 {
			t.Fatalf("%d connections ended", n)
		}
		at := time.Now()
		eventually(t, when+": a new lock", func() bool { return live(t, pool) == 1 && lockKey(t, pool) != before })
		t.Logf("%s: a new lock after %v", when, time.Since(at))
	}
	close(release)
	if err := receive(t, ended, "the end of the drain"); err != nil {
		t.Error(err)
	}
	if n := count(t, pool, "SELECT count(*) FROM fencepost.finished WHERE status = 'done' AND attempts = 1"); n != 1 {
		t.Errorf("%d jobs are done, want 1", n)
	}
}

// A row that somebody has deleted is written again at the next tick.
func TestARowThatIsDeletedIsWrittenAgain(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{PollInterval: time.Second})
	echo(client)
	work(t, client)
	for range 2 {
		eventually(t, "the worker is registered", func() bool { return live(t, pool) == 1 })
		if _, err := pool.Exec(t.Context(), "DELETE FROM fencepost.workers"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the worker is registered", func() bool { return live(t, pool) == 1 })
}

// A role without rights on the table of workers, such as one that was made by
// hand for an earlier version, works on: leases tell, and the log says so
// once.
func TestWithoutRightsOnWorkersLeasesTell(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"ALL", "DELETE"} {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			_, pool := database(t)
			super := admin(t, pool)
			if _, err := super.Exec(t.Context(), "REVOKE "+missing+" ON fencepost.workers FROM "+workerRole); err != nil {
				t.Fatal(err)
			}
			var log logged
			config, states := hearing(fencepost.Config{PollInterval: time.Second, Lease: 2 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			client := newClient(t, pool, config)
			ran := echo(client)
			work(t, client)
			await(t, states, true)
			if _, err := pool.Exec(t.Context(), `
				WITH claimed AS (
					INSERT INTO fencepost.jobs (kind, status, attempts, lease_until, worker_id)
					VALUES ('echo', 'running', 1, clock_timestamp() - interval '1 second', 'dead')
					RETURNING id, lease_until, worker_id)
				INSERT INTO fencepost.claims (ids, look_at, worker_id) SELECT ARRAY[id], lease_until, worker_id FROM claimed`); err != nil {
				t.Fatal(err)
			}
			receive(t, ran, "a job whose lease was over")
			for range 3 { // each connection tries again
				terminate(t, super, "exchange")
				enqueue(t, client, fencepost.NewJob{Kind: "echo"})
				receive(t, ran, "a job")
			}
			if n := log.count("cannot watch others"); n != 1 {
				t.Errorf("it was said %d times that the process is not registered:\n%s", n, log.text.String())
			}
			if client.Health().Locked != (missing == "DELETE") {
				t.Errorf("locked: %v", client.Health().Locked)
			}
		})
	}
}

// Behind a pooler no lock is taken, which would stay with a session of
// somebody else: the worker is registered without one.
func TestBehindAPoolerLeasesTell(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	direct := pgtest.Pool(t, server.URL("postgres"))
	pool := pgtest.Pool(t, pgtest.Pooler(t, server, "transaction", 2)("postgres"))
	client := newClient(t, pool, fencepost.Config{PollInterval: time.Second})
	ran := echo(client)
	stop := work(t, client)
	enqueue(t, client, fencepost.NewJob{Kind: "echo"})
	receive(t, ran, "a job")
	if n := count(t, direct, "SELECT count(*) FROM fencepost.workers WHERE lock_key IS NULL"); n != 1 {
		t.Errorf("%d workers without a lock, want 1", n)
	}
	if n := count(t, direct, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n != 0 {
		t.Errorf("%d advisory locks are left with sessions of the pooler", n)
	}
	if client.Health().Locked {
		t.Error("the worker believes that it has a lock")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := count(t, direct, "SELECT count(*) FROM fencepost.workers"); n != 0 {
		t.Errorf("%d rows are left behind", n)
	}
}

// Processes that die one after the other, each before it has looked, do not
// fill the table: whoever registers sweeps.
func TestACrashLoopDoesNotFillTheTable(t *testing.T) {
	t.Parallel()
	dsn, watcher := database(t)
	if _, err := watcher.Exec(t.Context(), `INSERT INTO fencepost.workers (worker_id, lock_key, server_start, written_at)
		SELECT 'crashed ' || n, -n, pg_postmaster_start_time(), clock_timestamp() - interval '2 minutes' FROM generate_series(1, 50) AS n`); err != nil {
		t.Fatal(err)
	}
	sent := make(statements, 10_000)
	pool := traced(t, dsn, sent)
	client := newClient(t, pool, fencepost.Config{})
	echo(client)
	work(t, client)
	registered := false
	for sql := ""; !strings.Contains(sql, "DELETE FROM \"fencepost\".workers"); {
		sql = receive(t, sent, "a sweep").sql
		registered = registered || strings.Contains(sql, "INSERT INTO \"fencepost\".workers")
		if strings.Contains(sql, "pg_notify") {
			t.Fatal("the process looks before it sweeps")
		}
	}
	if !registered {
		t.Error("the process sweeps before it has registered")
	}
	eventually(t, "one row is left", func() bool { return count(t, watcher, "SELECT count(*) FROM fencepost.workers") == 1 })
}

// Somebody holds our row while we come back by another connection: until it has
// the new key we look dead. Registering is tried until it works, and whoever
// watches passes over a row that is held.
func TestARowThatIsHeldIsWrittenInTheEnd(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	super := admin(t, pool)
	began, causes := make(chan struct{}, 10), make(chan error, 10)
	held := newClient(t, pool, fencepost.Config{SoftStop: -1})
	fencepost.HandleKind(held, "hold", func(ctx context.Context, _ *fencepost.Job[json.RawMessage]) error {
		began <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	id := enqueue(t, held, fencepost.NewJob{Kind: "hold"})[0]
	work(t, held)
	receive(t, began, "the handler")
	watcher := newClient(t, pool, fencepost.Config{Queues: map[string]fencepost.Queue{"other": {}}})
	echo(watcher)
	work(t, watcher)
	eventually(t, "both have a lock", func() bool { return live(t, pool) == 2 })

	tx, err := super.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var worker string
	if err := tx.QueryRow(t.Context(), `SELECT w.worker_id FROM fencepost.workers AS w
		WHERE w.worker_id = (SELECT j.worker_id FROM fencepost.jobs AS j WHERE j.id = $1) FOR UPDATE`, id).Scan(&worker); err != nil {
		t.Fatal(err)
	}
	count(t, super, `SELECT count(*) FROM (SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l JOIN fencepost.workers AS w
		ON l.locktype = 'advisory' AND l.classid = w.tableoid AND l.objid = w.lock_key::oid AND l.granted
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		WHERE w.worker_id = $1) AS x`, worker)
	time.Sleep(5 * time.Second) // longer than the grace, and than one attempt may wait
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both have a lock again", func() bool { return live(t, pool) == 2 })
	select {
	case cause := <-causes:
		t.Errorf("the handler of a live worker was cancelled: %v", cause)
	case <-time.After(3 * time.Second): // a look or more
	}
	if job, err := held.Get(t.Context(), id); err != nil || job.Status != fencepost.StatusRunning || job.Attempts != 1 {
		t.Errorf("the job: %+v, %v", job, err)
	}
}

// A registration that fails without a wait, as on a disk that is full, is
// repeated at a pace.
func TestARegistrationThatFailsAtOnceIsPaced(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	super := admin(t, pool)
	client := newClient(t, pool, fencepost.Config{})
	echo(client)
	work(t, client)
	eventually(t, "it has a lock", func() bool { return live(t, pool) == 1 })
	for _, sql := range []string{
		`CREATE FUNCTION public.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = 'disk_full'; END $$`,
		"CREATE TRIGGER no_space BEFORE INSERT ON fencepost.workers FOR EACH ROW EXECUTE FUNCTION public.full()",
	} {
		if _, err := super.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	// Each attempt takes a key.
	key := func() int { return count(t, super, "SELECT last_value FROM fencepost.worker_keys") }
	before := key()
	terminate(t, super, "exchange")
	enqueue(t, client, fencepost.NewJob{Kind: "echo"}) // so that the loss is noticed
	eventually(t, "two attempts", func() bool { return key() >= before+2 })
	before = key()
	const span = 4 * time.Second
	time.Sleep(span)
	if n := key() - before; n < 2 || n > 6 {
		t.Errorf("%d attempts in %v, want about one a second", n, span)
	}
	if _, err := super.Exec(t.Context(), "DROP TRIGGER no_space ON fencepost.workers"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has a lock again", func() bool { return live(t, pool) == 1 })
}
