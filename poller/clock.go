package poller

import (
	"sync"
	"time"
)

// drift is the largest difference between two readings that is not called a
// step: clocks run at slightly different speeds, and are set right gently.
const drift = time.Second

// Clock relates the clock of the database to the monotonic clock of this
// process. The zero value is ready; it may be used from any goroutine.
//
// Of one reading of the database's clock we know only that it was taken
// between the sending of the question and the arrival of the answer. So the
// difference between the clocks is kept as a range: readings narrow it, and
// one that does not fit shows that a clock has drifted or stepped.
type Clock struct {
	mu       sync.Mutex
	seen     bool
	local    time.Time     // origin on our clock
	db       time.Time     // origin on the database's clock
	low, top time.Duration // the database's clock runs ahead of ours by this, less the origins
}

// Observe takes one reading of the database's clock, made for a question that
// was sent and answered at the given times of ours, which must be readings of
// time.Now. The result is how far the database's clock must have stepped
// against ours since the readings before: positive if forward, and 0 for a
// second or less, which is followed without a word. A slow round trip is never
// taken for a step.
func (c *Clock) Observe(db, sent, received time.Time) (jump time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.seen {
		c.seen, c.local, c.db = true, sent, db
		c.low, c.top = sent.Sub(received), 0
		return 0
	}
	low := db.Sub(c.db) - received.Sub(c.local)
	top := db.Sub(c.db) - sent.Sub(c.local)
	switch {
	case low > c.top:
		jump = low - c.top
	case top < c.low:
		jump = top - c.low
	default:
		low, top = max(low, c.low), min(top, c.top)
	}
	c.low, c.top = low, top
	if jump.Abs() <= drift {
		return 0
	}
	return jump
}

// Latest returns the latest time that the database's clock can show now,
// unless it has stepped by more than a second since the last Observe; the zero
// time before the first one.
func (c *Clock) Latest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.seen {
		return time.Time{}
	}
	return c.db.Add(time.Since(c.local) + c.top + drift)
}

// Until returns how long it is, by the best knowledge of the database's
// clock, until that clock shows db. Before the first Observe it takes the
// clocks for equal.
func (c *Clock) Until(db time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.seen {
		return time.Until(db)
	}
	ahead := c.low + (c.top-c.low)/2
	now := c.db.Add(time.Since(c.local) + ahead)
	return db.Sub(now)
}
