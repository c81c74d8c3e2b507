package claim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

func join(words []string) string { return strings.Join(words, ", ") }

// watch is a tick of a registered worker that takes the given ones for dead.
func (b *bench) watch(dead ...claim.Suspect) claim.Ticked {
	b.t.Helper()
	return b.watchOn(b.conn, dead...)
}

func (b *bench) watchOn(db claim.DB, dead ...claim.Suspect) claim.Ticked {
	b.t.Helper()
	ticked, err := b.Tick(b.ctx, db, claim.TickRequest{
		Queues: []string{queue}, Reap: true, Worker: "watcher", Dead: dead, Own: "own", Token: "token",
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return ticked
}

// working registers a worker that has claimed n new jobs.
func (b *bench) working(id string, n int) *pgx.Conn {
	b.t.Helper()
	conn := b.register(id)
	b.insert(n)
	b.claimFor(id, n)
	return conn
}

func (b *bench) claimFor(id string, n int) {
	b.t.Helper()
	if c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: n}, lease, id); err != nil || len(c.Rows) != n {
		b.t.Fatalf("claimed %d of %d, %v", len(c.Rows), n, err)
	}
}

// suspect is the row of a worker as a look at it would name it.
func (b *bench) suspect(id string) claim.Suspect {
	b.t.Helper()
	return claim.Suspect{Worker: id, Key: ask[int32](b, "SELECT lock_key FROM {{schema}}.workers WHERE worker_id = $1::text", id)}
}

// A worker that holds jobs and whose session has ended is seen, and when the
// caller says that it is dead its jobs come back without waiting for the
// lease, each as a failed attempt: the first one after half a second at most,
// later ones by the curve, the last one as dead. Others keep theirs.
func TestADeadWorkersJobsComeBack(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		wrong string
	}{
		"as it is":   {nil, ""},
		"no pause":   {[]string{"THEN 0.1\n", "THEN power(2, 0)\n"}, "first"},
		"every time": {[]string{"CASE WHEN j.attempts = 1 AND j.worker_id", "CASE WHEN j.worker_id"}, "second"},
		"not buried": {[]string{"SELECT l.id FROM l WHERE l.attempts >= l.max_attempts", "SELECT l.id FROM l WHERE false"}, "last"},
		"everybody": {[]string{
			"OR c.worker_id = ANY (ARRAY(SELECT d.worker_id FROM dead AS d))\n          AND", "OR (SELECT count(*) FROM dead) > 0\n          AND",
			"OR j.worker_id = ANY (ARRAY(SELECT d.worker_id FROM dead AS d)))\n    ORDER", "OR (SELECT count(*) FROM dead) > 0)\n    ORDER",
		}, "alive"},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			first := b.insertOne("attempts, max_attempts", "0, 20")
			second := b.insertOne("attempts, max_attempts", "1, 20")
			last := b.insertOne("attempts, max_attempts", "2, 3")
			conn := b.register("dead")
			b.claimFor("dead", 3)
			fence := ask[int64](b, "SELECT fence FROM {{schema}}.jobs WHERE id = $1::bigint", first)
			b.working("alive", 1)
			if ticked := b.watch(); len(ticked.Silent) > 0 || !ticked.Others {
				t.Errorf("a tick says of two live workers %+v", ticked)
			}
			b.hangUp(conn)
			ticked := b.watch()
			suspect := b.suspect("dead")
			if !slices.Equal(ticked.Silent, []claim.Suspect{suspect}) || ticked.Reaped != 0 {
				t.Fatalf("silent are %+v, want %+v; reaped %d", ticked.Silent, suspect, ticked.Reaped)
			}

			before := ask[time.Time](b, "SELECT clock_timestamp()")
			ticked = b.watch(suspect)
			if died := []claim.Died{{Worker: "dead", Jobs: 3}}; name == "as it is" && (!slices.Equal(ticked.Died, died) || ticked.Reaped != 3) {
				t.Errorf("died %+v, want %+v; reaped %d", ticked.Died, died, ticked.Reaped)
			}
			after := ask[time.Time](b, "SELECT clock_timestamp()")
			wrong := make(map[string]bool)
			within := func(id int64, least, most time.Duration) bool {
				at := ask[time.Time](b, "SELECT run_at FROM {{schema}}.jobs WHERE id = $1::bigint", id)
				return !at.Before(before.Add(least)) && !at.After(after.Add(most))
			}
			wrong["first"] = !within(first, 80*time.Millisecond, 500*time.Millisecond)
			wrong["second"] = !within(second, 1600*time.Millisecond, 2400*time.Millisecond)
			wrong["last"] = ask[int64](b, "SELECT count(*) FROM {{schema}}.finished WHERE id = $1::bigint AND status = 'dead' AND last_error = 'worker dead died in attempt 3 of 3, the last one'", last) != 1
			wrong["alive"] = ask[int64](b, "SELECT count(*) FROM {{schema}}.jobs WHERE worker_id = 'alive' AND status = 'running'") != 1
			for what, is := range wrong {
				if is != (what == test.wrong) {
					t.Errorf("the job of the %s attempt is wrong: %v", what, is)
				}
			}
			expect(b, true, "SELECT status = 'ready' AND attempts = 1 AND fence > $2::bigint AND last_error = 'worker dead died in attempt 1 of 20' FROM {{schema}}.jobs WHERE id = $1::bigint", first, fence)
			if name == "as it is" {
				if ticked := b.watch(suspect); ticked.Reaped != 0 || len(ticked.Silent) > 0 {
					t.Errorf("a dead worker without jobs: %+v", ticked)
				}
			}
		})
	}
}

