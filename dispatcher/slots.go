package dispatcher

import "time"

// echo is how soon an empty claim after a wake-up is repeated, once, if the
// claim has seen a due job in the hands of somebody, who may let go of it.
const echo = 50 * time.Millisecond

// mostRows bounds one claim. Larger ones cost no less for each row, and none of
// their jobs begins before the last has arrived.
const mostRows = 500

// slots decides for one queue when to claim and how much.
type slots struct {
	Queue
	busy  int        // taken, those of stuck handlers included
	stuck int        // handlers in whose place a spare may be opened
	asked [lanes]int // the limit of the claim in flight on each lane; 0: none

	// woken is the sticky wake-up: a claim is called for. It is cleared only
	// by a claim that succeeded, came back short, and was sent after the last
	// wake-up.
	woken bool
	rang  [lanes]bool // woken again since the claim in flight on the lane was sent
	along bool        // a trip with outcomes claims as well
	// backlog: the last claim that worked brought all that it asked for, so there
	// is more where it came from.
	backlog bool
	ahead
	// repeat is when an empty claim is repeated; zero: it is not.
	repeat   time.Time
	repeated bool // the last claim was such a repetition, or is to be
}

// free is how many handlers may begin now.
func (s *slots) free() int { return s.Slots + min(s.stuck, s.Spares) - s.busy }

// room is how many jobs may be claimed now.
func (s *slots) room() int { return s.free() + s.most - s.waiting() - s.asking() }

// full is how many a claim brings that is worth a trip of its own.
func (s *slots) full() int { return min(s.Slots+s.most, mostRows) }

// asking is for how many jobs room is kept: what claims in flight bring.
func (s *slots) asking() (n int) {
	for _, asked := range s.asked {
		n += asked
	}
	return n
}

func (s *slots) wake() {
	s.woken = true
	for lane := range s.rang {
		s.rang[lane] = true
	}
	s.repeat, s.repeated = time.Time{}, false
}

// called says that a claim is called for and that there is room for what it
// brings.
func (s *slots) called(now time.Time) bool {
	return (s.woken || !s.repeat.IsZero() && !now.Before(s.repeat)) && s.room() > 0
}

// sliver says that the claim that is called for would be one of many small ones:
// out of a backlog, for less than a quarter of what one claim may bring.
func (s *slots) sliver() bool { return s.backlog && 4*s.room() < s.full() }

// laden says that the claim that is called for is worth a commit beside another
// one: out of a backlog, for half of what one claim may bring, so that two of them
// share the slots.
func (s *slots) laden() bool { return s.backlog && 2*s.room() >= s.full() }

// ask returns the limit of the claim to send now; 0: none. Every ask is
// followed by one took.
func (s *slots) ask(now time.Time, lane int) int {
	if !s.called(now) {
		return 0
	}
	if !s.woken {
		s.woken, s.repeat = true, time.Time{}
	}
	limit := min(s.room(), mostRows)
	s.asked[lane], s.rang[lane] = limit, false
	return limit
}

// took ends an ask. After a claim that failed or was not made the queue is woken:
// another one may have come back short meanwhile, because this one held the rows.
func (s *slots) took(lane int, worked bool) {
	s.asked[lane] = 0
	s.woken = s.woken || !worked
}

// looked says that the claim of the given limit has worked, how many rows it
// found, and whether it has seen a due job that somebody holds. It reports
// whether it came back short: nothing more is to be had now.
func (s *slots) looked(now time.Time, lane, limit, rows int, held bool) (short bool) {
	s.backlog = rows >= limit
	if s.backlog {
		s.woken = true // also if one beside it has come back short
		return false
	}
	if !s.rang[lane] {
		s.woken = false
		if rows == 0 && held && !s.repeated {
			s.repeat, s.repeated = now.Add(echo), true
		}
	}
	return true
}

// next is when ask may give something that it did not give just now, unless
// something happens before; zero: never.
func (s *slots) next(paced time.Time) time.Time {
	switch {
	case s.room() <= 0:
		return time.Time{}
	case s.woken:
		return paced
	case !s.repeat.IsZero():
		return latest(s.repeat, paced)
	}
	return time.Time{}
}
