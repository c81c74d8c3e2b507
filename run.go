package fencepost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
	"github.com/fencepost-go/fencepost/migrations"
	"github.com/fencepost-go/fencepost/notify"
	"github.com/fencepost-go/fencepost/poller"
)

const (
	deafInterval = time.Second     // between ticks while no notification is heard
	guard        = 2 * time.Second // at least between ticks because of a lease that ends
	proof        = 2 * time.Second // for our own bell to be heard
)

// Run works the queues until ctx is done, and returns nil after a clean stop.
//
// Then it takes no more jobs, waits for running handlers (Config.SoftStop),
// cancels their contexts with cause ErrStopping and waits again
// (Config.HardStop), stores every outcome, hands unfinished jobs back to be
// claimed at once (one in its last attempt is dead instead), and returns.
// Leases are extended all the while. If handlers were still running the error
// wraps ErrStuck. With a database that does not answer it all takes up to 10 s
// longer than SoftStop and HardStop.
//
// Run returns early if the schema does not fit (ErrSchema), if the database
// does not answer within 5 s at first, or if one of its loops ends; once it is
// running, an outage of the database does not end it. A client runs once.
func (c *Client) Run(ctx context.Context) error {
	run, err := c.start(ctx)
	if err != nil && ctx.Err() != nil {
		return nil // stopped before it began
	}
	if err != nil {
		return fmt.Errorf("fencepost run: %w", err)
	}
	defer run.close()
	if err := together(ctx, run.loops()...); err != nil {
		return fmt.Errorf("fencepost run: %w", err)
	}
	return nil
}

// loop is a part that runs until its context is done.
type loop struct {
	name string
	run  func(context.Context) error
}