// Who is taken for dead, and is not, keeps his jobs: one that holds his lock;
// one that has registered again, before the look or while it is made. And
// nobody waits for the row of a worker.
func TestWhoIsNotDeadKeepsHisJobs(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	const (
		lives  = "holds its lock"
		back   = "is back under another key"
		coming = "is registering again at the moment"
	)
	locking := "AND pg_try_advisory_xact_lock_shared(w.tableoid::integer, d.lock_key)\n    FOR UPDATE OF w SKIP LOCKED"
	for name, test := range map[string]struct {
		edits []string
		harms []string
		waits bool
	}{
		"as it is":   {nil, nil, false},
		"any key":    {[]string{"AND w.lock_key = d.lock_key\n", "\n"}, []string{back}, false},
		"not free":   {[]string{locking, "FOR UPDATE OF w SKIP LOCKED"}, []string{lives}, false},
		"not locked": {[]string{locking, strings.TrimSuffix(locking, "FOR UPDATE OF w SKIP LOCKED")}, []string{coming}, false},
		"waits":      {[]string{locking, strings.TrimSuffix(locking, " SKIP LOCKED")}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, who := range []string{lives, back, coming} {
				b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
				conn := b.working("w", 2)
				suspect := b.suspect("w")
				tx := b.open()
				if who != lives {
					b.hangUp(conn)
				}
				if who != lives && !slices.Equal(b.watch().Silent, []claim.Suspect{suspect}) {
					t.Fatal("the worker is not silent")
				}
				switch who {
				case back:
					b.register("w")
				case coming:
					b.registerOn(tx, "w")
				}
				watcher := b.connect()
				watching := answerOrWait(b, watcher, func() (claim.Ticked, error) {
					return b.Tick(b.ctx, watcher, claim.TickRequest{
						Queues: []string{queue}, Reap: true, Worker: "watcher", Dead: []claim.Suspect{suspect}, Own: "own", Token: "token",
					})
				})
				if waits := len(watching) == 0; waits != (test.waits && who == coming) {
					t.Errorf("%s: waits for its row: %v", who, waits)
				}
				b.commit(tx)
				ticked := <-watching
				if ticked.err != nil {
					t.Fatal(ticked.err)
				}
				harmed := ask[int64](b, "SELECT count(*) FROM {{schema}}.jobs WHERE status = 'ready'") > 0 || len(ticked.value.Died) > 0
				if harmed != slices.Contains(test.harms, who) {
					t.Errorf("a worker that %s loses its jobs: %v", who, harmed)
				}
			}
		})
	}
}

// The caller does not bury itself, whatever it says.
func TestATickSparesItsOwnWorker(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		want  int
	}{
		"as it is": {nil, 0},
		"unspared": {[]string{"WHERE w.worker_id <> $10::text\n      AND pg_try", "WHERE pg_try"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			conn := b.working("watcher", 1)
			if ticked := b.watchOn(conn, b.suspect("watcher")); ticked.Reaped != test.want || !ticked.Registered || ticked.Others {
				t.Errorf("%+v", ticked)
			}
		})
	}
}

// A clock that has stepped makes leases doubtful, not deaths: those of a dead
// worker come back, whether their lease seems to be over or not.
func TestADeathIsNoMatterOfTheClock(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	conn := b.working("dead", 2)
	b.expire("id = (SELECT min(id) FROM {{schema}}.jobs)")
	b.working("alive", 1)
	b.expire("worker_id = 'alive'")
	b.hangUp(conn)
	ticked, err := b.Tick(b.ctx, b.conn, claim.TickRequest{
		Queues: []string{queue}, Reap: false, Worker: "watcher", Dead: []claim.Suspect{b.suspect("dead")}, Own: "own", Token: "token",
	})
	if err != nil || ticked.Reaped != 2 || !slices.Equal(ticked.Died, []claim.Died{{Worker: "dead", Jobs: 2}}) {
		t.Errorf("%+v, %v", ticked, err)
	}
	expect(b, "running", "SELECT status FROM {{schema}}.jobs WHERE worker_id = 'alive'")
}

