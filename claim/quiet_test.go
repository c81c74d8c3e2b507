package claim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

const promiseLength = 2 * time.Second

// promise promises for the default queue as a worker who can run every kind.
func (b *bench) promise(conn *pgx.Conn, worker string, before int64) claim.Promised {
	b.t.Helper()
	p, err := b.Promise(b.ctx, conn, claim.Request{Queue: queue}, worker, promiseLength, before)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (b *bench) seat(queue string) {
	b.t.Helper()
	if err := b.Seat(b.ctx, b.connect(), queue); err != nil {
		b.t.Fatal(err)
	}
}

// A queue gets a slot once, and keeps it. There are 64.
func TestSlots(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	conn := b.connect()
	if p := b.promise(conn, "w", 0); p.Seated || p.Until != 0 {
		t.Errorf("without a slot: %+v", p)
	}
	for i := range 64 {
		if err := b.Seat(b.ctx, conn, fmt.Sprint("q", i)); err != nil {
			t.Fatal(err)
		}
		expect(b, i, "SELECT quiet_slot FROM {{schema}}.queues WHERE name = $1::text", fmt.Sprint("q", i))
	}
	if err := b.Seat(b.ctx, conn, "q5"); err != nil {
		t.Errorf("a queue that has one: %v", err)
	}
	expect(b, 5, "SELECT quiet_slot FROM {{schema}}.queues WHERE name = 'q5'")
	if err := b.Seat(b.ctx, conn, "one too many"); err == nil || !strings.Contains(err.Error(), "2200H") {
		t.Errorf("the 65th queue: %v", err)
	}
	// None is given a second time: a producer with an old snapshot may still
	// take it for that of the queue that is gone.
	b.exec("DELETE FROM {{schema}}.queues WHERE name = 'q5'")
	if err := b.Seat(b.ctx, conn, "another"); err == nil {
		t.Error("a slot was given a second time")
	}
}

// Who may promise, and who may not.
func TestPromise(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	healthy.seat(queue)
	conn := healthy.connect()
	for name, test := range map[string]struct {
		before string
		kinds  []string
		made   bool
		others int
	}{
		"every kind":             {made: true},
		"some kinds":             {kinds: []string{"a", "b"}, made: true},
		"a worker of the kinds":  {"INSERT INTO {{schema}}.workers (worker_id, queues, kinds) VALUES ('x', '{\"default\": 1}', '{b}')", []string{"a", "b"}, true, 1},
		"a worker of more":       {"INSERT INTO {{schema}}.workers (worker_id, queues, kinds) VALUES ('x', '{\"default\": 1}', '{b,c}')", []string{"a", "b"}, false, 1},
		"a worker of every kind": {"INSERT INTO {{schema}}.workers (worker_id, queues) VALUES ('x', '{\"default\": 1}')", []string{"a", "b"}, false, 1},
		"both of every kind":     {"INSERT INTO {{schema}}.workers (worker_id, queues) VALUES ('x', '{\"default\": 1}')", nil, true, 1},
		"a worker elsewhere":     {"INSERT INTO {{schema}}.workers (worker_id, queues) VALUES ('x', '{\"other\": 1}')", []string{"a", "b"}, true, 0},
		"oneself":                {"INSERT INTO {{schema}}.workers (worker_id, queues) VALUES ('w', '{\"default\": 1}')", []string{"a", "b"}, true, 0},
		"always":                 {before: "UPDATE {{schema}}.queues SET bell = 'always'"},
		"never":                  {before: "UPDATE {{schema}}.queues SET bell = 'never'"},
		"paused":                 {before: "UPDATE {{schema}}.queues SET paused_at = now()"},
		"somebody's has run out": {before: "SELECT {{schema}}.promise(0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 1)", made: true},
		"somebody's, of another clock": {
			before: "SELECT {{schema}}.promise(0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 10000000)", made: true,
		},
	} {
		b := healthy
		b.exec("DELETE FROM {{schema}}.workers")
		b.exec("UPDATE {{schema}}.queues SET bell = 'auto', paused_at = NULL")
		b.exec("SELECT {{schema}}.promise(0, 0)")
		if test.before != "" {
			b.exec(test.before)
		}
		e := b.listen(schema)
		p, err := b.Promise(b.ctx, conn, claim.Request{Queue: queue, Kinds: test.kinds}, "w", promiseLength, 0)
		if err != nil || (p.Until != 0) != test.made || p.Others != test.others || !p.Seated || p.Held != 0 {
			t.Errorf("%s: %+v, %v; want %+v", name, p, err, test)
		}
		if test.made {
			e.wantBells(name, fmt.Sprintf("quiet:%d:%s", p.Until, queue))
			in := time.Duration(p.Until-ask[int64](b, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")) * time.Microsecond
			if in > promiseLength || in < promiseLength-5*time.Second {
				t.Errorf("%s: promised for %v", name, in)
			}
		} else {
			e.wantBells(name)
		}
	}
}

// A promise is renewed by who made it. Another's is left alone while it holds,
// and can be ended, whoever made it.
func TestPromisesOfTwo(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.seat(queue)
	conn := b.connect()
	first := b.promise(conn, "a", 0)
	if p := b.promise(conn, "b", 0); p.Until != 0 || p.Held != first.Until {
		t.Errorf("beside another's: %+v, want %d held", p, first.Until)
	}
	second := b.promise(conn, "a", first.Until)
	if second.Until <= first.Until || second.Held != 0 {
		t.Errorf("renewed: %+v after %+v", second, first)
	}
	revoked := func(promise int64, want claim.Revoked) {
		t.Helper()
		if r, err := b.Revoke(b.ctx, conn, queue, promise); err != nil || r != want {
			t.Errorf("revoke: %+v, %v; want %+v", r, err, want)
		}
	}
	promises := func(want map[string]int64) {
		t.Helper()
		if got, err := b.Promises(b.ctx, conn, []string{queue, "other"}); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("promises %v, %v; want %v", got, err, want)
		}
	}
	promises(map[string]int64{queue: second.Until})
	revoked(first.Until, claim.Revoked{Alone: true, Held: second.Until}) // that one is over
	promises(map[string]int64{queue: second.Until})
	revoked(second.Until, claim.Revoked{Alone: true})
	promises(nil)

	// One who was silent is waited for.
	third := b.promise(conn, "a", 0)
	tx := b.open()
	if _, err := tx.Exec(b.ctx, named("INSERT INTO {{schema}}.jobs (kind) VALUES ('test')", schema)); err != nil {
		t.Fatal(err)
	}
	revoked(third.Until, claim.Revoked{})
	promises(nil)
	fourth := b.promise(conn, "b", 0) // and need not be in vain
	revoked(third.Until, claim.Revoked{Held: fourth.Until})
	b.commit(tx)

	// One who stops leaves the rest to others, and has them look.
	e := b.listen(schema)
	if err := b.Yield(b.ctx, conn, queue, fourth.Until); err != nil {
		t.Fatal(err)
	}
	left := ask[int64](b, "SELECT {{schema}}.promised(0)")
	if left >= fourth.Until {
		t.Errorf("promised until %d after it was left", left)
	}
	promises(map[string]int64{queue: left})
	e.wantBells("a promise that is left", "1:0:"+queue, fmt.Sprintf("quiet:%d:%s", left, queue))
	b.promise(conn, "c", 0)
	if err := b.Yield(b.ctx, conn, queue, left); err != nil {
		t.Fatal(err)
	}
	if now := ask[int64](b, "SELECT {{schema}}.promised(0)"); now <= left {
		t.Error("another's promise was left")
	}
}

// Who has promised rings, when that ends, for what others may not know of.
func TestRingNext(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	conn := b.connect()
	e := b.listen(schema)
	ring := func(want ...string) {
		t.Helper()
		e.heard()
		if err := b.RingNext(b.ctx, conn, queue); err != nil {
			t.Fatal(err)
		}
		e.wantBells("RingNext", want...)
	}
	ring()
	b.insertOne("run_at", "'2150-01-02'")
	b.insertOne("run_at, priority", "'2150-01-01', 2")
	ring(b.earliest(queue))
	b.insertOne("priority", "-1")
	ring("1:0:" + queue)
	b.exec("INSERT INTO {{schema}}.queues (name, bell) VALUES ($1::text, 'never')", queue)
	ring("1:0:" + queue)
	if err := b.Ring(b.ctx, conn, "other"); err != nil {
		t.Fatal(err)
	}
	e.wantBells("Ring", "1:0:other")
}

// sleeper ends promises, as a process does, or without one of its guards.
type sleeper struct {
	name           string
	lock, lastLook bool
}

// Whatever producers do, when a promise has ended there is no job that was
// inserted in silence and that nobody has looked for: all the others rang.
// Without the lock, and without the last look, there are such jobs.
func TestNoJobIsMissedWhenAPromiseEnds(t *testing.T) {
	t.Parallel()
	rounds := 40
	if os.Getenv("FENCEPOST_LONG") != "" {
		rounds = 400
	}
	for _, s := range []sleeper{
		{"as it is", true, true},
		{"without the lock", false, true},
		{"without the last look", true, false},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			b.seat(queue)
			night := newNight(b)
			silent, missed := 0, 0
			for range rounds {
				n, m := night.cycle(s)
				silent, missed = silent+n, missed+m
				if missed > 0 && !(s.lock && s.lastLook) {
					return // as was to be seen
				}
			}
			t.Logf("%d rounds, %d jobs in silence, %d missed", rounds, silent, missed)
			switch {
			case silent < rounds:
				t.Errorf("only %d jobs were inserted in silence in %d rounds; the test sees nothing", silent, rounds)
			case s.lock && s.lastLook && missed > 0:
				t.Errorf("%d jobs were missed", missed)
			case !(s.lock && s.lastLook) && missed == 0:
				t.Error("no job was missed; the test does not see what the guard is for")
			}
		})
	}
}

