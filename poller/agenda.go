package poller

import (
	"cmp"
	"slices"
	"time"
)

const (
	// jitter keeps the ticks of many processes apart: an interval is
	// stretched or shortened by up to this share of itself.
	jitter = 0.1
	// firstLook is the pause before a queue whose due job somebody else
	// holds is looked at again; it doubles from there.
	firstLook = time.Second
	// leaseSlack puts the tick behind the end of a lease. A tick that came
	// a moment too early would find nothing and wait for the guard.
	leaseSlack = 50 * time.Millisecond
	// burst bounds how many ticks may follow each other without a pause
	// because their batches were full.
	burst = 64
	// settle is how long after its cause a claim may take to be seen. A tick
	// that came sooner is followed by another.
	settle = 250 * time.Millisecond
)

// agenda decides when to tick and which queues to wake. It has no goroutine,
// no clock and does no I/O: every method is told what time it is.
type agenda struct {
	interval, deaf, guard time.Duration
	spread                func() float64 // in [0, 1): where in its jitter a tick falls

	hearing bool
	asked   bool // a tick is wanted at once; stays until one starts
	ticking bool // a tick has started and not ended
	failed  bool // the last tick failed

	others  bool          // others work, as of the last tick: watch them
	recheck time.Time     // when the last tick wanted the next, exactly; zero: it did not
	watch   time.Duration // how often to tick while others work
	pause   time.Duration // at least, before a tick because a lease ends
	began   time.Time     // when somebody may last have begun to work
	watchBy time.Time     // tick because of that by then; zero: no need

	full  int       // ticks in a row whose batch was full
	last  time.Time // end of the last tick
	lease time.Time // end of the earliest lease the last tick saw; zero: none
	tick  time.Time // when the next tick is due, unless one is in flight; zero: at once

	alarms map[string]alarm
	due    map[string]bool // queues the last tick saw a due job in
}

// alarm is when to look at one queue next. The two times are kept apart
// because they say different things: a job that falls due cannot be missed,
// a look at a job that somebody holds is only repeated ever more slowly.
type alarm struct {
	due  time.Time     // a job falls due; zero: none known
	look time.Time     // look again for a job that was held; zero: no such look
	rang time.Time     // when the last such look came
	wait time.Duration // how long that look had been waited for
}

// step is what the loop has to do now, and when to ask again.
type step struct {
	wake []string  // sorted
	tick bool      // start a tick, and tell its end by looked or failed
	next time.Time // ask again then, or earlier after any other call; zero: only after one
}

func newAgenda(interval, deaf, guard time.Duration, spread func() float64) *agenda {
	return &agenda{
		interval: interval, deaf: deaf, guard: guard, spread: spread, watch: min(guard, interval), pause: guard,
		alarms: make(map[string]alarm),
		due:    make(map[string]bool),
	}
}

// arm notes that a job of the queue falls due in the given time; an earlier
// alarm stays. A time of zero or less says that a due job is held by somebody.
func (a *agenda) arm(now time.Time, queue string, in time.Duration) {
	al := a.alarms[queue]
	switch {
	case in > 0:
		al.due = earlier(al.due, now.Add(in))
	case al.look.IsZero():
		// Still held at the look that just came: be slower. Otherwise this
		// is another job, or the same after a rest: start anew.
		if al.rang.IsZero() || now.Sub(al.rang) > al.wait {
			al.wait = 0
		}
		al.wait = min(max(2*al.wait, firstLook), a.interval)
		al.look = now.Add(al.wait)
	}
	a.alarms[queue] = al
}

// hear notes whether notifications arrive. Who has just become deaf may have
// missed some: a tick is due at once.
func (a *agenda) hear(hearing bool) {
	if a.hearing == hearing {
		return
	}
	a.hearing = hearing
	if !hearing {
		a.asked = true
	}
	a.plan()
}

