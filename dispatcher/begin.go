package dispatcher

import (
	"context"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// begin runs what waits for a slot of the queue, and hands back what has waited
// too long.
func (l *loop) begin(s *slots) {
	for s.waiting() > 0 {
		now := time.Now()
		switch p := s.oldest(); {
		case !now.Before(p.until):
			s.deceived()
			l.handBack(p.held)
		case s.free() <= 0 || !l.desk.begins():
			return
		case p.lost:
			l.leases.drop(p.row.Lease())
		default:
			l.start(now, p.held)
		}
		s.leave()
	}
}

// handBack returns a job that was not begun.
func (l *loop) handBack(h *held) {
	if h.lost {
		l.leases.drop(h.row.Lease())
		return
	}
	h.row.Payload, h.row.Progress = nil, nil
	l.desk.outbox.put(claim.Outcome{Lease: h.row.Lease(), Verb: claim.Return})
}

// start runs the handler of a job in hand.
func (l *loop) start(now time.Time, h *held) {
	run := task{held: h, timeout: l.cfg.Timeout(h.row.Kind)}
	run.ctx, h.cancel = context.WithCancelCause(l.base)
	if run.timeout > 0 {
		h.stuckAt = now.Add(run.timeout).Add(l.cfg.Lease) // the sum of the two may be too large for a duration
	}
	h.running = true
	h.slots.busy++
	l.runners.give(run)
}
