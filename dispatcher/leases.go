package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// held is a job whose lease is ours, from its claim until the database has
// taken its outcome.
type held struct {
	row    claim.Row               // its handler's too, as long as that runs
	slots  *slots                  // of its queue
	cancel context.CancelCauseFunc // of its handler; nil if it never had one

	// since is when the claim, or the last extension that worked, was sent:
	// the lease began no earlier.
	since time.Time
	// stuckAt is when a handler that still runs is stuck; zero: never.
	stuckAt time.Time

	running   bool // the handler has not returned
	lapsed    bool // the lease has ended by our clock while it ran
	stuck     bool
	lost      bool // the database has said that the lease is ours no longer
	cancelled bool // lost, because an operator has cancelled the job
}

// extendable says that more of the lease is wanted. A lapsed one may still be
// ours, and its handler is about to end; that of a stuck handler is let go, so
// that the job is not kept from everybody for ever.
func (h *held) extendable() bool { return !h.lost && !h.stuck }

// leases knows every lease in hand, and decides when to extend or check and which
// are over. It knows no goroutine, no clock and no I/O. Leases are timed by this
// process's own monotonic clock, whatever the database can tell.
type leases struct {
	term time.Duration
	held map[claim.Lease]*held
	open map[int64]int // how many of each claim are in hand, by Row.Claim
	over []int64       // claims of which nothing is in hand, and which no trip has closed
	look time.Time     // nothing is to be done before; zero: never
	pace pace          // after an extension that failed

	recalled bool // a check is wanted of all that is in hand
	checks   pace // after a check that failed

	away  time.Time // when the order in flight was handed out; zero: none
	awake bool      // extended or checked since the last rest
}

func newLeases(term time.Duration) *leases {
	return &leases{term: term, held: make(map[claim.Lease]*held), open: make(map[int64]int), pace: databasePace(), checks: databasePace()}
}

// extendTime is how long an extension may take: what is not back after a third
// of the lease leaves time for another try.
func extendTime(term time.Duration) time.Duration { return min(term/3, 5*time.Second) }

// checkTime is how long a check may take, which an extension may have to wait
// for.
func checkTime(term time.Duration) time.Duration { return extendTime(term) / 2 }

func (l *leases) add(h *held) {
	l.held[h.row.Lease()] = h
	l.open[h.row.Claim]++
	l.look = earliest(l.look, h.since.Add(l.term/3)) // nobody is stuck before
}

// recall wants a check of all leases that are in hand by now.
func (l *leases) recall(now time.Time) {
	l.recalled, l.look = true, now
}

// drop forgets a lease whose job the database has taken back.
func (l *leases) drop(lease claim.Lease) {
	h := l.held[lease]
	if h == nil {
		return
	}
	delete(l.held, lease)
	if l.open[h.row.Claim]--; l.open[h.row.Claim] == 0 {
		delete(l.open, h.row.Claim)
		if h.row.Claim != 0 {
			l.over = append(l.over, h.row.Claim)
		}
	}
}

// close says with which of the outcomes, if all of them are stored, nothing of a
// claim is in hand any more. Others take along claims of which that is so already:
// what was left of them was under way on both lanes at once.
func (l *leases) close(outcomes []claim.Outcome) {
	if len(outcomes) == 0 {
		return
	}
	going := make(map[int64]int)
	for i, o := range outcomes {
		h := l.held[o.Lease]
		if h == nil || h.row.Claim == 0 {
			continue
		}
		going[h.row.Claim]++
		if going[h.row.Claim] == l.open[h.row.Claim] {
			outcomes[i].Closes = h.row.Claim
		}
	}
	over := l.over
	for i := range outcomes {
		if len(over) > 0 && outcomes[i].Closes == 0 {
			outcomes[i].Closes, over = over[0], over[1:]
		}
	}
}

// closed takes the outcomes that a trip has stored, after what it has settled was
// dropped.
func (l *leases) closed(outcomes []claim.Outcome) {
	if len(l.over) == 0 {
		return
	}
	for _, o := range outcomes {
		if o.Closes != 0 {
			l.over = slices.DeleteFunc(l.over, func(c int64) bool { return c == o.Closes })
		}
	}
}

