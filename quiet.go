package fencepost

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
	"github.com/fencepost-go/fencepost/notify"
	"github.com/fencepost-go/fencepost/poller"
)

// quiet keeps the promises of this process to look into busy queues every few
// milliseconds, so that their bells need not ring, and sees to those that others
// did not end. What it does when is decided by a poller.Quiet for each queue.
//
// Nothing depends on it: without promises bells ring, and ticks and alarms go on
// as ever.
type quiet struct {
	run     *running
	changed chan struct{} // one slot: a queue may have something new to say
	asks    sync.WaitGroup

	mu     sync.Mutex
	queues map[string]*poller.Quiet
	busy   map[string]bool // what the dispatcher was told
	// review is when to look for promises that nobody has ended, as from before
	// we listened; zero: no need.
	review    time.Time
	reviewing bool
	said      bool // that nothing can be promised
}

// reviewAgain is the pause after a review that failed.
const reviewAgain = time.Second

func newQuiet(run *running) *quiet {
	q := &quiet{run: run, changed: make(chan struct{}, 1), queues: make(map[string]*poller.Quiet), busy: make(map[string]bool)}
	for _, name := range run.queues {
		q.queues[name] = &poller.Quiet{Spread: rand.Float64}
		q.queues[name].Hearing(false)
	}
	return q
}

// heard is called for each bell of a job that is due.
func (k *quiet) heard(queue string) {
	k.change(func() bool { return k.queues[queue].Heard(time.Now()) })
}

// hushed is called for each promise that is heard, also for queues worked
// elsewhere. Whoever made it is about to work.
func (k *quiet) hushed(p notify.Quiet) {
	k.run.poller.Guard()
	k.change(func() bool {
		q, ours := k.queues[p.Queue]
		if ours {
			q.Hushed(time.Now(), p.Until.UnixMicro(), k.run.clock.Until(p.Until))
		}
		return ours
	})
}

// hearing is called when notifications begin or cease to be heard.
func (k *quiet) hearing(hearing bool) {
	k.change(func() bool {
		for _, q := range k.queues {
			q.Hearing(hearing)
		}
		return true
	})
}

// listening is called when what was told before was not heard.
func (k *quiet) listening() {
	k.change(func() bool {
		k.review = time.Now()
		return true
	})
}

// change makes a change, after which the loop may have something to do.
func (k *quiet) change(f func() bool) {
	k.mu.Lock()
	changed := f()
	k.mu.Unlock()
	if !changed {
		return
	}
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// watch returns the store with an eye on its claims.
func (k *quiet) watch(s dispatcher.Store) dispatcher.Store { return watched{s, k} }

type watched struct {
	dispatcher.Store
	quiet *quiet
}

func (w watched) Exchange(ctx context.Context, trip dispatcher.Trip) dispatcher.Haul {
	w.quiet.claiming(trip.Wants)
	haul := w.Store.Exchange(ctx, trip)
	w.quiet.claimed(trip.Wants, haul)
	return haul
}

func (k *quiet) claiming(wants []dispatcher.Want) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, want := range wants {
		k.queues[want.Queue].Claiming()
	}
}

func (k *quiet) claimed(wants []dispatcher.Want, haul dispatcher.Haul) {
	k.change(func() (changed bool) {
		now := time.Now()
		worked := haul.FinishErr == nil && haul.ClaimErr == nil
		for i, want := range wants {
			found := 0
			if i < len(haul.Claimed) {
				found = len(haul.Claimed[i].Rows)
			}
			changed = k.queues[want.Queue].Claimed(now, worked, want.Limit, found) || changed
		}
		return changed
	})
}

// Run does what the queues say. When it is stopped it leaves its promises to
// others.
func (k *quiet) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			k.asks.Wait()
			k.leave()
			return nil
		case <-k.changed:
		case <-timer.C:
		}
		if next := k.step(context.WithoutCancel(ctx)); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// step does what is due, and returns when to come again.