// together runs the loops until ctx is done and all have returned. One that
// ends before, with or without an error, stops the others: a process that
// works with a part missing looks healthy and is not.
func together(ctx context.Context, loops ...loop) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range loops {
		group.Go(func() error {
			err := l.run(ctx)
			if err == nil && ctx.Err() == nil {
				err = errors.New("ended by itself")
			}
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// StopNow cuts a stop short: the contexts of running handlers are cancelled at
// once, as if SoftStop were over. Without a stop under way it does nothing
// until there is one. It may be called at any time, from any goroutine.
func (c *Client) StopNow() {
	c.hurry.Store(true)
	if d := c.dispatcher.Load(); d != nil {
		d.StopNow()
	}
}

// running is the wiring of one Run: who rings whom. Rooms do not know each
// other; every arrow between them is a method here.
type running struct {
	client     *Client
	store      *store
	dispatcher *dispatcher.Dispatcher
	poller     *poller.Poller
	listener   *notify.Listener
	clock      poller.Clock
	queues     []string
	presence   *presence
	quiet      *quiet
	turns      *turns
	hearing    atomic.Bool
	drained    chan struct{} // closed when the dispatcher has ended

	// Of the poller's goroutine alone.
	suspects suspects
	adoption adoption
	// noReapUntil keeps this process from ending leases that may only seem to
	// be over.
	noReapUntil time.Time
	saidRefused time.Time // that jobs cannot end; once a minute is enough
}

func (c *Client) start(ctx context.Context) (*running, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.started:
		return nil, errors.New("a client runs once")
	case len(c.handlers) == 0:
		return nil, errors.New("no handler is registered; see Handle")
	}
	err := c.onPool(ctx, func(db poolDB) error {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout) // a connection of the pool may be half open
		defer cancel()
		return migrations.Check(ctx, db, c.config.Schema)
	})
	if err != nil {
		return nil, err
	}
	c.started = true

	r := &running{client: c, queues: slices.Sorted(maps.Keys(c.config.Queues)), drained: make(chan struct{})}
	r.store = newStore(c)
	r.store.marks.Within(deafInterval)
	r.presence = newPresence(r)
	r.quiet = newQuiet(r)
	r.turns = newTurns(r)
	r.store.teller = r.turns.teller
	r.poller = poller.New(poller.Config{
		Interval: c.config.PollInterval,
		Deaf:     deafInterval,
		Guard:    guard,
		Tick:     riggedTick(r.tick),
		Wake:     r.due,
		Logger:   c.config.Logger,
	})
	r.listener = notify.New(riggedListener(r, notify.Config{
		ConnConfig: func(ctx context.Context) (*pgx.ConnConfig, error) {
			return c.ownConfig(ctx, "listener", c.config.ListenConfig)
		},
		Channel:   c.config.Schema,
		Bell:      r.heard,
		Recall:    r.recalled,
		Quiet:     r.quiet.hushed,
		Drained:   r.turns.drained,
		Connected: r.look,
		Hearing: func(hearing bool, cause error) {
			c.health.hearing(hearing, cause)
			r.hearing.Store(hearing)
			if hearing {
				r.store.marks.Within(c.config.PollInterval)
			} else {
				r.store.marks.Within(deafInterval)
			}
			r.poller.SetHearing(hearing)
			r.quiet.hearing(hearing)
			r.turns.hearing(hearing)
			c.config.Observer.Hearing(hearing)
		},
		Proof:  proof,
		Logger: c.config.Logger,
	}))
	r.dispatcher = dispatcher.New(dispatcher.Config{
		Store:     r.quiet.watch(riggedStore(ctx, r.store)),
		Queues:    r.slots(),
		Handle:    c.handle,
		Timeout:   c.timeout,
		Delay:     c.config.RetryDelay,
		Lease:     c.config.Lease,
		SoftStop:  c.config.SoftStop,
		HardStop:  c.config.HardStop,
		Short:     r.poller.Arm,
		Refused:   func(l claim.Lease, _ claim.Verb) { c.config.Observer.Refused(l.ID, l.Fence) },
		Cancelled: func(l claim.Lease) { c.config.Observer.Cancelled(l.ID, l.Fence) },
		Logger:    c.config.Logger,
	})
	c.dispatcher.Store(r.dispatcher)
	if c.hurry.Load() { // since before
		r.dispatcher.StopNow()
	}
	c.health.begin(r)
	r.look()
	return r, nil
}

func (r *running) slots() []dispatcher.Queue {
	var queues []dispatcher.Queue
	for _, name := range r.queues {
		q := r.client.config.Queues[name]
		queues = append(queues, dispatcher.Queue{Name: name, Slots: q.Slots, Spares: q.Spares})
	}
	return queues
}

// loops are the parts that have to run for as long as Run does.
func (r *running) loops() []loop {
	return []loop{
		{"dispatcher", r.work},
		{"listener", r.listener.Run},
		{"poller", r.poller.Run},
		{"presence", r.presence.Run},
		{"quiet", r.quiet.Run},
		{"turns", r.turns.Run},
	}
}

// work is the dispatcher's loop.
func (r *running) work(ctx context.Context) error {
	defer close(r.drained)
	return r.dispatcher.Run(ctx)
}

// close hangs up what the rooms have used.
func (r *running) close() {
	r.client.health.end()
	r.presence.leave()
	r.store.exchange.close()
	r.store.second.close()
	r.store.keeper.close()
}

// look makes every queue and every job in hand be looked at: at the start, and
// whenever we begin to listen, since whatever was rung before was not heard.
func (r *running) look() {
	r.dispatcher.WakeAll()
	r.dispatcher.Recall()
	r.poller.TickNow()
	r.quiet.listening()
}

// heard is called for each bell, also for those of queues worked elsewhere:
// alarms for them must not pile up here, but whoever claims those jobs is
// watched.
func (r *running) heard(b notify.Bell) {
	_, ours := r.client.config.Queues[b.Queue]
	in := time.Duration(0)
	if !b.Due.IsZero() {
		in = r.clock.Until(b.Due)
	}
	switch {
	case in > 0 && ours:
		r.poller.Arm(b.Queue, in)
	case in > 0: // whoever works that queue has the alarm
	case ours:
		r.turns.heard(b)
		r.poller.Guard()
		r.quiet.heard(b.Queue)
	default:
		r.poller.Guard()
	}
}

// due is called when a job of one of our queues may be due, for another reason
// than a bell. Others take it for due at the same time.
func (r *running) due(queue string) {
	r.dispatcher.Wake(queue)
	r.poller.Guard()
}

// recalled is called for each recall, also for those of other workers.
func (r *running) recalled(worker string) {
	if worker == r.client.workerID {
		r.dispatcher.Recall()
	}
}