// duties is what is to be done about the leases, in this order.
type duties struct {
	lapsed []*held // cancel these handlers: their leases may be over
	stuck  []*held // these ignore the end of their timeout
	order  *order  // send this to the keeper
}

// due returns what is to be done now. Each lease is extended when a third of
// it is over, and those that are soon to be go along. A check waits for an
// extension that is due, since it could hold that up for longer than the other
// way round.
func (l *leases) due(now time.Time) (d duties) {
	if len(l.held) == 0 {
		l.recalled = false
		if l.awake && l.away.IsZero() {
			l.awake, l.away, d.order = false, now, &order{}
		}
	}
	if l.look.IsZero() || now.Before(l.look) {
		return d
	}
	l.look = time.Time{}
	var all, soon []claim.Lease
	var extendAt time.Time
	for _, h := range l.held {
		if h.running && !h.stuck && !h.stuckAt.IsZero() {
			if h.stuck = !now.Before(h.stuckAt); h.stuck {
				d.stuck = append(d.stuck, h)
			} else {
				l.look = earliest(l.look, h.stuckAt)
			}
		}
		if h.running && !h.lapsed && !h.stuck && !h.lost {
			end := h.since.Add(l.term)
			if h.lapsed = !now.Before(end); h.lapsed {
				d.lapsed = append(d.lapsed, h)
			} else {
				l.look = earliest(l.look, end)
			}
		}
		if !h.lost && l.away.IsZero() {
			all = append(all, h.row.Lease())
		}
		if h.extendable() && l.away.IsZero() {
			extendAt = earliest(extendAt, h.since.Add(l.term/3))
			if !now.Before(h.since.Add(l.term / 6)) {
				soon = append(soon, h.row.Lease())
			}
		}
	}
	if !l.away.IsZero() {
		return d // its answer makes us look again
	}
	l.recalled = l.recalled && len(all) > 0
	if !extendAt.IsZero() {
		extendAt = latest(extendAt, l.pace.until)
	}
	switch {
	case !extendAt.IsZero() && !now.Before(extendAt):
		d.order = &order{leases: soon}
	case l.recalled && l.checks.ready(now):
		l.recalled = false
		d.order = &order{leases: all, check: true}
	}
	if d.order != nil {
		l.away, l.awake = now, true
		return d
	}
	l.look = earliest(l.look, extendAt)
	if l.recalled {
		l.look = earliest(l.look, l.checks.until)
	}
	return d
}

// answered takes the answer to an order. It returns the handlers to cancel.
func (l *leases) answered(now time.Time, k kept) (cancel []*held) {
	l.away, l.look = time.Time{}, now
	switch {
	case k.err != nil && k.check:
		l.checks.failed(now)
		l.recalled = true
		return nil
	case k.err != nil:
		l.pace.failed(now)
		return nil
	case k.check:
		l.checks.worked()
	default:
		l.pace.worked()
		for _, lease := range k.leases {
			if h := l.held[lease]; h != nil {
				h.since = k.sent
			}
		}
	}
	for _, loss := range k.lost {
		if h := l.held[loss.Lease]; h != nil && !h.lost {
			h.lost = true
			// Not one whose handler has returned: that its outcome comes too late
			// is news.
			h.cancelled = h.running && loss.Reason == claim.ReasonCancelled
			if h.cancelled || h.running && !h.lapsed {
				cancel = append(cancel, h)
			}
		}
	}
	return cancel
}

// failing says that leases in hand may run out because extending them does not
// work: no time to take on more.
func (l *leases) failing(now time.Time) bool {
	if l.pace.failures == 0 && (l.away.IsZero() || now.Before(l.away.Add(extendTime(l.term)))) {
		return false
	}
	for _, h := range l.held {
		if h.extendable() {
			return true
		}
	}
	l.pace.worked() // nothing is left that could show whether it works again
	return false
}
