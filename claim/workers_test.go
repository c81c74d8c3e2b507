package claim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

// register registers a worker on a connection of its own, which is returned.
func (b *bench) register(id string) *pgx.Conn {
	b.t.Helper()
	conn := b.connect()
	b.registerOn(conn, id)
	return conn
}

func (b *bench) registerOn(db claim.DB, id string) claim.Presence {
	b.t.Helper()
	p, err := b.Register(b.ctx, db, claim.Worker{ID: id}, true)
	if err != nil || !p.Locked {
		b.t.Fatalf("register %s: %+v, %v", id, p, err)
	}
	return p
}

// hangUp ends a session and waits until its locks are gone.
func (b *bench) hangUp(conn *pgx.Conn) {
	b.t.Helper()
	pid := conn.PgConn().PID()
	if err := conn.Close(b.ctx); err != nil {
		b.t.Fatal(err)
	}
	for ask[bool](b, "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1::int AND locktype = 'advisory')", int(pid)) {
		time.Sleep(time.Millisecond)
	}
}

// isFree says whether nobody holds the lock of a worker's row.
func (b *bench) isFree(id string) bool {
	b.t.Helper()
	return ask[bool](b, "SELECT pg_try_advisory_xact_lock_shared(w.tableoid::int4, w.lock_key) FROM {{schema}}.workers AS w WHERE w.worker_id = $1::text", id)
}

// A registered worker's lock is held as long as its session lives, and each
// registration has a key of its own, in any schema and mode.
func TestRegisteredWorkerHoldsALock(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{schema, awkward, `it's \ "x"`} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			b := setUpIn(t, schema)
			config := b.conn.Config()
			config.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(b.ctx, config)
			if err != nil {
				t.Fatal(err)
			}
			worker := claim.Worker{ID: "w", Version: "v1", Queues: map[string]int{"a": 3}, Kinds: []string{"k"}, Age: time.Hour}
			first, err := b.Register(b.ctx, conn, worker, true)
			if err != nil || !first.Locked {
				t.Fatalf("%v: %+v, %v", mode, first, err)
			}
			expect(b, true, `SELECT version = 'v1' AND queues = '{"a": 3}' AND kinds = '{k}' AND lock_key = $1::int AND server_start = pg_postmaster_start_time()
				AND started_at BETWEEN clock_timestamp() - interval '61 minutes' AND clock_timestamp() - interval '59 minutes' FROM {{schema}}.workers`, int(first.Key))
			if b.isFree("w") {
				t.Errorf("%v: the lock of a live session is free", mode)
			}
			b.hangUp(conn)
			if !b.isFree("w") {
				t.Errorf("%v: the lock outlives its session", mode)
			}

			again := b.connect()
			second, err := b.Register(b.ctx, again, claim.Worker{ID: "w"}, true)
			if err != nil || !second.Locked || second.Key == first.Key {
				t.Errorf("%v: registered again: %+v after %+v, %v", mode, second, first, err)
			}
			expect(b, true, `SELECT queues = '{}' AND kinds IS NULL AND started_at < clock_timestamp() - interval '59 minutes'
				AND written_at > clock_timestamp() - interval '1 minute' FROM {{schema}}.workers`)
			if b.isFree("w") {
				t.Errorf("%v: the lock of the second session is free", mode)
			}
			if err := b.Unregister(b.ctx, again, "w"); err != nil {
				t.Error(err)
			}
			expect(b, int64(0), "SELECT count(*) FROM {{schema}}.workers")
		}
	}
}

