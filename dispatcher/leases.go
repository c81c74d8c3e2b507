package dispatcher

import (
	"context"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// held is a job whose lease is ours, from its claim until the database has
// taken its outcome.
type held struct {
	lease  claim.Lease
	kind   string
	slots  *slots                  // of its queue
	cancel context.CancelCauseFunc // of its handler; nil if it never had one

	// since is when the claim, or the last extension that worked, was sent:
	// the lease began no earlier.
	since time.Time
	// stuckAt is when a handler that still runs is stuck; zero: never.
	stuckAt time.Time

	running bool // the handler has not returned
	lapsed  bool // the lease has ended by our clock while it ran
	stuck   bool
	lost    bool // the database has said that the lease is another's
}

// extendable says that more of the lease is wanted. A lapsed one may still be
// ours, and its handler is about to end; that of a stuck handler is let go, so
// that the job is not kept from everybody for ever.
func (h *held) extendable() bool { return !h.lost && !h.stuck }

// leases knows every lease in hand, and decides when to extend and which are
// over. It knows no goroutine, no clock and no I/O. Leases are timed by this
// process's own monotonic clock, whatever the database can tell.
type leases struct {
	term time.Duration
	held map[claim.Lease]*held
	look time.Time // nothing is to be done before; zero: never
	pace pace      // after an extension that failed

	away  time.Time // when the extension in flight was handed out; zero: none
	awake bool      // extended since the last rest
}

func newLeases(term time.Duration) *leases {
	return &leases{term: term, held: make(map[claim.Lease]*held), pace: databasePace()}
}

// extendTime is how long an extension may take: what is not back after a third
// of the lease leaves time for another try.
func extendTime(term time.Duration) time.Duration { return min(term/3, 5*time.Second) }

func (l *leases) add(h *held) {
	l.held[h.lease] = h
	l.look = earliest(l.look, h.since.Add(l.term/3)) // nobody is stuck before
}

// drop forgets a lease whose job the database has taken back.
func (l *leases) drop(lease claim.Lease) { delete(l.held, lease) }

// duties is what is to be done about the leases, in this order.
type duties struct {
	lapsed []*held       // cancel these handlers: their leases may be over
	stuck  []*held       // these ignore the end of their timeout
	extend []claim.Lease // send this extension
	rest   bool          // no lease is in hand any more
}

// due returns what is to be done now. Each lease is extended when a third of
// it is over, and those that are soon to be go along.
func (l *leases) due(now time.Time) (d duties) {
	if len(l.held) == 0 && l.awake && l.away.IsZero() {
		l.awake, l.away, d.rest = false, now, true
	}
	if l.look.IsZero() || now.Before(l.look) {
		return d
	}
	l.look = time.Time{}
	var soon []claim.Lease
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
		if h.extendable() && l.away.IsZero() {
			extendAt = earliest(extendAt, h.since.Add(l.term/3))
			if !now.Before(h.since.Add(l.term / 6)) {
				soon = append(soon, h.lease)
			}
		}
	}
	if extendAt.IsZero() {
		return d
	}
	if extendAt = latest(extendAt, l.pace.until); now.Before(extendAt) {
		l.look = earliest(l.look, extendAt)
		return d
	}
	l.away, l.awake, d.extend = now, true, soon
	return d
}

// extended takes the answer to an extension, or to a rest, which has no
// leases. It returns the handlers to cancel.
func (l *leases) extended(now, sent time.Time, asked, lost []claim.Lease, err error) (cancel []*held) {
	l.away = time.Time{}
	if err != nil {
		l.pace.failed(now)
	} else {
		l.pace.worked()
		for _, lease := range asked {
			if h := l.held[lease]; h != nil {
				h.since = sent
			}
		}
		for _, lease := range lost {
			if h := l.held[lease]; h != nil && !h.lost {
				h.lost = true
				if h.running && !h.lapsed {
					cancel = append(cancel, h)
				}
			}
		}
	}
	l.look = now
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