// night is one who promises and falls asleep again and again, and those who
// insert meanwhile.
type night struct {
	*bench
	worker    *pgx.Conn
	producers []*pgx.Conn
	ear       ear
	rang      map[int64]bool // the transactions that did
}

func newNight(b *bench) *night {
	n := &night{bench: b, worker: b.connect(), ear: b.listen(schema), rang: make(map[int64]bool)}
	for range 8 {
		n.producers = append(n.producers, b.connect())
	}
	return n
}

// cycle is one promise, from its beginning to its end. It returns how many jobs
// were inserted in silence, and how many of them were seen by no look.
func (n *night) cycle(s sleeper) (silent, missed int) {
	n.t.Helper()
	revoked := make(chan struct{})
	snapshots, begun := sync.WaitGroup{}, make(chan struct{})
	var producers sync.WaitGroup
	for i, conn := range n.producers {
		snapshots.Add(1)
		producers.Go(func() { n.produce(conn, i, &snapshots, begun, revoked) })
	}
	snapshots.Wait() // some from before the promise
	p := n.promise(n.worker, "worker", 0)
	if p.Until == 0 {
		n.t.Fatalf("no promise: %+v", p)
	}
	close(begun)
	time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
	n.take(1000, lease)
	for first := true; ; first = false {
		r, err := n.Revoke(n.ctx, n.worker, queue, p.Until)
		if err != nil {
			n.t.Fatal(err)
		}
		if first {
			close(revoked)
		}
		if r.Alone || !s.lock {
			break
		}
		n.take(1000, lease)
	}
	if s.lastLook {
		n.take(1000, lease)
	}
	// Asleep: from here on only a bell wakes.
	producers.Wait()
	n.listenUp()
	rows, err := n.conn.Query(n.ctx, named("SELECT payload::text::bigint, status FROM {{schema}}.jobs", schema))
	if err != nil {
		n.t.Fatal(err)
	}
	var xid int64
	var status string
	if _, err := pgx.ForEachRow(rows, []any{&xid, &status}, func() error {
		if !n.rang[xid] {
			silent++
			if status == "ready" {
				missed++
			}
		}
		return nil
	}); err != nil {
		n.t.Fatal(err)
	}
	n.exec("DELETE FROM {{schema}}.jobs")
	return silent, missed
}

