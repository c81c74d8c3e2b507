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
// cannot be reached at first, or if one of its loops ends; once it is running,
// an outage of the database does not end it. A client runs once.
func (c *Client) Run(ctx context.Context) error {
	run, err := c.start(ctx)
	if err != nil && ctx.Err() != nil {
		return nil // stopped before it began
	}
	if err != nil {
		return fmt.Errorf("fencepost run: %w", err)
	}
	defer run.close()
	err = together(ctx,
		loop{"dispatcher", run.dispatcher.Run},
		loop{"listener", run.listener.Run},
		loop{"poller", run.poller.Run})
	if err != nil {
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
	hearing    atomic.Bool
	// noReapUntil keeps this process from ending leases that may only seem to
	// be over. Only the poller's goroutine reads and writes it.
	noReapUntil time.Time
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
	err := c.onPool(ctx, func(db poolDB) error { return migrations.Check(ctx, db, c.config.Schema) })
	if err != nil {
		return nil, err
	}
	c.started = true

	r := &running{client: c, queues: slices.Sorted(maps.Keys(c.config.Queues))}
	r.store = &store{
		client:   c,
		kinds:    c.kinds(),
		exchange: c.newLine("exchange"),
		keeper:   c.newLine("keeper"),
	}
	r.poller = poller.New(poller.Config{
		Interval: c.config.PollInterval,
		Deaf:     deafInterval,
		Guard:    guard,
		Tick:     r.tick,
		Wake:     func(queue string) { r.dispatcher.Wake(queue) },
		Logger:   c.config.Logger,
	})
	r.listener = notify.New(notify.Config{
		ConnConfig: func(ctx context.Context) (*pgx.ConnConfig, error) {
			return c.ownConfig(ctx, "listener", c.config.ListenConfig)
		},
		Channel:   c.config.Schema,
		Bell:      r.heard,
		Recall:    r.recalled,
		Connected: r.look,
		Hearing: func(hearing bool, _ error) {
			r.hearing.Store(hearing)
			r.poller.SetHearing(hearing)
			c.config.Observer.Hearing(hearing)
		},
		Proof:  proof,
		Logger: c.config.Logger,
	})
	r.dispatcher = dispatcher.New(dispatcher.Config{
		Store:     r.store,
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

// close hangs up what the rooms have used.
func (r *running) close() {
	r.store.exchange.close()
	r.store.keeper.close()
}

// look makes every queue and every job in hand be looked at: at the start, and
// whenever we begin to listen, since whatever was rung before was not heard.
func (r *running) look() {
	r.dispatcher.WakeAll()
	r.dispatcher.Recall()
	r.poller.TickNow()
}

// heard is called for each bell, also for those of queues worked elsewhere:
// alarms for them must not pile up here.
func (r *running) heard(b notify.Bell) {
	if _, ours := r.client.config.Queues[b.Queue]; !ours {
		return
	}
	if b.Due.IsZero() {
		r.dispatcher.Wake(b.Queue)
		return
	}
	if in := r.clock.Until(b.Due); in > 0 {
		r.poller.Arm(b.Queue, in)
	} else {
		r.dispatcher.Wake(b.Queue)
	}
}

// recalled is called for each recall, also for those of other workers.
func (r *running) recalled(worker string) {
	if worker == r.client.workerID {
		r.dispatcher.Recall()
	}
}

// tick is the one statement of the poller. A stop does not cancel it: that
// would cost the connection over which the last outcomes are to be stored.
func (r *running) tick(ctx context.Context) (poller.Look, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	if !r.hearing.Load() {
		r.dispatcher.Recall() // there may have been one
	}
	c := r.client
	request := claim.TickRequest{
		Queues: r.queues,
		Kinds:  r.store.kinds,
		Reap:   !time.Now().Before(r.noReapUntil),
		Own:    r.listener.Own(),
		Token:  r.listener.Expect(),
	}
	var ticked claim.Ticked
	var pruned int
	err := r.store.exchange.use(ctx, func(conn *pgx.Conn) (err error) {
		request.Latest = r.clock.Latest()
		sent := time.Now()
		ticked, err = c.table.Tick(ctx, conn, request)
		if err != nil {
			return err
		}
		if jump := r.clock.Observe(ticked.Now, sent, time.Now()); jump != 0 {
			r.distrustLeases(jump)
		}
		if ticked.Refused != nil {
			c.config.Logger.ErrorContext(ctx, "the database does not let every job end whose lease is over", "error", ticked.Refused)
		}
		if ticked.Expired {
			if pruned, err = c.table.Prune(ctx, conn); err != nil {
				// No reason to work less: what should go only stays longer.
				c.config.Logger.ErrorContext(ctx, "finished jobs whose time is up cannot be deleted", "error", err)
			}
		}
		return nil
	})
	if err != nil {
		return poller.Look{}, err
	}
	r.listener.Await(request.Token)
	return poller.Look{
		Next:     ticked.Next,
		Lease:    ticked.Lease,
		HasLease: ticked.HasLease,
		Again:    ticked.Reaped == claim.ReapBatch || pruned == claim.PruneBatch,
	}, nil
}

// distrustLeases is called when the database's clock has stepped against ours.
// Leases were given by the old time: for the length of one, those that seem to
// be over are left to their holders to extend.
func (r *running) distrustLeases(jump time.Duration) {
	r.noReapUntil = time.Now().Add(r.client.config.Lease)
	r.client.config.Logger.Warn("the database's clock has stepped; expired leases are left alone for the length of one",
		"step", jump, "lease", r.client.config.Lease)
}
