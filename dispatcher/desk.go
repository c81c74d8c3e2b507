package dispatcher

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// desk decides what the next trip to the database takes along and what becomes
// of what it brings back. It knows no goroutine, no clock and no I/O: the loop
// tells it the time and carries out what it says.
type desk struct {
	queues []*slots
	byName map[string]*slots
	outbox outbox
	claims pace // after a trip with a claim that did not work
	closed bool // nothing is claimed any more
	// crowded: other processes make enough trips, and there is none on the second lane.
	crowded bool
	away    [lanes]time.Time // when the trip in flight on each lane left; zero: none is
	second  second

	took time.Duration // how long the last trip was under way
	// idle is since when a trip could have left that is put off; zero: none is.
	idle time.Time
}

// mostPatience bounds how long a trip is put off.
const mostPatience = 20 * time.Millisecond

func newDesk(queues []Queue) *desk {
	d := &desk{byName: make(map[string]*slots), outbox: newOutbox(), claims: databasePace(), second: newSecond()}
	for _, q := range queues {
		s := &slots{Queue: q}
		d.queues = append(d.queues, s)
		d.byName[q.Name] = s
	}
	return d
}

// depart returns the next trip. ok is false if there is none to make now: then
// next is when to look again if nothing happens before; zero: never. With hold
// nothing is claimed for now; its end must be followed by another look.
//
// Outcomes go first. While they cannot be stored, nothing is claimed: work
// whose end nobody can record is not begun.
//
// The second lane is for what need not wait for the trip on the first: out of a
// backlog, worth a commit of its own, and while all goes well.
func (d *desk) depart(now time.Time, hold bool) (trip Trip, next time.Time, ok bool) {
	d.second.wanted = false
	if !d.away[0].IsZero() {
		trip.Lane = 1
	}
	if !d.away[trip.Lane].IsZero() {
		return Trip{}, time.Time{}, false
	}
	if !d.outbox.pace.ready(now) {
		return Trip{}, d.outbox.pace.until, false
	}
	claiming := !d.closed && !hold && d.claims.ready(now)
	if trip.Lane == 1 {
		d.second.wanted = claiming && !d.crowded && d.outbox.pace.failures+d.claims.failures == 0 && d.laden()
		if !d.second.wanted || !d.second.ready() {
			return Trip{}, time.Time{}, false
		}
	} else if claiming {
		if until := d.putOff(now); now.Before(until) {
			return Trip{}, until, false
		}
	}
	trip.Outcomes = d.outbox.take(now, trip.Lane)
	next = d.outbox.next()
	if !d.closed && !hold {
		for _, s := range d.queues {
			if claiming {
				if trip.Lane == 1 && !s.laden() {
					continue
				}
				s.woken = s.woken || s.along && len(trip.Outcomes) > 0
				if limit := s.ask(now, trip.Lane); limit > 0 {
					trip.Wants = append(trip.Wants, Want{Queue: s.Name, Limit: limit})
					continue
				}
			}
			next = earliest(next, s.next(d.claims.until))
		}
	}
	if ok = !trip.empty(); ok {
		d.away[trip.Lane], d.idle = now, time.Time{}
		d.second.busy = d.second.busy || trip.Lane == 1
	}
	return trip, next, ok
}

// laden says that there is enough for two trips at once.
func (d *desk) laden() bool { return slices.ContainsFunc(d.queues, (*slots).laden) }

// boarding says that a trip would leave now, or could if it were not put off:
// whatever is ready to go along had better do so.
func (d *desk) boarding() bool {
	return d.away[0].IsZero() || !d.crowded && d.laden() && d.second.ready()
}

// flying says that a trip is in flight.
func (d *desk) flying() bool { return d.away != [lanes]time.Time{} }

