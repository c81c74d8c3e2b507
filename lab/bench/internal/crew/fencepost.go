package crew

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
	"github.com/fencepost-go/fencepost/migrations"
)

type fencepostQueue struct {
	pool   *pgxpool.Pool
	config fencepost.Config
	enq    *fencepost.Client // enqueues
}

const kind = "bench"

func (q *fencepostQueue) Open(ctx context.Context, o wire.Options) (d wire.Described, err error) {
	if q.pool, err = pgxpool.New(ctx, o.DSN); err != nil {
		return d, err
	}
	if err := q.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := migrations.Up(ctx, c.Conn(), fencepost.DefaultSchema)
		return err
	}); err != nil {
		return d, err
	}
	slots := o.Slots
	if slots == 0 && o.Best {
		slots = 1000
	}
	q.config.Queues = make(map[string]fencepost.Queue)
	for _, name := range orOne(o.Queues, fencepost.DefaultQueue) {
		q.config.Queues[name] = fencepost.Queue{Slots: slots}
	}
	if q.enq, err = fencepost.New(q.pool, q.config); err != nil {
		return d, err
	}
	keep := "done jobs kept for 24 h"
	if !o.Keep {
		keep = "done jobs deleted"
		for name := range q.config.Queues {
			if err := q.enq.SetKeep(ctx, name, 0); err != nil {
				return d, err
			}
		}
	}
	if slots == 0 {
		slots = 10
	}
	return wire.Described{
		Version:  "this checkout " + revision(),
		Settings: fmt.Sprintf("%d slots, claims of at most %d; %s; every commit durable", slots, min(slots, 500), keep),
	}, nil
}

func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) > 9 {
				return s.Value[:9]
			}
		}
	}
	return ""
}

func orOne(names []string, def string) []string {
	if len(names) == 0 {
		return []string{def}
	}
	return names
}

func newJob(job Job) fencepost.NewJob {
	return fencepost.NewJob{Kind: kind, Payload: job.Payload, RunAt: job.RunAt, Queue: job.Queue}
}

func (q *fencepostQueue) One(ctx context.Context, job Job) error {
	_, err := q.enq.Enqueue(ctx, newJob(job))
	return err
}

func (q *fencepostQueue) Many(ctx context.Context, jobs []Job) error {
	many := make([]fencepost.NewJob, len(jobs))
	for i, job := range jobs {
		many[i] = newJob(job)
	}
	_, err := q.enq.Enqueue(ctx, many...)
	return err
}

func (q *fencepostQueue) Copy(ctx context.Context, jobs []Job) error {
	n, err := q.enq.EnqueueCopy(ctx, func(yield func(fencepost.NewJob) bool) {
		for _, job := range jobs {
			if !yield(newJob(job)) {
				return
			}
		}
	})
	if err == nil && int(n) != len(jobs) {
		err = fmt.Errorf("%d of %d jobs copied", n, len(jobs))
	}
	return err
}

func (q *fencepostQueue) Work(ctx context.Context, handle Handle, ready func()) error {
	config := q.config
	heard := make(chan struct{}, 1)
	config.Observer.Hearing = func(yes bool) {
		if yes {
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	}
	client, err := fencepost.New(q.pool, config)
	if err != nil {
		return err
	}
	fencepost.HandleKind(client, kind, func(ctx context.Context, job *fencepost.Job[Payload]) error {
		err := handle(ctx, job.Payload)
		if again := (Retry{}); errors.As(err, &again) {
			return fencepost.RetryAfter(again.After, err)
		}
		return err
	})
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	select {
	case <-heard:
		ready()
	case err := <-ended:
		return err
	}
	return <-ended
}

func (q *fencepostQueue) Close() {
	if q.pool != nil {
		q.pool.Close()
	}
}