// ask wants a tick at once, or, if one is in flight, right after it: that one
// may have looked already.
func (a *agenda) ask() {
	a.asked = true
}

// somebody notes that a process may begin to work about now. Whatever else is
// planned, a tick comes within one guard interval, and after the claim: many
// such notes are neither many ticks nor one that is put off for ever.
func (a *agenda) somebody(now time.Time) {
	a.began = now
	if a.watchBy.IsZero() {
		a.watchBy = now.Add(a.watch)
	}
}

// ended notes the end of a tick.
func (a *agenda) ended(now time.Time, failed bool) {
	a.ticking, a.failed, a.last, a.recheck = false, failed, now, time.Time{}
	if soonest := now.Add(a.watch); !a.watchBy.IsZero() && a.watchBy.Before(soonest) {
		a.watchBy = soonest // after a slow tick, not at once
	}
}

// looked ends a tick that succeeded.
func (a *agenda) looked(now time.Time, look Look) {
	a.watch = min(cmp.Or(look.Guard, a.guard), a.interval)
	a.pause = cmp.Or(look.LeaseGuard, a.guard)
	a.ended(now, false)
	a.others = look.Others
	if look.Recheck > 0 {
		a.recheck = now.Add(look.Recheck)
	}
	a.lease = time.Time{}
	if look.HasLease {
		a.lease = now.Add(look.Lease)
	}
	if look.Again {
		a.full++
	} else {
		a.full = 0
	}
	for queue, in := range look.Next {
		if in <= 0 {
			a.due[queue] = true
		} else {
			a.arm(now, queue, in)
		}
	}
	a.plan()
}

// fail ends a tick that failed.
func (a *agenda) fail(now time.Time) {
	a.ended(now, true)
	a.full = 0
	a.plan()
}

// plan sets the time of the next tick from what the last one left behind.
func (a *agenda) plan() {
	switch {
	case a.full > 0 && a.full%burst != 0:
		a.tick = a.last
	case a.failed || !a.hearing || a.full > 0:
		a.tick = a.last.Add(a.deaf)
	default:
		share := 1 - jitter + 2*jitter*a.spread()
		a.tick = a.last.Add(time.Duration(share * float64(a.interval)))
	}
	if !a.lease.IsZero() {
		end, soonest := a.lease.Add(leaseSlack), a.last.Add(a.pause)
		if end.Before(soonest) {
			end = soonest
		}
		a.tick = earlier(a.tick, end)
	}
	if a.others {
		a.tick = earlier(a.tick, a.last.Add(a.watch))
	}
	a.tick = earlier(a.tick, a.recheck)
}

// step takes what is due now.
func (a *agenda) step(now time.Time) step {
	var s step
	for queue, al := range a.alarms {
		rings := false
		if !al.due.IsZero() && !now.Before(al.due) {
			al.due, rings = time.Time{}, true
		}
		if !al.look.IsZero() && !now.Before(al.look) {
			al.look, al.rang, rings = time.Time{}, now, true
		}
		if rings {
			a.due[queue] = true
		}
		s.next = earlier(s.next, earlier(al.due, al.look))
		if al.due.IsZero() && al.look.IsZero() && (al.rang.IsZero() || now.Sub(al.rang) > al.wait) {
			delete(a.alarms, queue)
		} else {
			a.alarms[queue] = al
		}
	}
	for queue := range a.due {
		s.wake = append(s.wake, queue)
	}
	slices.Sort(s.wake)
	clear(a.due)

	if !a.ticking && (a.asked || !now.Before(a.tick) || !a.watchBy.IsZero() && !now.Before(a.watchBy)) {
		s.tick, a.ticking, a.asked, a.watchBy = true, true, false, time.Time{}
		if now.Sub(a.began) < settle {
			a.watchBy = now.Add(a.watch)
		}
	}
	if !a.ticking {
		s.next = earlier(s.next, earlier(a.tick, a.watchBy))
	}
	return s
}

// earlier returns the earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