// A key that somebody holds is passed over, and a worker that finds none is
// registered without a lock rather than with somebody else's: that one would
// vouch for it after its death. Nobody waits.
func TestRegisterPassesOverKeysThatAreHeld(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	hold := func(n int) {
		t.Helper()
		b.exec(`SELECT pg_advisory_lock('{{schema}}.workers'::regclass::oid::int4, (last_value + n)::int) FROM {{schema}}.worker_keys, generate_series(1, $1::int) AS n`, n)
	}
	b.register("before") // the sequence has a last value
	hold(2)
	conn := b.connect()
	if p := b.registerOn(conn, "w"); b.isFree("w") {
		t.Errorf("the lock of %+v is free", p)
	}
	expect(b, int64(1), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1::int", int(conn.PgConn().PID()))

	hold(100)
	p, err := b.Register(b.ctx, b.connect(), claim.Worker{ID: "unlucky"}, true)
	if err == nil || p.Locked {
		t.Errorf("registered with a lock of somebody else: %+v, %v", p, err)
	}
	expect(b, true, "SELECT lock_key IS NULL FROM {{schema}}.workers WHERE worker_id = 'unlucky'")
}

// Behind a pooler no lock is left with a session of somebody else.
func TestRegisterWithoutLocks(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	p, err := b.Register(b.ctx, b.conn, claim.Worker{ID: "w"}, false)
	if err != nil || p.Locked {
		t.Errorf("%+v, %v", p, err)
	}
	expect(b, true, "SELECT lock_key IS NULL AND server_start IS NULL FROM {{schema}}.workers")
	expect(b, int64(0), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
}

// Rows of workers that are gone are swept, in batches; those of workers that
// live, or may, or that hold jobs, stay. A tick says that there are some.
func TestSweep(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		swept string
	}{
		"as it is":  {nil, "gone, lockless, robbed"},
		"living":    {[]string{"THEN pg_try_advisory_xact_lock_shared(s.tableoid::integer, s.lock_key) END", "THEN true END"}, "gone, lives, lockless, robbed"},
		"holders":   {[]string{"WHEN s.worker_id IN (SELECT h.worker_id FROM holders AS h) THEN false", "WHEN false THEN false"}, "gone, holds, lockless, lockless holds, robbed"},
		"by claims": {[]string{"AND j.worker_id = c.worker_id\n", "\n"}, "gone, lockless"},
		"just gone": {[]string{"WHEN s.written_at < (SELECT clock_timestamp()) - interval '1 minute'", "ELSE CASE WHEN true", "s.lock_key) END\n    LIMIT", "s.lock_key) END END\n    LIMIT"}, "gone, just gone, lockless, robbed"},
		"lockless":  {[]string{"THEN s.written_at < (SELECT clock_timestamp()) - interval '10 minutes'", "THEN true"}, "gone, lockless, lockless lives, robbed"},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLSweep, test.edits...))
			for _, id := range []string{"gone", "just gone", "holds", "robbed"} {
				b.hangUp(b.register(id))
			}
			b.register("lives")
			for _, id := range []string{"lockless", "lockless lives", "lockless holds"} {
				if _, err := b.Register(b.ctx, b.conn, claim.Worker{ID: id}, false); err != nil {
					t.Fatal(err)
				}
			}
			b.exec("UPDATE {{schema}}.workers SET written_at = clock_timestamp() - interval '61 seconds' WHERE worker_id <> 'just gone'")
			b.exec("UPDATE {{schema}}.workers SET written_at = clock_timestamp() - interval '601 seconds' WHERE worker_id IN ('lockless', 'lockless holds')")
			b.insert(1) // a job that others run by now, which is in a claim still
			b.claimAs("robbed", 1, over)
			b.tick()
			b.makeDue()
			b.claimFor("somebody", 1)
			for _, id := range []string{"holds", "lockless holds"} {
				b.insert(1)
				if c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 1}, lease, id); err != nil || len(c.Rows) != 1 {
					t.Fatal(c, err)
				}
			}
			if !b.tick().Stale {
				t.Error("the tick does not say that there are rows to be swept")
			}
			before := ask[[]string](b, "SELECT array_agg(worker_id ORDER BY worker_id) FROM {{schema}}.workers")
			n, err := b.Sweep(b.ctx, b.conn)
			after := ask[[]string](b, "SELECT array_agg(worker_id ORDER BY worker_id) FROM {{schema}}.workers")
			swept := slices.DeleteFunc(before, func(id string) bool { return slices.Contains(after, id) })
			if got := join(swept); err != nil || n != len(swept) || got != test.swept {
				t.Errorf("swept %d, %v: %s; want %s", n, err, got, test.swept)
			}
			if name == "as it is" && b.tick().Stale {
				t.Error("the tick says that there are rows to be swept when there are none")
			}
		})
	}

	b := healthy.fresh(t)
	b.exec(`INSERT INTO {{schema}}.workers (worker_id, lock_key, server_start, written_at)
		SELECT 'worker ' || n, -n, pg_postmaster_start_time(), clock_timestamp() - interval '1 hour' FROM generate_series(1, $1::int) AS n`, claim.SweepBatch+7)
	for _, want := range []int{claim.SweepBatch, 7, 0} {
		if n, err := b.Sweep(b.ctx, b.conn); err != nil || n != want {
			t.Errorf("swept %d, %v; want %d", n, err, want)
		}
	}
}

// A sweep passes over a row that its worker is writing again.
func TestSweepPassesOverRowsInUse(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		waits bool
	}{
		"as it is": {nil, false},
		"waits":    {[]string{"FOR UPDATE SKIP LOCKED", "FOR UPDATE"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLSweep, test.edits...))
			b.hangUp(b.register("w"))
			b.exec("UPDATE {{schema}}.workers SET written_at = clock_timestamp() - interval '1 hour'")
			tx := b.open()
			b.registerOn(tx, "w")
			sweeper := b.connect()
			sweeping := answerOrWait(b, sweeper, func() (int, error) { return b.Sweep(b.ctx, sweeper) })
			if waits := len(sweeping) == 0; waits != test.waits {
				t.Errorf("waits: %v, want %v", waits, test.waits)
			}
			b.commit(tx)
			if a := <-sweeping; a.value != 0 {
				t.Errorf("swept %d, %v", a.value, a.err)
			}
		})
	}
}