// Many jobs of a dead worker come back in batches, next to those whose lease
// is over: all of them, and no more at a time than a batch.
func TestADeadWorkersJobsComeBackInBatches(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	conn := b.working("dead", claim.ReapBatch+10)
	b.insert(20)
	b.take(20, over)
	b.hangUp(conn)
	suspect := b.suspect("dead")
	var reaped, died []int
	for range 3 {
		ticked := b.watch(suspect)
		reaped = append(reaped, ticked.Reaped)
		for _, d := range ticked.Died {
			died = append(died, d.Jobs)
		}
	}
	if got := fmt.Sprint(reaped, died); got != fmt.Sprint([]int{claim.ReapBatch, 30, 0}, []int{claim.ReapBatch - 20, 30}) {
		t.Errorf("reaped, died: %s", got)
	}
}

// A job that the database does not let end holds up no other of its worker's.
func TestADeadWorkersJobThatCannotEnd(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	held := b.insertOne("max_attempts", "1")
	conn := b.working("dead", 3)
	b.claimFor("dead", 1)
	b.exec("CREATE TABLE public.mine (job bigint REFERENCES {{schema}}.jobs (id))")
	b.exec("INSERT INTO public.mine VALUES ($1::bigint)", held)
	b.hangUp(conn)
	ticked := b.watch(b.suspect("dead"))
	if ticked.Refused == nil || ticked.Reaped != 3 || !slices.Equal(ticked.Died, []claim.Died{{Worker: "dead", Jobs: 3}}) {
		t.Errorf("%+v", ticked)
	}
	expect(b, held, "SELECT id FROM {{schema}}.jobs WHERE status = 'running'")
}

// Nor does it keep the next ones of its worker's claims from their turn, or a
// process busy.
func TestADeadWorkersNextClaim(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	healthy.exec("CREATE TABLE public.mine (job bigint REFERENCES {{schema}}.jobs (id))")
	for name, test := range map[string]struct {
		edits  []string
		reaped []int
	}{
		"as it is": {nil, []int{0, 5, 0}},
		"not put off": {[]string{
			"\n          AND c.look_at NOT BETWEEN (SELECT clock_timestamp()) AND (SELECT clock_timestamp()) + interval '1 second'", "",
		}, []int{0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			healthy.exec("DELETE FROM public.mine")
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			b.exec("INSERT INTO {{schema}}.jobs (kind, max_attempts) SELECT 'test', 1 FROM generate_series(1, 10)")
			b.exec("INSERT INTO public.mine SELECT id FROM {{schema}}.jobs")
			conn := b.register("dead")
			b.claimFor("dead", 10)
			b.insert(5)
			b.claimFor("dead", 5)
			b.hangUp(conn)
			suspect := b.suspect("dead")
			var reaped []int
			var last claim.Ticked
			for range 3 {
				last = b.watch(suspect)
				reaped = append(reaped, last.Reaped)
			}
			if !slices.Equal(reaped, test.reaped) {
				t.Errorf("reaped %v, want %v", reaped, test.reaped)
			}
			if name == "as it is" && last.More {
				t.Error("there is no end of ticks")
			}
		})
	}
}

// A worker whose lock was taken before this server was started, or on another,
// is told apart.
func TestAWorkerThatHasNotComeBackHasMoved(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.hangUp(b.working("w", 1))
	b.exec("UPDATE {{schema}}.workers SET server_start = server_start - interval '1 microsecond'")
	suspect := b.suspect("w")
	suspect.Moved = true
	if ticked := b.watch(); !slices.Equal(ticked.Silent, []claim.Suspect{suspect}) {
		t.Errorf("silent are %+v, want %+v", ticked.Silent, suspect)
	}
}

