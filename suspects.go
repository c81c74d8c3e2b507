package fencepost

import (
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

const (
	// grace is how long a worker that holds jobs may be without its lock before
	// it is taken for dead: time to notice that its connection broke, and to
	// make another.
	grace = 2 * time.Second
	// longGrace is the same when everybody may have lost their connection:
	// for a worker that has not come back since the server was started, and
	// for a while after our own connection broke.
	longGrace = 10 * time.Second
	// unrest is how long after our own connection was made anew the long grace
	// is given to all.
	unrest = time.Minute
)

// suspects decides who is dead: a worker that was seen silent twice, at least
// the grace apart, under the same key, and never otherwise in between. It
// knows no goroutine, no clock and no I/O; all times are ours and monotonic.
type suspects struct {
	since     map[silence]suspicion
	redialled time.Time // when our connection was last made anew; zero: never
}

// silence is what a look sees: with another key it is another life.
type silence struct {
	worker string
	key    int32
}

type suspicion struct {
	since time.Time // the answer of the first look that saw it
	moved bool
}

// redial forgets what was seen: in the time without a connection anything may
// have happened.
func (s *suspects) redial(at time.Time) {
	s.redialled = at
	clear(s.since)
}

// dead returns whom a look that is sent now takes for dead if they are silent
// still. That look is the second sight.
func (s *suspects) dead(now time.Time) (dead []claim.Suspect) {
	for who, why := range s.since {
		if !now.Before(s.due(now, why)) {
			dead = append(dead, claim.Suspect{Worker: who.worker, Key: who.key, Moved: why.moved})
		}
	}
	return dead
}

// saw takes what a look has seen, once it is answered, and returns when it is
// to be repeated; 0: there is no need to.
func (s *suspects) saw(now time.Time, silent []claim.Suspect) (recheck time.Duration) {
	seen := make(map[silence]suspicion, len(silent))
	for _, suspect := range silent {
		who := silence{suspect.Worker, suspect.Key}
		why := suspicion{since: now, moved: suspect.Moved}
		if before, known := s.since[who]; known {
			why.since = before.since
		}
		seen[who] = why
		in := s.due(now, why).Sub(now)
		if in <= 0 {
			in = grace // it has been dealt with, or is held by somebody
		}
		if recheck == 0 || in < recheck {
			recheck = in
		}
	}
	s.since = seen
	return recheck
}

func (s *suspects) due(now time.Time, why suspicion) time.Time {
	if why.moved || !s.redialled.IsZero() && now.Sub(s.redialled) < unrest {
		return why.since.Add(longGrace)
	}
	return why.since.Add(grace)
}

// watchEvery is the time between two looks of a process while others hold
// jobs: the first two look at each other, each one behind them more slowly, so
// that many make few looks more. Not twice as slowly: of those that die
// together, as on one host, many may have been first, and those behind do not
// know it before they look.
func watchEvery(rank int, most time.Duration) time.Duration {
	return min(guard*time.Duration(max(rank, 1)), most)
}
