package claim_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

// taker claims as a process does: from where its marks say. They are told that
// each look is expensive.
type taker struct {
	*bench
	conn  *pgx.Conn
	marks *claim.Marks
	now   time.Time
}

func (b *bench) taker() *taker {
	k := &taker{bench: b, conn: b.connect(), marks: claim.NewMarks(), now: epoch}
	makeExpensive(k.marks, k.now)
	return k
}

// look claims up to n jobs. It returns where it began, and when it is to be made
// again.
func (k *taker) look(n int) (rows []claim.Row, from claim.Start, again time.Duration) {
	k.t.Helper()
	r := claim.Request{Queue: queue, Limit: n, Look: k.marks.Look(queue, k.now)}
	c, err := k.Claim(k.ctx, k.conn, r, lease, "worker")
	if err != nil {
		k.t.Fatal(err)
	}
	c.Walk = expensive
	return c.Rows, r.Look.From, k.marks.Learn(r, k.now, c)
}

// raise takes a job, so that the mark is where it was.
func (k *taker) raise() claim.Row {
	k.t.Helper()
	k.insert(1)
	rows, _, _ := k.look(1)
	if len(rows) != 1 {
		k.t.Fatal("there is nothing to begin behind")
	}
	return rows[0]
}

// settle claims for as long as the marks want it, as alarms would, and returns
// what was found, and how long after the first claim.
func (k *taker) settle(n int) (rows []claim.Row, in time.Duration) {
	k.t.Helper()
	for {
		rows, _, again := k.look(n)
		if len(rows) > 0 || again == 0 {
			return rows, in
		}
		k.now = k.now.Add(again)
		in += again
	}
}

// A job may come to lie below the mark of whoever claims. Each is found, though
// not at once unless it is within the slack, and claims from the mark alone
// would never find it.
func TestJobsBelowTheMarkAreFound(t *testing.T) {
	t.Parallel()
	const long = "clock_timestamp() - interval '1 hour'"
	healthy := setUp(t)
	// claimed is a job that somebody else took before the mark was raised.
	claimed := func(b *bench) claim.Row {
		b.insert(1)
		return b.takeOne(lease)
	}
	for name, test := range map[string]struct {
		// before is done before the mark is raised, and what it returns after.
		before func(b *bench) (after func())
		atOnce bool
	}{
		"commits late": {func(b *bench) func() {
			tx := b.open()
			if _, err := tx.Exec(b.ctx, "INSERT INTO fencepost.jobs (kind, run_at) VALUES ('test', "+long+")"); err != nil {
				b.t.Fatal(err)
			}
			return func() { b.commit(tx) }
		}, false},
		"commits a little late": {func(b *bench) func() {
			return func() {
				b.exec(`INSERT INTO {{schema}}.jobs (kind, run_at)
					SELECT 'test', max(j.run_at) - interval '150 ms' FROM {{schema}}.jobs AS j`)
			}
		}, true},
		"has an old run_at": {func(b *bench) func() {
			return func() { b.insertOne("run_at", long) }
		}, false},
		"is made due by hand": {func(b *bench) func() {
			id := b.insertOne("run_at", "clock_timestamp() + interval '1 hour'")
			return func() { b.exec("UPDATE {{schema}}.jobs SET run_at = "+long+" WHERE id = $1::bigint", id) }
		}, false},
		"comes back unstarted": {func(b *bench) func() {
			row := claimed(b)
			return func() {
				b.exec("UPDATE {{schema}}.jobs SET run_at = "+long+" WHERE id = $1::bigint", row.ID)
				b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: claim.Return})
			}
		}, false},
		"is handed back": {func(b *bench) func() {
			row := claimed(b)
			return func() {
				b.exec("UPDATE {{schema}}.jobs SET run_at = "+long+" WHERE id = $1::bigint", row.ID)
				b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: claim.Release})
			}
		}, false},
		"is released by an operator": {func(b *bench) func() {
			row := claimed(b)
			return func() {
				b.exec("UPDATE {{schema}}.jobs SET run_at = "+long+" WHERE id = $1::bigint", row.ID)
				b.operate("release", row.ID, "done", "running")
			}
		}, false},
		// As of a process that dies before its claim is committed: the others
		// have skipped what it had locked.
		"was in a claim that rolled back": {func(b *bench) func() {
			b.insertOne("run_at", long)
			tx := b.open()
			c, err := b.Claim(b.ctx, tx, claim.Request{Queue: queue, Limit: 1}, lease, "other")
			if err != nil || len(c.Rows) != 1 {
				b.t.Fatal(c, err)
			}
			return func() { b.rollback(tx) }
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t)
			k := b.taker()
			after := test.before(b)
			k.raise()
			after()
			rows, from, _ := k.look(1)
			if len(rows) != 0 || from == (claim.Start{}) {
				t.Fatalf("a claim from %v found %d jobs: this does not test what it should", from, len(rows))
			}
			rows, in := k.settle(1)
			if len(rows) != 1 || in > 30*time.Second || test.atOnce != (in == 0) {
				t.Errorf("found %d jobs after another %s", len(rows), in)
			}
		})
	}
}

