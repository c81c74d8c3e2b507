package claim_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost-go/fencepost/claim"
)

var epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// row is a claimed job that was due so many seconds after epoch.
func row(priority int, seconds float64, id int64) claim.Row {
	return claim.Row{ID: id, Priority: priority, RunAt: epoch.Add(time.Duration(seconds * float64(time.Second)))}
}

// expensive is a look at all jobs after which the next one waits as long as it
// may at most, if it comes after some that were nearly as expensive.
const expensive = time.Minute

// makeExpensive makes the next look at all jobs wait.
func makeExpensive(m *claim.Marks, now time.Time) {
	for range 20 { // each may be twice as expensive as the last
		m.Learn(claim.Request{Queue: queue, Limit: 1}, now, claim.Claimed{Walk: expensive})
	}
}

// Where the marks of each priority go, by what claims bring.
func TestMarksMove(t *testing.T) {
	t.Parallel()
	const limit = 3
	type answers [][]claim.Row
	mark := func(seconds float64, id int64) claim.Mark {
		return claim.Mark{RunAt: row(0, seconds, id).RunAt, ID: id}
	}
	for name, test := range map[string]struct {
		answers answers
		want    claim.Start
	}{
		"nothing": {answers{nil, {}}, claim.Start{}},
		"the last row": {
			answers{{row(0, 1, 7), row(0, 2, 5), row(0, 3, 6)}},
			claim.Start{2: mark(3, 6)},
		},
		"of a short claim too": {
			answers{{row(0, 1, 7)}, {row(0, 2, 5)}},
			claim.Start{2: mark(2, 5)},
		},
		"the last row of each priority": {
			answers{{row(-2, 8, 1), row(-2, 9, 2), row(1, 4, 3)}, {row(2, 5, 4)}},
			claim.Start{0: mark(9, 2), 3: mark(4, 3), 4: mark(5, 4)},
		},
		"one time for all": {
			answers{{row(0, 1, 5), row(0, 1, 6), row(0, 1, 7)}, {row(0, 1, 8), row(0, 1, 9)}},
			claim.Start{2: mark(1, 9)},
		},
		"not down to what was found below": {
			answers{{row(0, 9, 5)}, {row(0, 1, 6)}},
			claim.Start{2: mark(9, 5)},
		},
		// There may be more of those.
		"down to where the limit was reached": {
			answers{{row(-1, 9, 4), row(0, 9, 5)}, {row(-1, 1, 6), row(0, 1, 7), row(0, 2, 8)}},
			claim.Start{1: mark(9, 4), 2: mark(2, 8)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := claim.NewMarks()
			for _, rows := range test.answers {
				// A look at all jobs each time, since they cost nothing.
				l := m.Look(queue, epoch)
				if l.From != (claim.Start{}) {
					t.Fatalf("begins at %v", l.From)
				}
				m.Learn(claim.Request{Queue: queue, Limit: limit, Look: l}, epoch, claim.Claimed{Rows: rows})
			}
			makeExpensive(m, epoch)
			m.Learn(claim.Request{Queue: queue, Look: m.Look(queue, epoch)}, epoch, claim.Claimed{}) // full: no slack
			if got := m.Look(queue, epoch).From; got != test.want {
				t.Errorf("begins at %v, want %v", got, test.want)
			}
			if got := m.Look("other", epoch).From; got != (claim.Start{}) {
				t.Errorf("the other queue begins at %v", got)
			}
			m.Forget(queue)
			if got := m.Look(queue, epoch).From; got != (claim.Start{}) {
				t.Errorf("what is forgotten begins at %v", got)
			}
		})
	}
}

