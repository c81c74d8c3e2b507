package poller

import "time"

const (
	// PromiseLength is how long a promise is for.
	PromiseLength = 2 * time.Second
	// renewEvery is how often it is renewed: a renewal that comes late by less
	// than the rest is not missed.
	renewEvery = time.Second

	// hot is how many bells, heard within heat, make a promise worth it: a look
	// every few milliseconds then costs less than they do.
	hot  = 30
	heat = 300 * time.Millisecond
	// lookEvery is the pause between two looks while it is promised to look.
	lookEvery = 3 * time.Millisecond
	// worth is how many jobs must be found within worthTime for a promise to go
	// on: half of what makes one.
	worth     = 50
	worthTime = time.Second

	// full is how long all slots may be taken before this process is no good for
	// a promise: others may be free, and would not hear of new jobs.
	full = 50 * time.Millisecond
	// moreEvery is the least time between two bells that tell others that there
	// may be more than this process has slots for.
	moreEvery = 20 * time.Millisecond

	// patience is how long after the end of a promise others wait for news of
	// it, and patienceSpread how much longer, at most: one of them is first.
	patience       = 200 * time.Millisecond
	patienceSpread = 300 * time.Millisecond

	// restless is the longest pause between two attempts to end a promise while
	// transactions are open that were silent, and weary after wearyAfter.
	restless   = 100 * time.Millisecond
	weary      = time.Second
	wearyAfter = 10 * time.Second

	// refusedFor is how long a process that was refused a promise, for a reason
	// that may pass, does not ask again.
	refusedFor = 10 * time.Second
)

// QuietAsk is what the database is to be asked for.
type QuietAsk int

const (
	AskNothing QuietAsk = iota
	// AskPromise: promise to look for PromiseLength from now on.
	AskPromise
	// AskRevoke: take back the promise, and see whether anybody who was silent
	// is left.
	AskRevoke
	// AskMore: wake the others, there may be more jobs than slots here.
	AskMore
)

// QuietStep is what is to be done now, and when to ask again.
type QuietStep struct {
	Look bool     // look into the queue
	Busy bool     // look along with whatever else goes to the database
	Ask  QuietAsk // if not AskNothing, an answer has to follow
	// Promise is the promise to renew or to revoke; 0: none.
	Promise int64
	Next    time.Time // zero: only after another call
}

// Quiet decides for one queue whether this process promises to look into it so
// often that its bell need not ring. It has no goroutine, no clock and does no
// I/O: every method is told what time it is.
//
//	            hot, and a slot is free           a worthless second, or no
//	listening ─────────────────────────▶ promised ─── slot free for long ───┐
//	    ▲  ▲                                ▲                               ▼
//	    │  │                                └────────── hot again ────── ending
//	    │  └─ revoked, alone, looked ───────────────────────────────────────┤
//	    │                                                                   │
//	    └── another's promise ended, and nobody has said so ────────────────┘
//
// Ending goes in this order: revoke, so that those who come now ring; wait until
// nobody is left who was silent and has not committed, with looks meanwhile; look
// once more. Whoever sees that another's promise was never ended does the same in
// his place.
type Quiet struct {
	Spread func() float64 // in [0, 1): how patient this process is with others

	phase  quietPhase
	asking QuietAsk // the question that is not yet answered
	mine   int64    // the promise that is to be kept or ended; 0: none
	deaf   bool     // notifications are not heard, so there is no reason to promise

	// Bells heard since began.
	began time.Time
	bells int
	// refused is until when no promise is asked for.
	refused time.Time

	claims  int       // under way
	claimed time.Time // when the last one ended
	full    bool      // it took as many jobs as there were slots free

	others bool      // others work the queue
	renew  time.Time // when to renew
	more   time.Time // when the others may be woken again
	since  time.Time // of this worthTime
	found  int       // jobs in it

	ending time.Time     // since when
	again  time.Time     // when to try again to end it
	pause  time.Duration // before that

	another int64     // somebody else's promise, as it was last heard of; 0: none
	holds   time.Time // until when it holds
	overdue time.Time // when to end it in his place
}

type quietPhase int

const (
	listening quietPhase = iota
	promised
	ending
)

// Heard takes a bell of the queue. It returns whether Step has something to say.
func (q *Quiet) Heard(now time.Time) bool {
	if q.phase == promised {
		return false
	}
	if now.Sub(q.began) > heat {
		q.began, q.bells = now, 0
	}
	q.bells++
	return q.bells == hot
}

// Hearing says whether notifications are heard.
func (q *Quiet) Hearing(hearing bool) { q.deaf = !hearing }

// Hushed takes the news of a promise, which holds for the given time.
func (q *Quiet) Hushed(now time.Time, promise int64, in time.Duration) {
	if promise == q.mine {
		return // our own
	}
	q.another, q.holds = promise, now.Add(min(in, PromiseLength))
	q.overdue = q.holds.Add(patience + time.Duration(q.Spread()*float64(patienceSpread)))
}

// Claiming says that a claim of the queue begins, maybe beside another.
func (q *Quiet) Claiming() { q.claims++ }

