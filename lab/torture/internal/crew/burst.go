package crew

import (
	"cmp"
	"slices"
	"time"
)

// A burst is a rush of transactions into one queue, in which bells ring faster
// than they are worth: a worker promises to look into the queue without them
// (docs/decisions/0007-quiet-window.md). Those that follow are silent, as many as
// it takes for the promise to go on for another second. Some are so slow that it
// is over when they commit.
const (
	// rush is twice the bells that make a promise, in less than the time in which
	// they have to be heard.
	rush     = 60
	rushTime = 200 * time.Millisecond

	followers  = 40
	followFrom = 600 * time.Millisecond // on a busy machine a promise takes its time
	followTo   = 1200 * time.Millisecond
	longest    = 3500 * time.Millisecond // that one of them is held open

	// leastBetween is so long that two bursts do not overlap. What does not fit
	// into bursts that are so far apart comes between them.
	leastBetween = 3 * time.Second
)

// betweenBursts is how far apart bursts are, on average, that have that share of
// the jobs, of which there are so many a second; 0: there are none.
func betweenBursts(share, rate float64) time.Duration {
	if share <= 0 {
		return 0
	}
	return max(time.Duration((rush+followers)/(share*rate)*float64(time.Second)), leastBetween)
}

// burst returns the transactions of one burst, of one job each.
func (s *schedule) burst(at time.Duration) (all []transaction) {
	queue := pick(s.rng, queues)
	add := func(from, to time.Duration) *transaction {
		t := s.transaction(at+from+time.Duration(s.rng.Int64N(int64(to-from))), 1)
		t.hold = 0
		t.orders[0].queue = queue
		t.orders[0].delay = 0 // an alarm would have somebody look
		all = append(all, t)
		return &all[len(all)-1]
	}
	for range rush {
		add(0, rushTime)
	}
	for range followers {
		t := add(followFrom, followTo)
		if s.chance(0.3) {
			t.hold = millis(s.between(200, int(longest.Milliseconds())))
		}
		if s.chance(0.3) { // its snapshot may be older than the promise
			t.via, t.rowsLast = "rr", false
			t.lull = millis(s.between(0, 300))
		}
	}
	slices.SortStableFunc(all, func(a, b transaction) int { return cmp.Compare(a.at, b.at) })
	return all
}

// next returns the next transaction: one of a burst, or one of those between
// which the times are exponential, as those of many customers who do not know of
// each other.
func (s *schedule) next() transaction {
	if len(s.bursting) == 0 && s.bursts > 0 {
		// Not all the same: what happens at fixed times would meet the same part of
		// each.
		s.begin += s.bursts*3/4 + time.Duration(s.rng.Int64N(int64(s.bursts/2)))
		s.bursting = s.burst(s.begin)
	}
	if len(s.bursting) > 0 && (s.mean == 0 || s.bursting[0].at <= s.at) {
		t := s.bursting[0]
		s.bursting = s.bursting[1:]
		return t
	}
	t := s.transaction(s.at, 1+s.rng.IntN(mostOrders))
	s.at += s.pause()
	return t
}
