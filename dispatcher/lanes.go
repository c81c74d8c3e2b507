package dispatcher

import "time"

// lanes is how many trips may be under way at once, each over a connection of
// its own. A third would only share the processors with the other two.
const lanes = 2

// mostBeside is how many processes beside this one are enough to keep the server busy
// with one trip each. Two of each would only share its processors, and step over
// what the others have in hand.
const mostBeside = 7

// closeAfter is how long the second lane keeps its connection without a trip.
const closeAfter = 5 * time.Second

// second decides when the second lane has a connection: one is made when a trip
// would go over it, and closed when none has for a while. It is made without any
// trip, so that nothing has to wait for one that cannot be had. It knows no
// goroutine, no clock and no I/O.
type second struct {
	wanted bool      // a trip would go over it now
	open   bool      // there is one, as far as we know
	busy   bool      // a trip is under way over it, or it is being opened or closed
	used   time.Time // when it was opened, or the last trip over it was back
	pace   pace      // after it could not be opened, or a trip over it did not work
}

func newSecond() second {
	// What it is for can wait, and whoever refuses it may need the connection.
	return second{pace: pace{curve: Curve{Base: time.Second, Factor: 2, Jitter: 0.2, Cap: time.Minute}}}
}

// ready says that a trip may go over the connection.
func (s *second) ready() bool { return s.open && !s.busy && !s.used.IsZero() }

// order says whether the connection is to be opened, or else closed, now; ok is
// false if neither. It is followed by one of changed.
func (s *second) order(now time.Time) (open, ok bool) {
	switch {
	case s.busy:
	case s.open:
		ok = !now.Before(s.used.Add(closeAfter))
	default:
		open = s.wanted && s.pace.ready(now)
		ok = open
	}
	s.busy = s.busy || ok
	return open, ok
}

// changed takes the answer to an order.
func (s *second) changed(now time.Time, open bool, err error) {
	s.busy, s.open, s.used = false, open && err == nil, now
	if err != nil {
		s.pace.failed(now)
	}
}

// landed says that a trip over the connection is back, and whether it has
// worked. After one that has not, whatever the reason, one lane will do for now.
func (s *second) landed(now time.Time, worked bool) {
	s.busy, s.used = false, now
	if worked {
		s.pace.worked()
	} else {
		s.used = time.Time{} // to be closed
		s.pace.failed(now)
	}
}

// look is when order may say something that it did not say just now, unless
// something happens before; zero: never.
func (s *second) look() time.Time {
	if s.ready() {
		return s.used.Add(closeAfter)
	}
	return time.Time{}
}