// putOff returns until when the next trip had better wait for company: during a
// backlog, while it has next to nothing to ask for, or too little for two at once
// while there is one on the second lane. It waits no longer than it would for a
// trip under way, by the last one, so that slow jobs keep no slot empty for the
// sake of one that is free later. Whatever else is to be asked does not wait: a
// queue that was woken after it had come back short is asked at once, and without
// a backlog so is a lone outcome sent.
func (d *desk) putOff(now time.Time) (until time.Time) {
	slivers := false
	for _, s := range d.queues {
		if s.called(now) {
			if !s.sliver() && (d.away[1].IsZero() || !s.backlog || s.laden()) {
				return time.Time{}
			}
			slivers = true
		}
	}
	if !slivers {
		return time.Time{}
	}
	if d.idle.IsZero() {
		d.idle = now
	}
	return d.idle.Add(min(d.took, mostPatience))
}

// begins says that jobs in hand may begin: work whose end nobody can record is
// not begun.
func (d *desk) begins() bool { return !d.closed && d.outbox.pace.failures == 0 }

// busy says that handlers run.
func (d *desk) busy() bool {
	return slices.ContainsFunc(d.queues, func(s *slots) bool { return s.busy > 0 })
}

// landing is what a trip has come to.
type landing struct {
	settled []claim.Lease   // no longer in hand
	refused []claim.Outcome // of these, those that came too late
	start   []arrival       // to be run, as slots become free
	back    []claim.Row     // ours, but not to be run here: to be handed back
	short   []shortfall
}

// arrival is what a queue has brought.
type arrival struct {
	slots *slots
	rows  []claim.Row
}

// shortfall says that a queue has nothing more that is due, and when it will,
// or may.
type shortfall struct {
	queue string
	next  time.Duration
}

// land takes what a trip has brought back. late says that it took so long that
// too little is left of the leases it brings.
func (d *desk) land(now time.Time, trip Trip, haul Haul, late bool) (l landing) {
	d.took, d.away[trip.Lane] = now.Sub(d.away[trip.Lane]), time.Time{}
	worked := haul.FinishErr == nil && haul.ClaimErr == nil
	if trip.Lane == 1 {
		d.second.landed(now, worked)
	}
	if len(trip.Outcomes) > 0 {
		if haul.FinishErr != nil {
			d.outbox.kept(now, trip.Lane, errors.Is(haul.FinishErr, claim.ErrUnknown))
		} else {
			l.settled, l.refused = d.outbox.answered(now, trip.Lane, haul.Results)
		}
	}
	wasted := false
	for i, want := range trip.Wants {
		var got claim.Claimed
		if i < len(haul.Claimed) {
			got = haul.Claimed[i]
		}
		// Whatever the database calls ours is run or handed back, even what we
		// have not asked for.
		run := min(len(got.Rows), want.Limit)
		if late || d.closed {
			run = 0
		}
		s := d.byName[want.Queue]
		s.took(trip.Lane, worked)
		if run > 0 {
			l.start = append(l.start, arrival{s, got.Rows[:run]})
		}
		l.back = append(l.back, got.Rows[run:]...)
		unused := run < min(len(got.Rows), want.Limit)
		wasted = wasted || unused
		held := got.HasNext && got.Next <= 0
		if worked && !unused && s.looked(now, trip.Lane, want.Limit, len(got.Rows), held) {
			if got.HasNext {
				l.short = append(l.short, shortfall{want.Queue, got.Next})
			}
			if got.Again > 0 {
				l.short = append(l.short, shortfall{want.Queue, got.Again})
			}
		}
	}
	for _, s := range d.queues {
		s.measure(now, d.took, s.backlog)
	}
	switch {
	case len(trip.Wants) == 0 || haul.FinishErr != nil:
	case haul.ClaimErr != nil || wasted:
		d.claims.failed(now)
		// Claims that are made one by one end at the first that does not work. The
		// next trip begins with another queue, or one whose claims never work
		// would keep those behind it from being asked at all.
		d.queues = append(d.queues[1:], d.queues[0])
	default:
		d.claims.worked()
	}
	return l
}

// check makes an error of a haul that does not keep to the Store's contract,
// so that nothing of the trip is taken for stored.
func check(trip Trip, haul Haul) Haul {
	if haul.FinishErr == nil && len(haul.Results) != len(trip.Outcomes) {
		haul.FinishErr = fmt.Errorf("%d results for %d outcomes", len(haul.Results), len(trip.Outcomes))
	}
	return haul
}