// Claimed says that one has ended, and, if it has worked, how many jobs it asked
// for and found. It returns whether Step may have something new to say.
func (q *Quiet) Claimed(now time.Time, worked bool, limit, found int) bool {
	q.claims--
	if worked {
		q.claimed, q.full = now, found >= limit
		q.found += found
	}
	return q.phase == promised
}

// Step takes what is due now.
func (q *Quiet) Step(now time.Time) (s QuietStep) {
	s.Look, s.Ask = q.look(now), AskNothing
	if q.asking == AskNothing {
		s.Ask = q.ask(now)
		q.asking = s.Ask
	}
	s.Promise, s.Busy = q.mine, q.phase == promised
	if q.asking == AskNothing {
		switch q.phase {
		case listening:
			s.Next = q.overdue
		case promised:
			s.Next = earlier(q.renew, q.since.Add(worthTime))
			if q.full && q.claims == 0 && q.others {
				s.Next = earlier(s.Next, later(q.claimed.Add(full), now.Add(lookEvery)))
			}
		case ending:
			s.Next = q.again
		}
	}
	if q.phase == promised && q.claims == 0 && !q.full {
		s.Next = earlier(s.Next, q.claimed.Add(lookEvery))
	}
	return s
}

// look says whether the time has come for the next look of a promise. One that
// has found all slots taken is followed by another as soon as a slot is free,
// without being asked for.
func (q *Quiet) look(now time.Time) bool {
	if q.phase != promised || q.claims > 0 || q.full || now.Before(q.claimed.Add(lookEvery)) {
		return false
	}
	q.claimed = now // at least so long until the next
	return true
}

func (q *Quiet) ask(now time.Time) QuietAsk {
	crowded := q.full && q.claims == 0 && now.Sub(q.claimed) > full
	burning := q.bells >= hot && now.Sub(q.began) <= heat && !q.deaf && !crowded
	switch q.phase {
	case listening:
		switch {
		case !q.overdue.IsZero() && !now.Before(q.overdue):
			q.end(now, q.another)
			q.another, q.overdue = 0, time.Time{}
			return AskRevoke
		case burning && !now.Before(q.refused) && !now.Before(q.holds):
			q.bells = 0
			return AskPromise
		}
	case promised:
		idle := false
		if !now.Before(q.since.Add(worthTime)) {
			idle = q.found < worth && !q.full
			q.since, q.found = now, 0
		}
		switch {
		case idle || q.deaf || crowded && q.others:
			q.end(now, q.mine)
			return AskRevoke
		case q.full && q.others && !now.Before(q.more):
			q.more = now.Add(moreEvery)
			return AskMore
		case !now.Before(q.renew):
			return AskPromise
		}
	case ending:
		switch {
		case burning && !now.Before(q.holds):
			q.bells = 0
			return AskPromise
		case !now.Before(q.again):
			return AskRevoke
		}
	}
	return AskNothing
}

func (q *Quiet) end(now time.Time, promise int64) {
	q.phase, q.mine = ending, promise
	q.ending, q.again, q.pause = now, now, lookEvery
	q.bells = 0
}

// Promised answers AskPromise: what is promised now, or what holds of another's
// promise, for the given time; both 0: it was refused. others says whether others
// work the queue.
func (q *Quiet) Promised(now time.Time, promise, another int64, in time.Duration, others bool) {
	q.asking = AskNothing
	switch {
	case promise != 0:
		if q.phase != promised {
			q.since, q.found, q.more = now, 0, now
		}
		q.phase, q.mine, q.others, q.renew = promised, promise, others, now.Add(renewEvery)
		if q.another == promise {
			q.another, q.overdue = 0, time.Time{} // heard before it was answered
		}
	case another != 0:
		// What was silent because of us is his to find.
		q.phase, q.mine = listening, 0
		q.Hushed(now, another, in)
	default:
		q.refused = now.Add(refusedFor)
		if q.phase == promised {
			q.end(now, q.mine)
		}
	}
}

// Revoked answers AskRevoke: whether nobody is left who was silent, or what holds
// of another's promise. It returns whether this was the end: then look once more,
// whatever was seen before. Otherwise look too.
func (q *Quiet) Revoked(now time.Time, alone bool, another int64, in time.Duration) (end bool) {
	q.asking = AskNothing
	switch {
	case alone:
		q.phase, q.mine = listening, 0
	case another != 0:
		q.phase, q.mine = listening, 0
		q.Hushed(now, another, in)
	case now.Sub(q.ending) > wearyAfter:
		q.again = now.Add(weary)
	default:
		q.again = now.Add(q.pause)
		q.pause = min(2*q.pause, restless)
	}
	return alone
}

// Told answers AskMore.
func (q *Quiet) Told() { q.asking = AskNothing }

// Failed answers any of them: it may have happened or not. never says that this
// process will not be able to promise at all.
func (q *Quiet) Failed(now time.Time, never bool) {
	asked := q.asking
	q.asking = AskNothing
	q.refused = now.Add(refusedFor)
	if never {
		q.refused = now.Add(24 * time.Hour)
	}
	switch {
	case q.phase == promised && asked == AskMore:
	case q.phase == promised:
		q.end(now, q.mine)
		q.again = now.Add(restless)
	case q.phase == ending:
		q.again = now.Add(weary)
	}
}

// Mine is the promise that this process has to end; 0: none.
func (q *Quiet) Mine() int64 { return q.mine }

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
