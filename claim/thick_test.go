package claim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// In the thick of a backlog claims pass over a job that somebody may still hold.
// If it is nobody's, one each five seconds takes it all the same, and so does the one
// that follows when there are no others.
func TestWhatClaimsPassOverIsFound(t *testing.T) {
	t.Parallel()
	const limit = 50
	for name, test := range map[string]struct {
		jobs   int
		claims int  // after which it is taken, the first not counted
		held   bool // still, by somebody
	}{
		"in an endless backlog":    {jobs: 30 * limit, claims: 20},
		"when there are no others": {jobs: 3*limit + 10, claims: 4},
		"not if it is held":        {jobs: 30 * limit, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			b.insert(test.jobs)
			marks := claim.NewMarks()
			now := epoch
			next := func() (ids []int64) {
				now = now.Add(250 * time.Millisecond)
				r := claim.Request{Queue: queue, Limit: limit, Look: marks.Look(queue, now)}
				c, err := b.Claim(b.ctx, b.conn, r, lease, "worker")
				if err != nil {
					t.Fatal(err)
				}
				if again := marks.Learn(r, now, c); again > 0 {
					now = now.Add(again)
				}
				for _, row := range c.Rows {
					ids = append(ids, row.ID)
				}
				return ids
			}
			next()
			older := b.open()
			if _, err := older.Exec(b.ctx, "SELECT pg_current_xact_id()"); err != nil {
				t.Fatal(err)
			}
			defer b.rollback(older)
			toucher := b.open()
			var touched int64
			if err := toucher.QueryRow(b.ctx, "SELECT id FROM fencepost.jobs WHERE status = 'ready' ORDER BY id LIMIT 1 FOR UPDATE").Scan(&touched); err != nil {
				t.Fatal(err)
			}
			if test.held {
				defer b.rollback(toucher)
			} else {
				b.commit(toucher)
			}
			taken := 0
			for n := 1; n <= 25 && taken == 0; n++ {
				if slices.Contains(next(), touched) {
					taken = n
				}
			}
			if taken != test.claims {
				t.Errorf("taken by claim %d, want %d", taken, test.claims)
			}
		})
	}
}

// Which claims pass over jobs: after a large one that was full, until one comes back
// short; and then, or after a claim that failed, none for a while, or until the next.
func TestWhenClaimsPassOverJobs(t *testing.T) {
	t.Parallel()
	const limit = 50
	m, now := claim.NewMarks(), epoch
	step := func(want bool, rows int) {
		t.Helper()
		now = now.Add(100 * time.Millisecond)
		l := m.Look(queue, now)
		if l.Untouched() != want {
			t.Fatalf("after %s a claim passes over jobs: %v", now.Sub(epoch), l.Untouched())
		}
		c := claim.Claimed{}
		for i := range rows {
			c.Rows = append(c.Rows, row(0, now.Sub(epoch).Seconds(), int64(i)))
		}
		again := m.Learn(claim.Request{Queue: queue, Limit: max(limit, rows), Look: l}, now, c)
		if again != 0 != (want && rows < limit) {
			t.Fatalf("after %s a claim of %d is made again in %s", now.Sub(epoch), rows, again)
		}
	}
	step(false, limit)
	step(true, limit)
	step(true, 7)      // it says that another follows,
	step(false, limit) // and for five seconds none passes over any
	step(false, limit)
	now = now.Add(5 * time.Second)
	step(false, limit) // this one would be the look that passes over none anyway
	step(true, limit)
	m.Forget(queue)
	step(false, limit)
	step(true, limit)
	now = now.Add(5 * time.Second)
	step(false, limit)
}
