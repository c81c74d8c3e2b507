package dispatcher

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// Run works the queues until ctx is done and then stops: it claims no more,
// waits up to SoftStop for the handlers, cancels those that are left (cause
// ErrStopping), waits up to HardStop, and hands the jobs of those that still
// run back to be claimed at once. It returns when every outcome is stored.
// Leases are extended until then.
//
// It returns nil when nothing was left behind. Otherwise, at most 5 s after
// SoftStop and HardStop, the error wraps ErrStuck and says what: handlers, by
// the ids of their jobs; outcomes that could not be stored; a call of the
// Store that has not returned. The leases of such jobs run out.
//
// Handlers get ctx's values, not its end. Run is called once.
func (d *Dispatcher) Run(ctx context.Context) error {
	storeCtx, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	l := &loop{
		Dispatcher: d,
		base:       context.WithoutCancel(ctx),
		desk:       newDesk(d.cfg.Queues),
		leases:     newLeases(d.cfg.Lease),
		stop:       stop{soft: d.cfg.SoftStop, hard: d.cfg.HardStop},
		reports:    make(chan report, roomFor(d.cfg.Queues)),
		gone:       make(chan struct{}),
		returns:    make(chan returned, lanes),
		orders:     make(chan order, 1),
		answers:    make(chan kept, 1),
		storing:    trouble{logger: d.cfg.Logger, bad: "outcomes cannot be stored; nothing is claimed until they can", good: "outcomes are stored again"},
		claiming:   trouble{logger: d.cfg.Logger, bad: "claims do not work", good: "claims work again"},
		extending:  trouble{logger: d.cfg.Logger, bad: "leases cannot be extended; nothing is claimed until they can", good: "leases are extended again"},
		checking:   trouble{logger: d.cfg.Logger, bad: "jobs in hand cannot be checked after a recall", good: "jobs in hand are checked again"},
	}
	callers := make(chan struct{}, lanes+1)
	for lane := range lanes {
		errands := make(chan errand, 1)
		l.errands[lane] = errands
		go func() { exchange(storeCtx, d.cfg.Store, errands, l.returns); callers <- struct{}{} }()
	}
	go func() {
		keep(storeCtx, d.cfg.Store, d.cfg.Lease, l.orders, l.answers)
		callers <- struct{}{}
	}()

	l.runners = newRunners(roomFor(d.cfg.Queues), l.work)

	l.run(ctx)

	close(l.gone)
	l.runners.end()
	for _, errands := range l.errands {
		close(errands)
	}
	close(l.orders)
	hangUp()
	if len(l.left) == 0 {
		l.runners.wait()
	}
	return l.farewell(callers)
}

// loop is the one goroutine that owns slots and leases. Everything it decides
// is decided by desk, leases and stop; everything that takes time is done by
// another goroutine.
type loop struct {
	*Dispatcher
	base   context.Context // of handlers
	desk   *desk
	leases *leases
	stop   stop
	phase  phase
	left   []int64 // jobs whose handlers were left behind
	// recallNew: there was a recall while a trip was under way on the lane, which
	// may bring jobs that it was meant for.
	recallNew [lanes]bool

	runners *runners
	reports chan report
	gone    chan struct{}      // closed: nobody takes reports any more
	errands [lanes]chan errand // to and from exchange; at most one is under way on each lane
	returns chan returned
	orders  chan order // to and from keep; at most one is under way
	answers chan kept

	storing, claiming, extending, checking trouble
}