func (k *quiet) step(ctx context.Context) (next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	soonest := func(at time.Time) {
		if next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	for name, q := range k.queues {
		s := q.Step(now)
		if s.Look {
			k.run.dispatcher.Wake(name)
		}
		if s.Busy != k.busy[name] {
			k.busy[name] = s.Busy
			k.run.dispatcher.Along(name, s.Busy)
		}
		if s.Ask != poller.AskNothing {
			k.asks.Go(func() { k.ask(ctx, name, q, s) })
		}
		soonest(s.Next)
	}
	switch {
	case k.reviewing || k.review.IsZero():
	case now.Before(k.review):
		soonest(k.review)
	default:
		k.review, k.reviewing = time.Time{}, true
		k.asks.Go(func() { k.look(ctx) })
	}
	return next
}

// ask puts a question to the database and takes the answer.
func (k *quiet) ask(ctx context.Context, name string, q *poller.Quiet, s poller.QuietStep) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var err error
	switch s.Ask {
	case poller.AskPromise:
		var p claim.Promised
		p, err = k.promise(ctx, name, s.Promise)
		if err == nil {
			if p.Until != 0 {
				riggedPromised(name, p.Until)
			}
			k.change(func() bool {
				q.Promised(time.Now(), p.Until, p.Held, k.until(p.Held), p.Others > 0)
				return true
			})
		}
	case poller.AskRevoke:
		err = k.revoke(ctx, name, q, s.Promise)
	case poller.AskMore:
		err = k.use(ctx, func(conn *pgx.Conn) error { return k.run.client.table.Ring(ctx, conn, name) })
		if err == nil {
			k.change(func() bool { q.Told(); return true })
		}
	}
	if err != nil {
		k.failed(ctx, q, err)
	}
}

// promise promises, and gives the queue a slot for it if it has none.
func (k *quiet) promise(ctx context.Context, name string, before int64) (p claim.Promised, err error) {
	c := k.run.client
	request := claim.Request{Queue: name, Kinds: k.run.store.kinds}
	err = k.use(ctx, func(conn *pgx.Conn) (err error) {
		p, err = c.table.Promise(ctx, conn, request, c.workerID, poller.PromiseLength, before)
		if err != nil || p.Seated {
			return err
		}
		if err = c.table.Seat(ctx, conn, name); err != nil {
			return err
		}
		p, err = c.table.Promise(ctx, conn, request, c.workerID, poller.PromiseLength, before)
		return err
	})
	return p, err
}

// revoke makes one attempt to end a promise. The look that follows is the last
// one if nobody is left who was silent: it begins after that was seen.
func (k *quiet) revoke(ctx context.Context, name string, q *poller.Quiet, promise int64) error {
	var r claim.Revoked
	table := k.run.client.table
	riggedPromised(name, 0)
	err := k.use(ctx, func(conn *pgx.Conn) (err error) {
		r, err = table.Revoke(ctx, conn, name, promise)
		r.Alone = riggedAlone(r.Alone)
		if err != nil || !r.Alone || riggedLastLook() {
			return err
		}
		return table.RingNext(ctx, conn, name)
	})
	if err != nil {
		return err
	}
	k.change(func() bool {
		end := q.Revoked(time.Now(), r.Alone, r.Held, k.until(r.Held))
		if end && riggedLastLook() {
			return true
		}
		if end {
			k.run.store.marks.Forget(name) // the jobs of those who were silent for long lie below
		}
		k.run.dispatcher.Wake(name)
		return true
	})
	return nil
}

// look looks for promises that nobody has ended. Those that hold are heard of
// from now on.
func (k *quiet) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var promises map[string]int64
	err := k.use(ctx, func(conn *pgx.Conn) (err error) {
		promises, err = k.run.client.table.Promises(ctx, conn, k.run.queues)
		return err
	})
	k.change(func() bool {
		k.reviewing = false
		if err != nil && mayPass(err) {
			k.review = time.Now().Add(reviewAgain)
		}
		for name, promise := range promises {
			k.queues[name].Hushed(time.Now(), promise, k.until(promise))
		}
		return true
	})
}

// leave ends the promises of this process in favour of the others, which see to
// the rest.
func (k *quiet) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	for name, q := range k.queues {
		if promise := q.Mine(); promise != 0 {
			riggedPromised(name, 0)
			// If it fails, they see to it when the promise has run out.
			_ = k.use(ctx, func(conn *pgx.Conn) error { return k.run.client.table.Yield(ctx, conn, name, promise) })
		}
	}
}

func (k *quiet) failed(ctx context.Context, q *poller.Quiet, err error) {
	never := !mayPass(err)
	k.change(func() bool {
		q.Failed(time.Now(), never)
		if never && !k.said {
			k.said = true
			k.run.client.config.Logger.InfoContext(ctx, "bells always ring: this process cannot promise to look without them", "error", err)
		}
		return true
	})
}

// mayPass says that the same may work later.
func mayPass(err error) bool {
	for _, passing := range []error{claim.ErrTryAgain, claim.ErrUnknown, claim.ErrReadOnly, claim.ErrUnprepared} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

// until is how long it is until a promise ends.
func (k *quiet) until(promise int64) time.Duration {
	return k.run.clock.Until(time.UnixMicro(promise))
}

func (k *quiet) use(ctx context.Context, do func(*pgx.Conn) error) error {
	return k.run.store.exchange.use(ctx, do)
}