// Locks are asked for in bounded numbers: to ask for one that is free is to
// take it until the commit. Those of workers that hold jobs come first.
func TestATickTakesFewLocks(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits  []string
		silent int
	}{
		"as it is": {nil, 200},
		"all":      {[]string{"    LIMIT 200\n", ""}, 250},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			b.exec(`INSERT INTO {{schema}}.workers (worker_id, lock_key, server_start)
				SELECT 'worker ' || n, n, pg_postmaster_start_time() FROM generate_series(-249, 0) AS n`)
			b.exec(`INSERT INTO {{schema}}.jobs (kind, status, attempts, lease_until, worker_id)
				SELECT 'test', 'running', 1, clock_timestamp() + interval '1 hour', 'worker ' || n FROM generate_series(-249, 0) AS n`)
			b.adopt()
			tx := b.open()
			ticked := b.watchOn(tx)
			if len(ticked.Silent) != test.silent {
				t.Errorf("%d silent workers, want %d", len(ticked.Silent), test.silent)
			}
			var locks int
			if err := tx.QueryRow(b.ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()").Scan(&locks); err != nil {
				t.Fatal(err)
			}
			if few := locks <= 200; few != (name != "all") {
				t.Errorf("%d locks are taken", locks)
			}
			b.rollback(tx)
		})
	}

	// Whoever is taken for dead is asked for once more, and nobody else.
	b := healthy.fresh(t)
	b.exec(`INSERT INTO {{schema}}.workers (worker_id, lock_key, server_start)
		SELECT 'worker ' || n, n, pg_postmaster_start_time() FROM generate_series(-499, 0) AS n`)
	b.exec("ANALYZE {{schema}}.workers")
	for _, plan := range []string{"enable_nestloop", "enable_hashjoin", "enable_mergejoin", "enable_seqscan", "enable_indexscan", "enable_bitmapscan"} {
		tx := b.open()
		if _, err := tx.Exec(b.ctx, "SET LOCAL "+plan+" = off"); err != nil {
			t.Fatal(err)
		}
		var dead []claim.Suspect
		for key := int32(-200); key < -100; key++ {
			dead = append(dead, claim.Suspect{Worker: fmt.Sprint("worker ", key), Key: key})
		}
		b.watchOn(tx, dead...)
		var locks int
		if err := tx.QueryRow(b.ctx, "SELECT count(DISTINCT objid) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()").Scan(&locks); err != nil {
			t.Fatal(err)
		}
		if locks > 300 {
			t.Errorf("without %s: %d locks are taken", plan, locks)
		}
		b.rollback(tx)
	}
}

// Ranks follow the keys of those that live; without a lock one comes after all
// that have one.
func TestRanks(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	rank := func(id string, want int) {
		t.Helper()
		ticked, err := b.Tick(b.ctx, b.conn, claim.TickRequest{Queues: []string{queue}, Worker: id, Own: "own", Token: "token"})
		if err != nil || ticked.Rank != want || ticked.Registered != (id != "nobody") {
			t.Errorf("%s: rank %d, registered %v, %v; want rank %d", id, ticked.Rank, ticked.Registered, err, want)
		}
	}
	rank("nobody", 0)
	b.hangUp(b.register("dead"))
	rank("nobody", 0)
	b.register("z")
	b.register("a")
	b.register("m")
	for _, id := range []string{"lockless 1", "lockless 2"} {
		if _, err := b.Register(b.ctx, b.conn, claim.Worker{ID: id}, false); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range []string{"z", "a", "m", "lockless 1", "lockless 2", "nobody"} {
		rank(id, i)
	}
	b.register("z") // again: now it is last
	for i, id := range []string{"a", "m", "z", "lockless 1"} {
		rank(id, i)
	}
}

// Others are those whose death would be noticed, who live, and hold jobs.
func TestOthers(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	others := func(want bool, when string) {
		t.Helper()
		if got := b.watch().Others; got != want {
			t.Errorf("%s: others %v", when, got)
		}
	}
	others(false, "alone")
	conn := b.register("w")
	others(false, "another one, idle")
	b.insert(1)
	if _, err := b.Register(b.ctx, b.conn, claim.Worker{ID: "lockless"}, false); err != nil {
		t.Fatal(err)
	}
	b.claimFor("lockless", 1)
	others(false, "one without a lock, busy")
	b.insert(1)
	b.claimFor("w", 1)
	others(true, "another one, busy")
	b.hangUp(conn)
	others(false, "another one, busy and gone")
}

// Without the right to see other workers, or a row of its own, a process goes
// by leases, as before.
func TestATickByLeases(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	conn := b.working("dead", 1)
	b.hangUp(conn)
	suspect := b.suspect("dead")
	b.insert(1)
	b.take(1, over)
	b.exec("DROP TABLE {{schema}}.workers")
	ticked, err := b.Tick(b.ctx, b.conn, claim.TickRequest{
		Queues: []string{queue}, Reap: true, Dead: []claim.Suspect{suspect}, Own: "own", Token: "token",
	})
	if err != nil || ticked.Reaped != 1 || ticked.Rank != 0 || ticked.Others || ticked.Registered || ticked.Stale || len(ticked.Silent) > 0 {
		t.Errorf("%+v, %v", ticked, err)
	}
}
