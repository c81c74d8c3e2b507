package crew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// wakeFloor is the floor of being woken: an INSERT that notifies in its own
// statement, a connection that does nothing but listen, and one durable claim
// of one job for each notification. Completions go over a third connection, so
// that no claim waits for one. A job that is due later is claimed once a timer
// says so. There is no poll: a notification that is lost loses its job.
type wakeFloor struct {
	floor
}

// FloorChannel is the channel of its bells.
const FloorChannel = "floor"

func (q *wakeFloor) Open(ctx context.Context, o wire.Options) (d wire.Described, err error) {
	if q.pool, err = floorPool(ctx, o.DSN); err != nil {
		return d, err
	}
	if err := dropBell(ctx, q.pool); err != nil {
		return d, err
	}
	kept := "done jobs deleted"
	if q.finish = floorDelete; o.Keep {
		q.finish, kept = floorMove, "done jobs moved to the history"
	}
	return wire.Described{
		Version:  "hand-written SQL, tables of this checkout " + revision(),
		Settings: "pg_notify in the INSERT; a connection that listens, one that claims one job for each bell, one that ends them; " + kept + "; every commit durable",
	}, nil
}

// One inserts and notifies in one statement, so in one commit.
func (q *wakeFloor) One(ctx context.Context, job Job) error {
	payload, err := json.Marshal(job.Payload)
	if err != nil {
		return err
	}
	due := job.RunAt
	if due.IsZero() {
		due = time.Unix(0, 0)
	}
	_, err = q.pool.Exec(ctx, `
WITH job AS (
    INSERT INTO fencepost.jobs (queue, kind, payload, run_at)
    VALUES ($1, $2, $3, greatest($4::timestamptz, clock_timestamp()))
    RETURNING id)
SELECT pg_notify('`+FloorChannel+`', $5) FROM job`, queueOf(job), kind, payload, due, strconv.FormatInt(due.UnixMicro(), 10))
	return err
}

func (q *wakeFloor) Work(ctx context.Context, handle Handle, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const room = 1 << 16 // more than there are ever jobs under way
	bells, ended := make(chan struct{}, room), make(chan claimed, room)
	conns, err := connect(ctx, q.pool, 3)
	if err != nil {
		return err
	}
	var listening, ending sync.WaitGroup
	var errs [3]error
	if err := q.listen(ctx, conns[0], bells); err != nil {
		return errors.Join(err, closeAll(conns))
	}
	ready()
	listening.Go(func() {
		defer cancel()
		errs[0] = hear(ctx, conns[0], bells)
	})
	ending.Go(func() {
		defer cancel()
		errs[2] = q.endEach(context.WithoutCancel(ctx), conns[2], ended, bells)
	})
	errs[1] = q.claimEach(ctx, conns[1], bells, ended, handle)
	cancel()
	listening.Wait()
	close(ended)
	ending.Wait()
	return errors.Join(errors.Join(errs[:]...), closeAll(conns))
}

// listen listens, and sets the timers of what is there already.
func (q *wakeFloor) listen(ctx context.Context, conn *pgx.Conn, bells chan<- struct{}) error {
	if _, err := conn.Exec(ctx, "LISTEN "+FloorChannel); err != nil {
		return err
	}
	rows, err := conn.Query(ctx, `SELECT run_at FROM fencepost.jobs WHERE status = 'ready' AND queue = $1`, fencepost.DefaultQueue)
	if err != nil {
		return err
	}
	times, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	for _, due := range times {
		ringAt(due, bells)
	}
	return err
}

// ringAt rings when it is time, by the clock that is also the server's.
func ringAt(due time.Time, bells chan<- struct{}) {
	if wait := time.Until(due); wait > 0 {
		time.AfterFunc(wait, func() { bells <- struct{}{} })
	} else {
		bells <- struct{}{}
	}
}

// hear rings for each notification until ctx is done.
func hear(ctx context.Context, conn *pgx.Conn, bells chan<- struct{}) error {
	for {
		n, err := conn.WaitForNotification(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("floor: listen: %w", err)
		}
		due, err := strconv.ParseInt(n.Payload, 10, 64)
		if err != nil {
			return fmt.Errorf("floor: listen: %w", err)
		}
		ringAt(time.UnixMicro(due), bells)
	}
}

// claimEach claims one job for each bell and runs it on a goroutine. Once ctx
// is done it waits for those.
func (q *wakeFloor) claimEach(ctx context.Context, conn *pgx.Conn, bells <-chan struct{}, ended chan<- claimed, handle Handle) error {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-bells:
		case <-ctx.Done():
			return nil
		}
		var c claimed
		err := conn.QueryRow(context.WithoutCancel(ctx), floorClaim, fencepost.DefaultQueue, 1).Scan(&c.id, &c.fence, &c.payload)
		if errors.Is(err, pgx.ErrNoRows) {
			continue // claimed for an earlier bell
		}
		if err != nil {
			return fmt.Errorf("floor: claim: %w", err)
		}
		group.Go(func() {
			c.err = work(context.WithoutCancel(ctx), c.payload, handle)
			ended <- c
		})
	}
}

// endEach stores what became of the jobs, as many at a time as have piled up.
func (q *wakeFloor) endEach(ctx context.Context, conn *pgx.Conn, ended <-chan claimed, bells chan<- struct{}) error {
	for c := range ended {
		batch := []claimed{c}
		for len(ended) > 0 {
			batch = append(batch, <-ended)
		}
		var b pgx.Batch
		endAll(&b, q.finish, batch)
		if err := conn.SendBatch(ctx, &b).Close(); err != nil {
			return fmt.Errorf("floor: end: %w", err)
		}
		for _, c := range batch {
			if c.err != nil {
				ringAt(time.Now().Add(pause(c.err)), bells)
			}
		}
	}
	return nil
}
