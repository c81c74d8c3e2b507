package dispatcher

import "time"

const (
	// storingTime is how long a stop tries to store outcomes after the last
	// handler had to be done.
	storingTime = 4 * time.Second
	// leavingTime is how long calls of the Store may take to return after
	// their contexts were cancelled at the very end.
	leavingTime = time.Second
)

type phase int

const (
	working    phase = iota
	draining         // nothing is claimed, handlers go on
	cancelling       // handlers are cancelled
	storing          // handlers are left behind, outcomes are still stored
	over
)

// stop times the end of a Run: which phase it is in follows from when the
// stop, and the hurry, began.
type stop struct {
	soft, hard time.Duration
	begun      time.Time // zero: not yet
	hurried    time.Time // zero: not
}

// end returns when the given phase is over; zero: not before the stop begins.
func (s *stop) end(p phase) time.Time {
	if s.begun.IsZero() {
		return time.Time{}
	}
	end := s.begun
	if p >= draining {
		end = end.Add(s.soft)
		if !s.hurried.IsZero() && s.hurried.Before(end) {
			end = latest(s.hurried, s.begun)
		}
	}
	if p >= cancelling {
		end = end.Add(s.hard)
	}
	if p >= storing {
		end = end.Add(storingTime)
	}
	return end
}

func (s *stop) phase(now time.Time) phase {
	p := working
	for ; p < over; p++ {
		if end := s.end(p); end.IsZero() || now.Before(end) {
			break
		}
	}
	return p
}
