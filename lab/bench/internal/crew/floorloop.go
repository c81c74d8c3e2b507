package crew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// floorClaim takes due jobs of one queue in the queue's order. The choice is an
// array so that it is made once, and small enough to be found by the primary
// key.
const floorClaim = `
UPDATE fencepost.jobs AS j SET
    status = 'running', attempts = j.attempts + 1, worker_id = 'floor',
    lease_until = clock_timestamp() + interval '` + floorLease + `',
    fence = greatest(j.fence + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
WHERE j.id = ANY (ARRAY(
    SELECT c.id
    FROM unnest('{-2,-1,0,1,2}'::smallint[]) AS p (priority)
    CROSS JOIN LATERAL (
        SELECT r.id FROM fencepost.jobs AS r
        WHERE r.queue = $1 AND r.priority = p.priority AND r.status = 'ready' AND r.run_at <= (SELECT clock_timestamp())
        ORDER BY r.run_at, r.id
        LIMIT $2
        FOR NO KEY UPDATE SKIP LOCKED) AS c
    LIMIT $2))
RETURNING j.id, j.fence, j.payload`

// floorDelete ends claims as done and keeps nothing of them.
const floorDelete = `
DELETE FROM fencepost.jobs AS j USING unnest($1::bigint[], $2::bigint[]) AS o (id, fence)
WHERE j.id = o.id AND j.fence = o.fence`

// floorMove ends claims as done and keeps them for a day.
const floorMove = `
WITH gone AS (
    DELETE FROM fencepost.jobs AS j USING unnest($1::bigint[], $2::bigint[]) AS o (id, fence)
    WHERE j.id = o.id AND j.fence = o.fence
    RETURNING j.id, j.fence, j.run_at, j.created_at, j.attempts, j.max_attempts, j.snoozes, j.priority,
              j.queue, j.kind, j.worker_id, j.payload, j.progress, j.last_error
)
INSERT INTO fencepost.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes,
    priority, status, queue, kind, worker_id, payload, progress, last_error)
SELECT g.id, g.fence, g.run_at, g.created_at, clock_timestamp() + interval '24 hours', g.attempts, g.max_attempts, g.snoozes,
    g.priority, 'done', g.queue, g.kind, g.worker_id, g.payload, g.progress, g.last_error
FROM gone AS g`

// floorAgain gives claims back, due after a pause of $3 microseconds.
const floorAgain = `
UPDATE fencepost.jobs AS j SET
    status = 'ready', lease_until = NULL, worker_id = NULL, fence = j.fence + 1,
    run_at = clock_timestamp() + o.pause * interval '1 microsecond'
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS o (id, fence, pause)
WHERE j.id = o.id AND j.fence = o.fence`

// claimed is a job that is being worked, and what became of it.
type claimed struct {
	id, fence int64
	payload   []byte
	err       error
}

func (q *floor) Work(ctx context.Context, handle Handle, ready func()) error {
	ctx, cancel := context.WithCancel(ctx) // of all when one fails
	defer cancel()
	n := floorConns * len(q.queues)
	conns, err := connect(ctx, q.pool, n)
	if err != nil {
		return err
	}
	ready()
	errs := make([]error, n)
	var group sync.WaitGroup
	for i, conn := range conns {
		group.Go(func() {
			defer cancel()
			errs[i] = q.loop(ctx, conn, q.queues[i%len(q.queues)], handle)
		})
	}
	group.Wait()
	return errors.Join(errors.Join(errs...), closeAll(conns))
}

// connect makes connections that are not the pool's but like its own.
func connect(ctx context.Context, pool *pgxpool.Pool, n int) (conns []*pgx.Conn, err error) {
	for range n {
		conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
		if err != nil {
			return nil, errors.Join(err, closeAll(conns))
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

func closeAll(conns []*pgx.Conn) error {
	var errs []error
	for _, conn := range conns {
		errs = append(errs, conn.Close(context.Background()))
	}
	return errors.Join(errs...)
}

// loop ends a batch and claims the next in one round trip and one commit.
func (q *floor) loop(ctx context.Context, conn *pgx.Conn, queue string, handle Handle) error {
	var batch []claimed
	for {
		working := ctx.Err() == nil
		if !working && len(batch) == 0 {
			return nil
		}
		limit := 0
		if working {
			limit = q.batch
		}
		next, err := q.turn(context.WithoutCancel(ctx), conn, batch, queue, limit)
		if err != nil {
			return err
		}
		if batch = next; len(batch) == 0 {
			select {
			case <-time.After(floorPoll):
			case <-ctx.Done():
			}
			continue
		}
		run(context.WithoutCancel(ctx), batch, handle)
	}
}

// run runs a goroutine for each job and waits for them all.
func run(ctx context.Context, batch []claimed, handle Handle) {
	var group sync.WaitGroup
	for i := range batch {
		group.Go(func() { batch[i].err = work(ctx, batch[i].payload, handle) })
	}
	group.Wait()
}

func work(ctx context.Context, payload []byte, handle Handle) error {
	var p Payload
	if err := json.Unmarshal(payload, &p); err != nil {
		return err
	}
	return handle(ctx, p)
}

func (q *floor) turn(ctx context.Context, conn *pgx.Conn, ended []claimed, queue string, limit int) (next []claimed, err error) {
	var b pgx.Batch
	endAll(&b, q.finish, ended)
	if limit > 0 {
		next = make([]claimed, 0, limit)
		b.Queue(floorClaim, queue, limit).Query(func(rows pgx.Rows) error {
			next, err = pgx.AppendRows(next, rows, scanClaimed)
			return err
		})
	}
	if b.Len() == 0 {
		return nil, nil
	}
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	return next, nil
}

func scanClaimed(row pgx.CollectableRow) (c claimed, err error) {
	err = row.Scan(&c.id, &c.fence, &c.payload)
	return c, err
}

// endAll queues the statements that store what became of the jobs.
func endAll(b *pgx.Batch, finish string, ended []claimed) {
	var done, again outcomes
	for _, c := range ended {
		if c.err == nil {
			done.add(c, 0)
		} else {
			again.add(c, pause(c.err))
		}
	}
	if n := len(done.ids); n > 0 {
		b.Queue(finish, done.ids, done.fences).Exec(all(n))
	}
	if n := len(again.ids); n > 0 {
		b.Queue(floorAgain, again.ids, again.fences, again.pauses).Exec(all(n))
	}
}

// pause is how long a job that has failed waits.
func pause(err error) time.Duration {
	if again := (Retry{}); errors.As(err, &again) {
		return again.After
	}
	return time.Second
}

// outcomes are the parameters of a statement that ends claims.
type outcomes struct{ ids, fences, pauses []int64 }

func (o *outcomes) add(c claimed, pause time.Duration) {
	o.ids, o.fences, o.pauses = append(o.ids, c.id), append(o.fences, c.fence), append(o.pauses, pause.Microseconds())
}

// all makes sure that no outcome got lost: nobody else works here.
func all(n int) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if int(tag.RowsAffected()) != n {
			return fmt.Errorf("%d of %d outcomes stored", tag.RowsAffected(), n)
		}
		return nil
	}
}