// listenUp takes down which transactions have rung.
func (n *night) listenUp() {
	n.t.Helper()
	n.exec("SELECT pg_notify($1::text, 'mark')", n.ear.channel)
	for {
		note, err := n.ear.conn.WaitForNotification(n.ctx)
		if err != nil {
			n.t.Fatal(err)
		}
		if note.Payload == "mark" {
			return
		}
		if rest, ok := strings.CutPrefix(note.Payload, "1:"); ok {
			number, _, _ := strings.Cut(rest, ":")
			xid, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				n.t.Fatal(err)
			}
			n.rang[xid] = true
		}
	}
}

// produce inserts a few jobs around the end of the promise. Half of the
// producers have a snapshot from before it, half stay open across its end.
func (n *night) produce(conn *pgx.Conn, i int, snapshots *sync.WaitGroup, begun, revoked <-chan struct{}) {
	try := func(sql string) {
		if _, err := conn.Exec(n.ctx, named(sql, schema)); err != nil && n.ctx.Err() == nil {
			n.t.Errorf("%s: %v", sql, err)
		}
	}
	pause := func(most time.Duration) { time.Sleep(time.Duration(rand.Int64N(int64(most)))) }
	const insert = "INSERT INTO {{schema}}.jobs (kind, payload) VALUES ('test', pg_current_xact_id()::text::jsonb)"
	if i%2 == 0 {
		try("BEGIN ISOLATION LEVEL REPEATABLE READ")
		try("SELECT count(*) FROM {{schema}}.queues")
	} else {
		try("BEGIN")
	}
	snapshots.Done()
	<-begun
	pause(3 * time.Millisecond)
	try(insert)
	if i%4 < 2 {
		<-revoked
		pause(5 * time.Millisecond)
		if i%3 == 0 {
			try(insert)
		}
	}
	try("COMMIT")
	for range rand.IntN(6) {
		pause(time.Millisecond)
		try(insert)
	}
}
