package dispatcher

import (
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// mostOutcomes bounds one trip, so that what has piled up in an outage still
// fits into the deadline of a statement.
const mostOutcomes = 1000

// outbox keeps outcomes until the database has answered each with Stored, Lost
// or Gone. Sending one twice is harmless: the fence sees to that.
type outbox struct {
	waiting []letter
	sent    [lanes][]letter // with the trip in flight on each lane, in its order
	pace    pace            // after a trip whose outcomes may not be stored

	// Memory that is used again: of the trip in flight, and of what the last one has
	// settled.
	room    [lanes][]claim.Outcome
	settled []claim.Lease
}

type letter struct {
	claim.Outcome
	// unsure: an earlier try may have been stored without our hearing of it.
	unsure bool
	busy   int       // how often somebody else held the row
	until  time.Time // not to be sent before
}

// busyCurve is how long a letter waits while somebody else holds its row.
var busyCurve = Curve{Base: 10 * time.Millisecond, Factor: 2, Jitter: -1, Cap: time.Second}

func newOutbox() outbox { return outbox{pace: databasePace()} }

func (o *outbox) put(outcome claim.Outcome) {
	o.waiting = append(o.waiting, letter{Outcome: outcome})
}

// take returns the outcomes to send now, which are good until the lane's next take.
// They are followed by one of kept and answered.
func (o *outbox) take(now time.Time, lane int) []claim.Outcome {
	if len(o.waiting) == 0 {
		return nil
	}
	outcomes := slices.Grow(o.room[lane][:0], min(len(o.waiting), mostOutcomes))
	rest := o.waiting[:0]
	for _, l := range o.waiting {
		if len(outcomes) == mostOutcomes || now.Before(l.until) {
			rest = append(rest, l)
			continue
		}
		o.sent[lane] = append(o.sent[lane], l)
		outcomes = append(outcomes, l.Outcome)
	}
	clear(o.waiting[len(rest):])
	o.waiting, o.room[lane] = rest, outcomes
	return outcomes
}

// kept says that what was sent may not be stored: all of it is sent again.
// unsure says that it may be.
func (o *outbox) kept(now time.Time, lane int, unsure bool) {
	sent := o.sent[lane]
	for i := range sent {
		sent[i].unsure = sent[i].unsure || unsure
	}
	o.waiting = append(sent, o.waiting...)
	o.sent[lane] = nil // it is part of waiting now
	o.pace.failed(now)
}

// answered takes the answers to what was sent and returns what is settled, and
// which of it was surely refused. Busy ones wait a little, each for itself. What is
// settled is good until the next call.
func (o *outbox) answered(now time.Time, lane int, results []claim.Result) (settled []claim.Lease, refused []claim.Outcome) {
	sent := o.sent[lane]
	settled = slices.Grow(o.settled[:0], len(sent))
	for i, l := range sent {
		switch results[i] {
		case claim.Busy:
			l.busy++
			l.until = now.Add(busyCurve.Delay(l.busy))
			o.waiting = append(o.waiting, l)
			continue
		case claim.Lost:
			if !l.unsure || leavesTrace(l.Verb) {
				refused = append(refused, l.Outcome)
			}
		case claim.Gone:
			if !l.unsure { // or it may have been stored, in a queue that keeps no done jobs
				refused = append(refused, l.Outcome)
			}
		}
		settled = append(settled, l.Lease)
	}
	clear(sent)
	o.sent[lane], o.settled = sent[:0], settled
	o.pace.worked()
	return settled, refused
}

// leavesTrace reports whether the database can tell an outcome that it stored
// already from one that is too late, if it knows the job at all.
func leavesTrace(v claim.Verb) bool {
	return v == claim.Done || v == claim.Dead || v == claim.Cancelled
}

// next is when take may give something that it did not give just now; zero:
// never.
func (o *outbox) next() (at time.Time) {
	for _, l := range o.waiting {
		at = earliest(at, l.until)
	}
	return at
}