// What becomes due after others were taken lies above the mark, however long
// ago it was inserted.
func TestLaterJobsLieAboveTheMark(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	k := b.taker()
	later := b.insertOne("run_at", "clock_timestamp() + interval '1 hour'")
	first := k.raise()
	b.finish(claim.Stored, claim.Outcome{Lease: first.Lease(), Verb: claim.Retry, Delay: time.Nanosecond})
	second := k.raise()
	if second.ID != first.ID {
		t.Errorf("took job %d, want %d, which is tried again", second.ID, first.ID)
	}
	b.finish(claim.Stored, claim.Outcome{Lease: second.Lease(), Verb: claim.Snooze, Delay: time.Hour})
	b.makeDue()
	rows, from, _ := k.look(10)
	ids := make(map[int64]bool)
	for _, r := range rows {
		ids[r.ID] = true
	}
	if from == (claim.Start{}) || len(rows) != 3 || !ids[later] || !ids[second.ID] {
		t.Errorf("a claim from %v took %v, want what was scheduled, what snoozed, and a new job", from, rows)
	}
}

// A mark holds for its own priority: old jobs of the others are not passed over.
func TestPrioritiesKeepTheirMarksApart(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	k := b.taker()
	k.raise()
	for _, p := range []int{-2, -1, 1, 2} {
		b.insertOne("priority, run_at", fmt.Sprintf("%d, clock_timestamp() - interval '1 hour'", p))
	}
	rows, from, _ := k.look(4)
	if len(rows) != 4 || from == (claim.Start{}) {
		t.Fatalf("a claim from %v took %d jobs", from, len(rows))
	}
	for _, p := range []int{-2, 2} {
		b.insertOne("priority, run_at", fmt.Sprintf("%d, clock_timestamp()", p))
		b.insertOne("priority, run_at", fmt.Sprintf("%d, clock_timestamp() - interval '2 hours'", p))
	}
	if rows, from, _ = k.look(4); len(rows) != 2 {
		t.Errorf("a claim from %v took %d jobs, want those above the marks", from, len(rows))
	}
	if rows, _ = k.settle(4); len(rows) != 2 {
		t.Errorf("%d jobs were below the marks, want 2", len(rows))
	}
}

// Of jobs with one and the same run_at none is passed over, and none is taken
// for one that was, whether the claims come back full or short.
func TestMarksAmongJobsOfOneTime(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	k := b.taker()
	b.exec("INSERT INTO {{schema}}.jobs (kind, run_at) SELECT 'test', now() FROM generate_series(1, 10)")
	last := int64(0)
	for _, want := range []int{3, 3, 3, 1} {
		rows, from, _ := k.look(3)
		if len(rows) != want || rows[0].ID != max(last+1, firstID) || last > 0 && from[2].ID != last {
			t.Fatalf("took %v from %v, want %d after %d", rows, from, want, last)
		}
		last = rows[want-1].ID
	}
}

// A claim that begins at a mark says of what lies above it what a claim says of
// all: when the next job is due, or that somebody holds one.
func TestNextIsThatAboveTheMark(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insertOne("run_at", "clock_timestamp() - interval '1 hour'")
	mark := claim.Mark{RunAt: ask[time.Time](b, "SELECT clock_timestamp()")}
	next := func(from claim.Mark) claim.Claimed {
		t.Helper()
		r := claim.Request{Queue: queue, Limit: 2, Kinds: []string{"none", "test"}, Look: claim.Look{From: claim.Start{2: from}}}
		c, err := b.Claim(b.ctx, b.conn, r, lease, "worker")
		if err != nil {
			t.Fatal(err)
		}
		if c.Walk <= 0 || c.Walk > time.Minute {
			t.Errorf("the walk took %s", c.Walk)
		}
		return c
	}
	if c := next(mark); len(c.Rows) != 0 || c.HasNext {
		t.Errorf("nothing is there: %+v", c)
	}
	b.insertOne("run_at", "clock_timestamp() + interval '1 hour'")
	if c := next(mark); len(c.Rows) != 0 || !c.HasNext || c.Next < 59*time.Minute {
		t.Errorf("a job is due in an hour: %+v", c)
	}
	tx := b.open()
	b.insert(1)
	if _, err := tx.Exec(b.ctx, "SELECT FROM fencepost.jobs WHERE run_at <= clock_timestamp() FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if c := next(mark); len(c.Rows) != 0 || !c.HasNext || c.Next > 0 {
		t.Errorf("a due job is held: %+v", c)
	}
	b.rollback(tx)
	if c := next(claim.Mark{}); len(c.Rows) != 2 {
		t.Errorf("from the beginning: %+v", c)
	}
}

