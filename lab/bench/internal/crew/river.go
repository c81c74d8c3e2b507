package crew

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// riverQueue is River. A claim of its takes as many jobs as there are free
// workers, so a batch is a number of workers.
type riverQueue struct {
	pool   *pgxpool.Pool
	driver *riverpgxv5.Driver
	config river.Config // of the worker
	enq    *river.Client[pgx.Tx]
}

const (
	// The number of workers in River's README; there is no default.
	riverWorkers = 100
	// What River's own benchmark, the command "river bench", is set to.
	riverBestWorkers  = 2000
	riverBestCooldown = 2 * time.Millisecond
	riverBestPoll     = 20 * time.Millisecond
)

func (q *riverQueue) Open(ctx context.Context, o wire.Options) (d wire.Described, err error) {
	if q.pool, err = pgxpool.New(ctx, o.DSN); err != nil {
		return d, err
	}
	q.driver = riverpgxv5.New(q.pool)
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	migrator, err := rivermigrate.New(q.driver, &rivermigrate.Config{Logger: logger})
	if err != nil {
		return d, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return d, err
	}
	if q.enq, err = river.NewClient(q.driver, &river.Config{Logger: logger}); err != nil {
		return d, err
	}
	workers := cmp.Or(o.Slots, o.Batch, riverWorkers)
	q.config = river.Config{Logger: logger, Queues: make(map[string]river.QueueConfig)}
	fetch := fmt.Sprintf("FetchCooldown %v and FetchPollInterval %v, the defaults", river.FetchCooldownDefault, river.FetchPollIntervalDefault)
	if o.Best {
		workers = cmp.Or(o.Slots, o.Batch, riverBestWorkers)
		q.config.FetchCooldown, q.config.FetchPollInterval = riverBestCooldown, riverBestPoll
		fetch = fmt.Sprintf(`FetchCooldown %v and FetchPollInterval %v, as its "river bench" has them`, riverBestCooldown, riverBestPoll)
	}
	for _, name := range orOne(o.Queues, river.QueueDefault) {
		q.config.Queues[name] = river.QueueConfig{MaxWorkers: workers}
	}
	return wire.Described{
		Version: moduleVersion("github.com/riverqueue/river"),
		Settings: fmt.Sprintf("MaxWorkers %d, claims of as many as are free; %s; a pool of %d connections; "+
			"done jobs kept for 24 h, they cannot be deleted when they end; claims and completions durable, the latter batched by it",
			workers, fetch, q.pool.Config().MaxConns),
	}, nil
}

// riverArgs is the payload under the name that River knows the kind by.
type riverArgs Payload

func (riverArgs) Kind() string { return kind }

func riverOpts(job Job) *river.InsertOpts {
	return &river.InsertOpts{Queue: job.Queue, ScheduledAt: job.RunAt}
}

func riverParams(jobs []Job) []river.InsertManyParams {
	params := make([]river.InsertManyParams, len(jobs))
	for i, job := range jobs {
		params[i] = river.InsertManyParams{Args: riverArgs(job.Payload), InsertOpts: riverOpts(job)}
	}
	return params
}

func (q *riverQueue) One(ctx context.Context, job Job) error {
	_, err := q.enq.Insert(ctx, riverArgs(job.Payload), riverOpts(job))
	return err
}

func (q *riverQueue) Many(ctx context.Context, jobs []Job) error {
	_, err := q.enq.InsertMany(ctx, riverParams(jobs))
	return err
}

// Copy uses COPY, as River's docs say of this call.
func (q *riverQueue) Copy(ctx context.Context, jobs []Job) error {
	_, err := q.enq.InsertManyFast(ctx, riverParams(jobs))
	return err
}

// riverWorker is the worker of River's kind of jobs.
type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	handle Handle
	after  atomic.Int64 // the pause that the last error asked for
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	err := w.handle(ctx, Payload(job.Args))
	if again := (Retry{}); errors.As(err, &again) {
		w.after.Store(int64(again.After))
	}
	return err
}

// NextRetry is not told of the error, but all that ask for a pause ask for the
// same.
func (w *riverWorker) NextRetry(*river.Job[riverArgs]) time.Time {
	return time.Now().Add(time.Duration(w.after.Load()))
}

func (q *riverQueue) Work(ctx context.Context, handle Handle, ready func()) error {
	config := q.config
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, &riverWorker{handle: handle})
	client, err := river.NewClient(q.driver, &config)
	if err != nil {
		return err
	}
	// Its Start would end the running jobs when ctx ends; Stop waits for them.
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	return client.Stop(context.WithoutCancel(ctx))
}

func (q *riverQueue) Close() {
	if q.pool != nil {
		q.pool.Close()
	}
}
