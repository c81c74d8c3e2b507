package crew

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// gueQueue is gue, which holds a transaction, and so a connection, open for
// each job that runs.
type gueQueue struct {
	pool    *pgxpool.Pool
	client  *gue.Client
	workers int // of each queue
	queues  []string
	options []gue.WorkerPoolOption
}

const (
	// The number of workers in gue's README; there is no default.
	gueWorkers = 2
	// Its docs recommend nothing. With its default strategy it sorts all that
	// is due for each job; the other one is what its index is made for.
	gueBestWorkers = 10
	gueBestPoll    = 100 * time.Millisecond
)

// gueSchema is migrations/schema.sql of the module, which applies nothing by
// itself.
const gueSchema = `
CREATE TABLE IF NOT EXISTS gue_jobs (
    job_id      TEXT        NOT NULL PRIMARY KEY,
    priority    SMALLINT    NOT NULL,
    run_at      TIMESTAMPTZ NOT NULL,
    job_type    TEXT        NOT NULL,
    args        BYTEA       NOT NULL,
    error_count INTEGER     NOT NULL DEFAULT 0,
    last_error  TEXT,
    queue       TEXT        NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL,
    updated_at  TIMESTAMPTZ NOT NULL
);
CREATE INDEX IF NOT EXISTS idx_gue_jobs_selector ON gue_jobs (queue, run_at, priority);`

func (q *gueQueue) Open(ctx context.Context, o wire.Options) (d wire.Described, err error) {
	how := "a poll each 5 s, in order of priority: the defaults"
	q.workers, q.queues = cmp.Or(o.Slots, gueWorkers), orOne(o.Queues, "")
	q.options = []gue.WorkerPoolOption{gue.WithPoolGracefulShutdown(nil)}
	if o.Best {
		how = fmt.Sprintf("a poll each %v, in order of time", gueBestPoll)
		q.workers = cmp.Or(o.Slots, gueBestWorkers)
		q.options = append(q.options, gue.WithPoolPollInterval(gueBestPoll), gue.WithPoolPollStrategy(gue.RunAtPollStrategy))
	}
	config, err := pgxpool.ParseConfig(o.DSN)
	if err != nil {
		return d, err
	}
	config.MaxConns += int32(q.workers * len(q.queues)) // beside those that enqueue
	if q.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return d, err
	}
	if _, err := q.pool.Exec(ctx, gueSchema); err != nil {
		return d, err
	}
	if q.client, err = gue.NewClient(pgxv5.NewConnPool(q.pool)); err != nil {
		return d, err
	}
	return wire.Described{
		Version: moduleVersion("github.com/vgarvardt/gue/v5"),
		Settings: fmt.Sprintf("%d workers, claims of 1 in a transaction that stays open while the job runs; %s; a pool of %d connections; "+
			"done jobs deleted; every commit durable", q.workers, how, config.MaxConns),
	}, nil
}

func gueJob(job Job) (*gue.Job, error) {
	args, err := json.Marshal(job.Payload)
	return &gue.Job{Type: kind, Args: args, RunAt: job.RunAt, Queue: job.Queue}, err
}

func (q *gueQueue) One(ctx context.Context, job Job) error {
	j, err := gueJob(job)
	if err != nil {
		return err
	}
	return q.client.Enqueue(ctx, j)
}

// Many enqueues in statements of a size that the server takes: each job has
// eight parameters.
func (q *gueQueue) Many(ctx context.Context, jobs []Job) (err error) {
	tx, err := q.pool.Begin(ctx)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(jobs, 1000) {
		many := make([]*gue.Job, len(chunk))
		for i, job := range chunk {
			if many[i], err = gueJob(job); err != nil {
				return errors.Join(err, tx.Rollback(ctx))
			}
		}
		if err := q.client.EnqueueBatchTx(ctx, many, pgxv5.NewTx(tx)); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
	}
	return tx.Commit(ctx)
}

// Copy is Many: there is nothing faster.
func (q *gueQueue) Copy(ctx context.Context, jobs []Job) error { return q.Many(ctx, jobs) }

func (q *gueQueue) Work(ctx context.Context, handle Handle, ready func()) error {
	work := gue.WorkMap{kind: func(ctx context.Context, j *gue.Job) error {
		var p Payload
		if err := json.Unmarshal(j.Args, &p); err != nil {
			return err
		}
		err := handle(ctx, p)
		if again := (Retry{}); errors.As(err, &again) {
			return gue.ErrRescheduleJobIn(again.After, err.Error())
		}
		return err
	}}
	pools := make([]*gue.WorkerPool, len(q.queues))
	for i, name := range q.queues {
		var err error
		if pools[i], err = gue.NewWorkerPool(q.client, work, q.workers, append(slices.Clone(q.options), gue.WithPoolQueue(name))...); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, pool := range pools {
		group.Go(func() error { return pool.Run(ctx) })
	}
	ready()
	return group.Wait()
}

func (q *gueQueue) Close() {
	if q.pool != nil {
		q.pool.Close()
	}
}
