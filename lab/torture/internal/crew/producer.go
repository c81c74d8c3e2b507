package crew

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

const (
	// mostOpen is how many transactions a producer has open at once. What is due
	// while there are so many is not begun: it is missed, and never made up for.
	mostOpen = 128
	// stale is what is due for longer, as after a pause of the process: it is
	// missed too. What was due before the process was there is not its own: a
	// former life may have done it.
	stale = time.Second
	// farewell is how long what is open may take after the end of the load.
	farewell = 5 * time.Second
)

// producer enqueues jobs beside business rows, at the times that its schedule
// says, whatever becomes of them.
type producer struct {
	member
	pool   *pgxpool.Pool
	db     *sql.DB // on the same pool
	client *fencepost.Client
}

func produce(ctx context.Context, m member) error {
	schedule, err := newSchedule(m.Name, m.Seed, m.Rate, m.Bursts, m.Mix)
	if err != nil {
		return err
	}
	if m.MaxConns == 0 {
		m.MaxConns = 2 * conns
	}
	pool, err := connect(m)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := fencepost.New(pool, fencepost.Config{})
	if err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }() // it keeps no connection
	p := &producer{member: m, pool: pool, db: db, client: client}
	p.load(ctx, schedule)
	return nil
}

// load runs the schedule until ctx is done, and waits for what is open.
func (p *producer) load(ctx context.Context, schedule *schedule) {
	start, born := p.Start, history.Now()
	if start == 0 {
		start = born
	}
	open := make(chan struct{}, mostOpen)
	var group sync.WaitGroup
	defer group.Wait()
	// What is open goes on for a while after the end.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel() // runs before Wait
	defer func() { awaitAll(&group, farewell) }()

	for {
		t := schedule.next()
		due := start + int64(t.at)
		wait := time.Duration(due - history.Now())
		if wait < -stale {
			if due >= born {
				p.miss(t, "too late")
			}
			continue
		}
		if rest(ctx, max(wait, 0)) != nil {
			return
		}
		select {
		case open <- struct{}{}:
			group.Go(func() {
				defer func() { <-open }()
				p.send(work, ctx, t)
			})
		default:
			p.miss(t, "too many are open")
		}
	}
}

// awaitAll waits for the group, for at most so long.
func awaitAll(group *sync.WaitGroup, most time.Duration) {
	all := make(chan struct{})
	go func() { // ends with the group, which the caller waits for
		group.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(most):
	}
}

func (p *producer) miss(t transaction, why string) {
	p.Write(history.Event{Op: history.Missed, Asked: len(t.orders), Via: t.via, Note: why})
}

// send makes one transaction, and holds it open no longer than until the load
// ends. An unknown outcome stays unknown: nothing is tried again.
func (p *producer) send(ctx, load context.Context, t transaction) {
	enqueue := history.Event{Op: history.Enqueue, Refs: refsOf(t.orders), Via: t.via}
	enqueue.Delay = int64(t.lull + t.hold)
	n := p.Begin(enqueue)
	phase, err := p.transact(ctx, load, t, enqueue.Refs)
	enqueue.Error = text(err)
	if errors.Is(err, errAsPlanned) {
		enqueue.Note, enqueue.Error = "rolled back", ""
	}
	p.End(n, phase, enqueue)
	leaveReadOnly(p.pool, err)
}

// transact returns what is known of the transaction in the end. What ends
// before the commit is sent has changed nothing.
func (p *producer) transact(ctx, load context.Context, t transaction, refs []history.Ref) (history.Phase, error) {
	ctx, cancel := context.WithTimeout(ctx, t.lull+t.hold+2*patience) // all in all
	defer cancel()
	way, err := p.begin(ctx, t.via)
	if err != nil {
		return history.Failed, fmt.Errorf("begin: %w", err)
	}
	err = p.fill(ctx, load, way, t, refs)
	if err == nil && t.hold > 0 {
		_ = rest(load, t.hold)
	}
	if err == nil && t.rollback {
		err = errAsPlanned
	}
	if err != nil {
		way.rollback(ctx)
		return history.Failed, err
	}
	if err := way.commit(ctx); err != nil {
		return committed(err), fmt.Errorf("commit: %w", err)
	}
	return history.OK, nil
}

// fill does what is in the transaction.
func (p *producer) fill(ctx, load context.Context, w way, t transaction, refs []history.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, t.lull+patience)
	defer cancel()
	rows := func() error { return w.rows(ctx, t.orders, t.via) }
	jobs := func() error {
		ids, err := w.jobs(ctx, t.orders)
		identify(refs, ids)
		if err != nil {
			return fmt.Errorf("jobs: %w", err)
		}
		return nil
	}
	first, second := rows, jobs
	if t.rowsLast {
		first, second = jobs, rows
	}
	if err := first(); err != nil {
		return err
	}
	if t.lull > 0 {
		_ = rest(load, t.lull) // its end ends the lull
	}
	return second()
}