// Under somebody's old snapshot nothing that has ended leaves the index. What a
// claim reads does not grow with that, if it begins at a mark; from the
// beginning it does.
func TestClaimsUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	const dead, most = 100_000, 50
	for name, runAt := range map[string]string{
		"spread":       "now() - interval '1 hour' + n * interval '1 ms'",
		"all the same": "now() - interval '1 hour'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			b.exec("ALTER TABLE {{schema}}.jobs SET (autovacuum_enabled = off)")
			b.exec("SET synchronous_commit = off")
			b.exec("SET plan_cache_mode = force_generic_plan") // as it will be after five claims
			b.exec("INSERT INTO {{schema}}.jobs (kind, run_at) SELECT 'test', "+runAt+" FROM generate_series(1, $1::int) AS n", dead+1000)
			b.exec("ANALYZE {{schema}}.jobs")
			snapshot, err := b.connect().BeginTx(b.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := snapshot.Exec(b.ctx, "SELECT FROM fencepost.jobs LIMIT 1"); err != nil {
				t.Fatal(err)
			}

			k := b.taker()
			k.look(1) // of all: nothing has ended yet
			first := b.read(k.marks.Look(queue, k.now).From)
			b.exec("DELETE FROM {{schema}}.jobs WHERE id < $1::bigint", firstID+dead)
			k.marks.Learn(claim.Request{Queue: queue, Limit: 1, Look: k.marks.Look(queue, k.now)}, k.now,
				claim.Claimed{Rows: []claim.Row{b.place(firstID + dead)}})
			for range 3 {
				rows, from, _ := k.look(100)
				if len(rows) != 100 {
					t.Fatalf("claimed %d jobs from %v", len(rows), from)
				}
				var outcomes []claim.Outcome
				for _, r := range rows {
					outcomes = append(outcomes, claim.Outcome{Lease: r.Lease(), Verb: claim.Done})
				}
				if _, err := b.Finish(b.ctx, b.conn, outcomes); err != nil {
					t.Fatal(err)
				}
				if got := b.read(k.marks.Look(queue, k.now).From); got > first+most {
					t.Errorf("a claim from a mark reads %d pages, and %d before anything had ended", got, first)
				}
			}
			if all := b.read(claim.Start{}); all < 10*(first+most) {
				t.Errorf("a claim from the beginning reads %d pages: this does not test what it should", all)
			}
			b.rollback(snapshot)
		})
	}
}

// place returns where a job lies among the others.
func (b *bench) place(id int64) claim.Row {
	b.t.Helper()
	return claim.Row{ID: id, RunAt: ask[time.Time](b, "SELECT run_at FROM {{schema}}.jobs WHERE id = $1::bigint", id)}
}

// read returns how many pages a claim of 100 that begins there reads to find
// them, those of the index and those of the table, and undoes it.
func (b *bench) read(from claim.Start) int {
	b.t.Helper()
	b.exec("BEGIN")
	defer b.exec("ROLLBACK")
	var tops []struct{ Plan reader }
	explained := b.explainAs("(ANALYZE, BUFFERS, TIMING off, FORMAT JSON)", b.SQL(claim.SQLClaim), "'default', NULL, 100, 30000000, 'worker', "+marksOf(from)+", false")
	if err := json.Unmarshal([]byte(explained), &tops); err != nil {
		b.t.Fatal(err)
	}
	pages := tops[0].Plan.pages("jobs_order")
	if pages == 0 {
		b.t.Fatalf("no scan in the order of claims in\n%s", explained)
	}
	return pages
}

// marksOf writes a Start as arguments of a prepared statement.
func marksOf(from claim.Start) string {
	var runAts, ids string
	for i, m := range from {
		if i > 0 {
			runAts, ids = runAts+",", ids+","
		}
		runAts += m.RunAt.UTC().Format("2006-01-02 15:04:05.999999Z")
		ids += fmt.Sprint(m.ID)
	}
	return "'{" + runAts + "}', '{" + ids + "}'"
}

// reader is a node of what EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) prints.
type reader struct {
	Index string `json:"Index Name"`
	Hit   int    `json:"Shared Hit Blocks"`
	Read  int    `json:"Shared Read Blocks"`
	Plans []reader
}

// pages is how many pages the scans of the index have read.
func (r reader) pages(index string) (n int) {
	if r.Index == index {
		return r.Hit + r.Read
	}
	for _, child := range r.Plans {
		n += child.pages(index)
	}
	return n
}
