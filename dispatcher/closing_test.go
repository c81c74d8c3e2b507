package dispatcher

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// closing is the leases in hand and the outcomes on their way, without what is
// around them.
type closing struct {
	t      *testing.T
	leases *leases
	outbox outbox
	now    time.Time
	left   []claim.Outcome // with the last trip
}

func newClosing(t *testing.T) *closing {
	return &closing{t: t, leases: newLeases(12 * time.Second), outbox: newOutbox(), now: time.Now()}
}

// claimed takes jobs in hand that were claimed together.
func (c *closing) claimed(of int64, ids ...int64) {
	for _, id := range ids {
		c.leases.add(&held{row: claim.Row{ID: id, Fence: 1, Claim: of}, since: c.now})
	}
}

// ended gives the jobs' outcomes away.
func (c *closing) ended(ids ...int64) {
	for _, id := range ids {
		c.outbox.put(claim.Outcome{Lease: claim.Lease{ID: id, Fence: 1}, Verb: claim.Done})
	}
}

// leaves is the next trip. It wants the given claims to be closed by it.
func (c *closing) leaves(want ...int64) {
	c.t.Helper()
	c.now = c.now.Add(time.Minute) // whatever has waited does so no longer
	outcomes := c.outbox.take(c.now, 0)
	c.leases.close(outcomes)
	c.left = outcomes
	var closes []int64
	for _, o := range outcomes {
		if o.Closes != 0 {
			closes = append(closes, o.Closes)
		}
	}
	slices.Sort(closes)
	if !slices.Equal(closes, want) {
		c.t.Errorf("a trip with %+v closes %v, want %v", outcomes, closes, want)
	}
}

// lands is the answer to it.
func (c *closing) lands(results ...claim.Result) {
	settled, _ := c.outbox.answered(c.now, 0, results)
	for _, lease := range settled {
		c.leases.drop(lease)
	}
	c.leases.closed(c.left)
}

const stored, busy, lost = claim.Stored, claim.Busy, claim.Lost

// A claim is closed by the trip with the last of its outcomes, and by no other.
func TestTheLastOutcomeClosesTheClaim(t *testing.T) {
	for name, script := range map[string]func(c *closing){
		"in one trip": func(c *closing) {
			c.claimed(7, 1, 2, 3)
			c.ended(1, 2, 3)
			c.leaves(7)
		},
		"in several": func(c *closing) {
			c.claimed(7, 1, 2, 3)
			c.ended(2)
			c.leaves()
			c.lands(stored)
			c.ended(1)
			c.leaves()
			c.lands(stored)
			c.ended(3)
			c.leaves(7)
		},
		"several claims at once": func(c *closing) {
			c.claimed(7, 1, 2)
			c.claimed(8, 3)
			c.claimed(9, 4, 5)
			c.ended(5, 1, 3, 2)
			c.leaves(7, 8)
			c.lands(stored, stored, stored, stored)
			c.ended(4)
			c.leaves(9)
		},
		"another one is busy": func(c *closing) {
			c.claimed(7, 1, 2)
			c.ended(1, 2)
			c.leaves(7)
			c.lands(busy, stored) // the database has left it open
			c.leaves(7)
			c.lands(busy)
			c.leaves(7)
		},
		"it is busy itself": func(c *closing) {
			c.claimed(7, 1, 2)
			c.ended(1, 2)
			c.leaves(7)
			c.lands(stored, busy)
			c.leaves(7)
		},
		"on both lanes at once": func(c *closing) {
			c.claimed(7, 1, 2)
			c.claimed(8, 3)
			c.ended(1)
			c.leaves()
			beside := c.left
			c.ended(2)
			outcomes := c.outbox.take(c.now, 1)
			c.leases.close(outcomes)
			if outcomes[0].Closes != 0 {
				c.t.Error("what is still on its way is closed")
			}
			c.left = beside
			c.lands(stored)
			settled, _ := c.outbox.answered(c.now, 1, []claim.Result{stored})
			c.leases.drop(settled[0])
			c.leases.closed(outcomes)
			c.claimed(9, 4, 5)
			c.ended(4)
			c.leaves(7) // by the next one
			c.outbox.kept(c.now, 0, false)
			c.leaves(7)
			c.lands(stored)
			c.ended(5)
			c.leaves(9)
		},
		"another one is late": func(c *closing) {
			c.claimed(7, 1, 2)
			c.ended(1)
			c.leaves()
			c.lands(lost)
			c.ended(2)
			c.leaves(7)
		},
		"the trip has failed": func(c *closing) {
			c.claimed(7, 1, 2, 3)
			c.ended(1, 2)
			c.leaves()
			c.outbox.kept(c.now, 0, true)
			c.ended(3)
			c.leaves(7)
			c.outbox.kept(c.now, 0, false)
			c.leaves(7)
			c.lands(stored, stored, stored)
		},
		"handed back": func(c *closing) {
			c.claimed(7, 1, 2)
			c.outbox.put(claim.Outcome{Lease: claim.Lease{ID: 1, Fence: 1}, Verb: claim.Return})
			c.ended(2)
			c.leaves(7)
		},
		"more than a trip holds": func(c *closing) {
			ids := make([]int64, mostOutcomes+1)
			for i := range ids {
				ids[i] = int64(i + 1)
			}
			c.claimed(7, ids...)
			c.ended(ids...)
			c.leaves()
			c.lands(slices.Repeat([]claim.Result{stored}, mostOutcomes)...)
			c.leaves(7)
		},
		"a claim without a number": func(c *closing) {
			c.claimed(0, 1)
			c.ended(1)
			c.leaves()
		},
		"an outcome of nothing in hand": func(c *closing) {
			c.ended(1)
			c.leaves()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClosing(t)
			script(c)
		})
	}
}

// What is no longer in hand is not remembered.
func TestClosedClaimsAreForgotten(t *testing.T) {
	c := newClosing(t)
	c.claimed(7, 1, 2)
	c.claimed(8, 3)
	c.ended(1, 2, 3)
	c.leaves(7, 8)
	c.lands(stored, lost, stored)
	c.leases.drop(claim.Lease{ID: 1, Fence: 1}) // twice
	if len(c.leases.open) != 0 || len(c.leases.held) != 0 {
		t.Errorf("%v is open, %v held", c.leases.open, c.leases.held)
	}
}