// When a claim begins below the marks, and what a short one that does not says.
func TestMarksLookBelow(t *testing.T) {
	t.Parallel()
	const limit = 1
	full := claim.Claimed{Rows: []claim.Row{row(0, 100, 1)}}
	at := claim.Start{2: {RunAt: full.Rows[0].RunAt, ID: 1}}
	below := claim.Start{2: {RunAt: full.Rows[0].RunAt.Add(-200 * time.Millisecond)}}
	whole := claim.Start{}
	var m *claim.Marks
	now := epoch
	step := func(want claim.Start, c claim.Claimed, again time.Duration) {
		t.Helper()
		l := m.Look(queue, now)
		if l.From != want {
			t.Fatalf("after %s a claim begins at %v, want %v", now.Sub(epoch), l.From, want)
		}
		if got := m.Learn(claim.Request{Queue: queue, Limit: limit, Look: l}, now, c); got != again {
			t.Fatalf("after %s again in %s, want %s", now.Sub(epoch), got, again)
		}
	}
	walked := func(c claim.Claimed, walk time.Duration) claim.Claimed {
		c.Walk = walk
		return c
	}
	start := func() {
		m, now = claim.NewMarks(), epoch
		for range 10 { // until it is believed, and so a second is to pass
			now = now.Add(time.Minute)
			step(whole, walked(full, 10*time.Millisecond), 0)
		}
	}

	// Full claims begin at the mark, but for every twentieth, until the ration
	// is there.
	start()
	for range 20 {
		step(at, full, 0)
	}
	step(below, full, 0)
	step(at, full, 0)
	now = now.Add(time.Second)
	step(whole, full, 0)
	step(whole, full, 0) // this one has cost nothing
	step(whole, claim.Claimed{}, 0)

	// A short one is followed by one a slack below at once, and that by one that
	// looks at all.
	start()
	now = now.Add(400 * time.Millisecond)
	step(at, claim.Claimed{}, 1)
	step(below, claim.Claimed{}, 600*time.Millisecond)
	step(below, claim.Claimed{}, 600*time.Millisecond)
	now = now.Add(600 * time.Millisecond)
	step(whole, walked(claim.Claimed{}, 10*time.Millisecond), 0)
	// What it took is not what a slack takes.
	step(below, walked(claim.Claimed{}, 500*time.Microsecond), time.Second)
	// Which is rationed by itself: one bulk may be all that lies in it.
	step(below, walked(claim.Claimed{}, 500*time.Microsecond), time.Second)
	step(at, claim.Claimed{}, 50*time.Millisecond)
	now = now.Add(50 * time.Millisecond)
	step(below, claim.Claimed{}, 950*time.Millisecond)

	// One look that takes long by chance is not what a look takes.
	start()
	now = now.Add(time.Second)
	step(whole, walked(full, time.Hour), 0)
	step(at, claim.Claimed{}, 1)
	step(below, claim.Claimed{}, 2025*time.Millisecond)
	now = now.Add(2025 * time.Millisecond)
	step(whole, walked(full, 10*time.Millisecond), 0)
	step(at, claim.Claimed{}, 1)
	step(below, claim.Claimed{}, time.Second)

	// Nobody waits for more than half a minute, whatever it takes.
	start()
	makeExpensive(m, now)
	step(below, claim.Claimed{}, 30*time.Second)

	// Nor for longer than it polls.
	m.Within(time.Hour)
	step(below, claim.Claimed{}, 30*time.Second)
	m.Within(time.Second)
	step(below, claim.Claimed{}, time.Second)
	now = now.Add(time.Second)
	step(whole, full, 0)

	// A claim of which nothing is known looks at all, whatever that costs.
	makeExpensive(m, now)
	m.Forget(queue)
	step(whole, walked(full, expensive), 0)
	step(at, full, 0)
}

