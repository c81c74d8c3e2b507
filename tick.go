package fencepost

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/poller"
)

// tick is the one statement of the poller. A stop does not cancel it: that
// would cost the connection over which the last outcomes are to be stored.
func (r *running) tick(ctx context.Context) (look poller.Look, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	defer func() { r.client.health.note(tickLoop, err) }()
	if !r.hearing.Load() {
		r.dispatcher.Recall() // there may have been one
	}
	token := r.listener.Expect()
	err = r.store.exchange.use(ctx, func(conn *pgx.Conn) (err error) {
		look, err = r.tickOn(ctx, conn, token)
		return err
	})
	if err != nil {
		return poller.Look{}, err
	}
	r.listener.Await(token)
	return look, nil
}

func (r *running) tickOn(ctx context.Context, conn *pgx.Conn, token string) (poller.Look, error) {
	c := r.client
	if at := r.presence.lastRedial(); !at.Equal(r.suspects.redialled) {
		r.suspects.redial(at)
	}
	sent := time.Now()
	ticked, err := c.table.Tick(ctx, conn, claim.TickRequest{
		Queues: r.queues,
		Kinds:  r.store.kinds,
		Reap:   !sent.Before(r.noReapUntil),
		Latest: r.clock.Latest(),
		Worker: r.presence.name(),
		Dead:   r.suspects.dead(sent),
		Own:    r.listener.Own(),
		Token:  token,
	})
	if err != nil {
		return poller.Look{}, err
	}
	answered := time.Now()
	if jump := r.clock.Observe(ticked.Now, sent, answered); jump != 0 {
		r.distrustLeases(jump)
	}
	r.turns.met(ticked.Peers)
	watch := watchEvery(ticked.Rank, c.config.PollInterval)
	look := poller.Look{
		Next:     ticked.Next,
		Lease:    ticked.Lease,
		HasLease: ticked.HasLease,
		Others:   ticked.Others,
		Guard:    watch,
		Recheck:  r.suspects.saw(answered, ticked.Silent),
		Again:    ticked.More,
	}
	// Claims end all the time, and a look at each by every process would be as
	// many looks as processes. Those before us, whose locks show that they live,
	// look sooner; without a lock of our own we do not know our place.
	if r.presence.holds() {
		look.LeaseGuard = watch
	}
	for _, dead := range ticked.Died {
		c.config.Logger.WarnContext(ctx, "a worker has died; its jobs go to others", "worker", dead.Worker, "jobs", dead.Jobs)
		c.config.Observer.Died(dead.Worker, dead.Jobs)
	}
	if ticked.Refused != nil && time.Since(r.saidRefused) > time.Minute {
		r.saidRefused = time.Now()
		c.config.Logger.ErrorContext(ctx, "the database does not let every job end that is to be taken from its worker", "error", ticked.Refused)
	}
	// What follows is no reason to work less: what should go only stays longer.
	if ticked.Expired {
		pruned, err := c.table.Prune(ctx, conn)
		if err != nil {
			c.config.Logger.ErrorContext(ctx, "finished jobs whose time is up cannot be deleted", "error", err)
		}
		look.Again = look.Again || pruned == claim.PruneBatch
	}
	if ticked.Stale {
		swept, err := c.table.Sweep(ctx, conn)
		if err != nil {
			c.config.Logger.ErrorContext(ctx, "rows that dead workers have left cannot be deleted", "error", err)
		}
		look.Again = look.Again || swept == claim.SweepBatch
	}
	if r.adoption.due(answered, ticked.Adopt, ticked.Rank) {
		found, next, err := c.table.Adopt(ctx, conn, r.adoption.page)
		if err != nil {
			c.config.Logger.ErrorContext(ctx, "running jobs that no claim names cannot be looked for", "error", err)
		}
		r.adoption.took(next, err)
		if found {
			// They are looked into soon, but not at once: while a program works that
			// writes no claims, nearly each look finds others.
			look.Lease, look.HasLease = 0, true
		}
	}
	if !ticked.Registered {
		r.presence.missed(ctx, conn)
	}
	return look, nil
}

// distrustLeases is called when the database's clock has stepped against ours.
// Leases were given by the old time: for the length of one, those that seem to
// be over are left to their holders to extend.
func (r *running) distrustLeases(jump time.Duration) {
	r.noReapUntil = time.Now().Add(r.client.config.Lease)
	for _, queue := range r.queues {
		r.store.marks.Forget(queue) // new jobs may be due at times that lie below
	}
	r.client.config.Logger.Warn("the database's clock has stepped; expired leases are left alone for the length of one",
		"step", jump, "lease", r.client.config.Lease)
}

// adoptEvery is between two walks through the whole table in search of running
// jobs that no claim names, while no program is known that makes such.
const adoptEvery = 10 * time.Minute

// adoptFirst is when a process walks for the first time that is not the first of
// all: many that start together need not walk each.
const adoptFirst = time.Minute

// adoption is a walk through the table, a part with each tick.
type adoption struct {
	born  time.Time // when it was first asked for
	began time.Time // when the last walk did; zero: there was none
	page  int64     // where its next part begins; 0: it is over
	again bool      // the first part could not be read
}

// due says whether the next part is to be read now. others says that programs
// work that write no claims: then one walk follows the other.
func (a *adoption) due(now time.Time, others bool, rank int) bool {
	if a.born.IsZero() {
		a.born = now
	}
	switch {
	case a.page > 0:
		return true
	case others, a.again:
	case a.began.IsZero():
		if rank > 0 && now.Sub(a.born) < adoptFirst {
			return false
		}
	case now.Sub(a.began) < adoptEvery:
		return false
	}
	a.began = now
	return true
}

// took ends a part. One that could not be read is read again with the next tick.
func (a *adoption) took(next int64, err error) {
	if a.again = err != nil; err == nil {
		a.page = next
	}
}