func (l *loop) run(ctx context.Context) {
	done, hurry := ctx.Done(), l.stopNow
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-done:
		case <-hurry:
			hurry, l.stop.hurried = nil, time.Now()
		case <-l.poke:
			l.hear()
		case r := <-l.reports:
			l.ended(r)
		case r := <-l.returns:
			l.returned(r)
		case k := <-l.answers:
			l.kept(k)
		case <-timer.C:
		}
		if done != nil && ctx.Err() != nil { // before anything more is claimed
			done, l.stop.begun = nil, time.Now()
		}
		l.gather()
		next, more := l.turn(time.Now())
		if !more {
			return
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// roomFor returns for how many reports there should be room, so that handlers
// that end together need not wait for the loop.
func roomFor(queues []Queue) int {
	slots := 0
	for _, q := range queues {
		slots += min(q.Slots, mostRows)
	}
	return min(slots, 2*mostRows)
}

// gather takes the reports of the handlers: what has piled up shares one trip.
// Before a trip can begin, handlers that are ready to run are let go first, as
// long as that brings reports: those of jobs that take no time go together then.
func (l *loop) gather() {
	for yields := 0; ; yields++ {
		news := len(l.reports) > 0
		for len(l.reports) > 0 { // at most one for each handler
			l.ended(<-l.reports)
		}
		if !l.desk.boarding() || !l.desk.busy() || yields > 0 && !news || yields == 3 {
			return
		}
		runtime.Gosched()
	}
}

// turn carries out what is to be done by now. It returns when to look again if
// nothing happens before (zero: never), and whether there is anything left.
func (l *loop) turn(now time.Time) (next time.Time, more bool) {
	l.advance(now)
	l.tend(now)
	for _, s := range l.desk.queues {
		l.begin(s)
	}
	l.inHand.Store(int64(len(l.leases.held)))
	for {
		trip, again, ok := l.desk.depart(now, l.leases.failing(now))
		next = again
		if !ok {
			break
		}
		l.leases.close(trip.Outcomes)
		l.errands[trip.Lane] <- errand{trip: trip}
	}
	if open, ok := l.desk.second.order(now); ok {
		l.errands[1] <- errand{open: open}
	}
	next = earliest(next, l.desk.second.look())
	next = earliest(next, l.leases.look)
	next = earliest(next, l.runners.rest(now))
	for _, s := range l.desk.queues {
		next = earliest(next, s.look())
	}
	next = earliest(next, l.stop.end(l.phase))
	finished := l.phase > working && len(l.leases.held) == 0 && !l.desk.flying()
	return next, !finished && l.phase < over
}

// hear takes over the wake-ups and recalls since it last did.
func (l *loop) hear() {
	if l.recalled.Swap(false) {
		l.leases.recall(time.Now())
		for lane, left := range l.desk.away {
			l.recallNew[lane] = !left.IsZero()
		}
	}
	for name, flag := range l.rung {
		if flag.Swap(false) {
			l.desk.byName[name].wake()
		}
	}
	for name, flag := range l.along {
		l.desk.byName[name].along = flag.Load()
	}
	l.desk.crowded = l.beside.Load() >= mostBeside
}

// advance carries out what begins with a new phase of the stop. One that lasts
// no time is not skipped.
func (l *loop) advance(now time.Time) {
	for ; l.phase < l.stop.phase(now); l.phase++ {
		switch l.phase + 1 {
		case draining:
			l.desk.closed = true
			for _, s := range l.desk.queues {
				for s.waiting() > 0 {
					l.handBack(s.oldest().held)
					s.leave()
				}
			}
			l.cfg.Logger.Info("stopping: nothing is claimed any more", "in hand", len(l.leases.held))
		case cancelling:
			for _, h := range l.running() {
				h.cancel(ErrStopping)
			}
		case storing:
			for _, h := range l.running() {
				h.running = false
				l.left = append(l.left, h.row.ID)
				l.desk.outbox.put(claim.Outcome{
					Lease: h.row.Lease(),
					Verb:  claim.Release,
					Error: fmt.Sprintf("%v: its handler did not return", ErrStopping),
				})
			}
		}
	}
}

func (l *loop) running() (running []*held) {
	for _, h := range l.leases.held {
		if h.running {
			running = append(running, h)
		}
	}
	return running
}

// tend sees to the leases. Those that have run out are dealt with before any
// extension is sent: after a pause of the whole process it would come too late
// for them.
func (l *loop) tend(now time.Time) {
	d := l.leases.due(now)
	for _, h := range d.lapsed {
		l.cfg.Logger.Warn("lease ran out before it could be extended; handler is cancelled", "job", h.row.ID, "kind", h.row.Kind)
		h.cancel(claim.ErrLeaseLost)
	}
	for _, h := range d.stuck {
		h.slots.stuck++
		l.cfg.Logger.Error("handler is stuck: it goes on long after its timeout; its lease is let go",
			"job", h.row.ID, "kind", h.row.Kind, "queue", h.slots.Name, "stuck", h.slots.stuck, "spares", h.slots.Spares)
	}
	if d.order != nil {
		l.orders <- *d.order
	}
}

// kept takes the answer to an order to the keeper.
func (l *loop) kept(k kept) {
	switch {
	case k.check:
		l.checking.note(k.err)
	case len(k.leases) > 0:
		l.extending.note(k.err)
	}
	for _, h := range l.leases.answered(time.Now(), k) {
		if h.cancelled {
			l.cfg.Logger.Info("job was cancelled by an operator; so is its handler", "job", h.row.ID, "kind", h.row.Kind)
			h.cancel(ErrCancelled)
			l.cfg.Cancelled(h.row.Lease())
			continue
		}
		l.cfg.Logger.Warn("lease was taken over; handler is cancelled", "job", h.row.ID, "kind", h.row.Kind)
		h.cancel(claim.ErrLeaseLost)
	}
}

// ended takes the report of a handler.
func (l *loop) ended(r report) {
	l.runners.reported(r.died)
	h := l.leases.held[r.lease]
	if h == nil || !h.running {
		return // left behind, and its job handed back, a moment ago
	}
	h.running = false
	h.row.Payload, h.row.Progress = nil, nil // its outcome may have to wait for long
	h.cancel(nil)                            // frees what hangs on the context
	h.slots.busy--
	h.slots.ends++
	if h.stuck {
		h.slots.stuck--
	}
	l.desk.outbox.put(r.outcome)
	l.begin(h.slots)
}

func (l *loop) returned(r returned) {
	if !r.trip.empty() {
		l.landed(r)
		return
	}
	if r.err != nil && l.desk.second.pace.failures == 0 {
		l.cfg.Logger.Warn("there is no second connection for a backlog, which takes longer with one", "error", r.err)
	}
	l.desk.second.changed(time.Now(), r.open, r.err)
}

func (l *loop) landed(r returned) {
	now := time.Now()
	late := now.Sub(r.sent) >= l.cfg.Lease/2
	if len(r.trip.Outcomes) > 0 {
		l.storing.note(r.haul.FinishErr)
	}
	if len(r.trip.Wants) > 0 && r.haul.FinishErr == nil {
		l.claiming.note(r.haul.ClaimErr)
	}
	landing := l.desk.land(now, r.trip, r.haul, late)
	for _, o := range landing.refused {
		if h := l.leases.held[o.Lease]; h != nil && h.cancelled {
			continue // as was to be expected
		}
		l.cfg.Logger.Warn("outcome came too late and was refused: the lease is lost", "job", o.ID, "fence", o.Fence, "outcome", o.Verb)
		l.cfg.Refused(o.Lease, o.Verb)
	}
	for _, lease := range landing.settled {
		l.leases.drop(lease)
	}
	if r.haul.FinishErr == nil {
		l.leases.closed(r.trip.Outcomes)
	}
	clear(r.trip.Outcomes) // of texts that nobody needs any more
	for _, arrival := range landing.start {
		s := arrival.slots
		// With less than half its lease left a job would have to be extended first.
		until := earliest(now.Add(mostWait), r.sent.Add(l.cfg.Lease/2))
		for _, row := range arrival.rows {
			h := &held{row: row, slots: s, since: r.sent}
			l.leases.add(h)
			s.wait(h, until)
		}
		clear(arrival.rows) // what a job keeps alive is its own business
		l.begin(s)
	}
	for _, row := range landing.back {
		l.leases.add(&held{row: claim.Row{ID: row.ID, Fence: row.Fence, Claim: row.Claim}, since: r.sent})
		l.desk.outbox.put(claim.Outcome{Lease: row.Lease(), Verb: claim.Return})
	}
	if len(landing.back) > 0 && !l.desk.closed {
		l.cfg.Logger.Warn("claimed jobs are handed back unstarted", "jobs", len(landing.back), "claim took", now.Sub(r.sent))
	}
	for _, s := range landing.short {
		l.cfg.Short(s.queue, s.next)
	}
	if l.recallNew[r.trip.Lane] {
		l.recallNew[r.trip.Lane] = false
		l.leases.recall(now)
	}
}