// Two claims at once, the second of which passes over what the first holds. Its
// answer may come before or after that of the first.
func TestMarksOfTwoClaimsAtOnce(t *testing.T) {
	t.Parallel()
	const limit = 2
	start := claim.Start{2: {RunAt: row(0, 1, 1).RunAt, ID: 1}}
	first := claim.Claimed{Rows: []claim.Row{row(0, 2, 2), row(0, 3, 3)}}
	second := claim.Claimed{Rows: []claim.Row{row(0, 4, 4), row(0, 5, 5)}}
	below := claim.Claimed{Rows: []claim.Row{row(0, 0.1, 6), row(0, 0.2, 7)}, Walk: expensive}
	at := func(r claim.Row) claim.Start { return claim.Start{2: {RunAt: r.RunAt, ID: r.ID}} }
	for name, test := range map[string]struct {
		// all: the first looks at all jobs. The second never does.
		all bool
		do  func(first, second func(claim.Claimed), forget func())
		// want is where the next one begins.
		want claim.Start
	}{
		"in the order in which they were sent": {
			do:   func(one, two func(claim.Claimed), _ func()) { one(first); two(second) },
			want: at(second.Rows[1]),
		},
		"the other way round": {
			do:   func(one, two func(claim.Claimed), _ func()) { two(second); one(first) },
			want: at(second.Rows[1]),
		},
		// What it held is ready again.
		"the first is rolled back": {
			do: func(_, two func(claim.Claimed), forget func()) { forget(); two(second) },
		},
		"the first is rolled back, late": {
			do: func(_, two func(claim.Claimed), forget func()) { two(second); forget() },
		},
		// There may be more of that.
		"the first has found as much as it may below the marks": {
			all:  true,
			do:   func(one, two func(claim.Claimed), _ func()) { one(below); two(second) },
			want: at(below.Rows[1]),
		},
		"and late": {
			all:  true,
			do:   func(one, two func(claim.Claimed), _ func()) { two(second); one(below) },
			want: at(below.Rows[1]),
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := claim.NewMarks()
			learn := func(l claim.Look) func(claim.Claimed) {
				return func(c claim.Claimed) { m.Learn(claim.Request{Queue: queue, Limit: limit, Look: l}, epoch, c) }
			}
			learn(m.Look(queue, epoch))(claim.Claimed{Rows: []claim.Row{row(0, 0, 0), row(0, 1, 1)}})
			one := m.Look(queue, epoch)
			makeExpensive(m, epoch)
			m.Learn(claim.Request{Queue: queue, Look: m.Look(queue, epoch)}, epoch, claim.Claimed{}) // full: no slack
			two := m.Look(queue, epoch)
			if !test.all {
				one = two
			}
			if got := two.From; got != start {
				t.Fatalf("the second begins at %v", got)
			}
			test.do(learn(one), learn(two), func() { m.Forget(queue) })
			if got := m.Look(queue, epoch).From; got != test.want {
				t.Errorf("the next one begins at %v, want %v", got, test.want)
			}
		})
	}
}

// Whatever claims bring and cost, and whenever they are made: a claim that has
// not looked at all jobs is less than half a minute after one that has; one that
// came back short says when there will be such a look; and all of them together
// cost a process its share and no more.
func TestMarksKeepTheirRations(t *testing.T) {
	t.Parallel()
	const cheap, limit = 500 * time.Microsecond, 2
	rapid.Check(t, func(t *rapid.T) {
		m := claim.NewMarks()
		longest := rapid.SampledFrom([]time.Duration{time.Second, 30 * time.Second}).Draw(t, "longest")
		m.Within(longest)
		wait := rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 40_000_000))
		walk := rapid.OneOf(rapid.Int64Range(0, 400), rapid.Int64Range(0, 2_000_000))
		now, last, cost, known := epoch, time.Time{}, time.Duration(0), false
		var again time.Duration
		for i := range rapid.IntRange(1, 60).Draw(t, "claims") {
			in := time.Duration(wait.Draw(t, "wait")) * time.Microsecond
			if again > 0 {
				in = min(in, again) // the alarm
			}
			now = now.Add(in)
			l := m.Look(queue, now)
			isWhole := l.From == claim.Start{}
			since := now.Sub(last)
			switch {
			case !isWhole && since >= longest:
				t.Fatalf("claim %d looks at some jobs, %s after one that looked at all", i, since)
			case isWhole && known && cost > cheap && since < min(longest, 50*cost):
				t.Fatalf("claim %d looks at all jobs, %s after another that cost %s", i, since, cost)
			}
			rows := rapid.IntRange(0, limit).Draw(t, "rows")
			c := claim.Claimed{Walk: time.Duration(walk.Draw(t, "walk")) * time.Microsecond}
			for range rows {
				c.Rows = append(c.Rows, row(0, now.Sub(epoch).Seconds(), int64(i)))
			}
			now = now.Add(2 * c.Walk)
			again = m.Learn(claim.Request{Queue: queue, Limit: limit, Look: l}, now, c)
			if isWhole {
				last, cost = now, min(2*c.Walk, 2*cost+cheap)
			}
			known = known || rows > 0
			switch {
			case (rows == limit || isWhole) && again != 0:
				t.Fatalf("claim %d has nothing to say, and wants another in %s", i, again)
			case rows < limit && !isWhole && (again <= 0 || now.Add(again).After(last.Add(longest)) && again > 1):
				t.Fatalf("claim %d came back short and wants another in %s, %s after the last look at all jobs", i, again, now.Sub(last))
			}
		}
	})
}
