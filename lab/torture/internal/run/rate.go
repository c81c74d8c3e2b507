package run

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// The load may not be so small that faults meet nobody, nor so large that the
// record of a run cannot be judged in a reasonable time.
const (
	leastRate = 20
	mostRate  = 150
)

// setRate chooses the load, unless the plan says it: half of the jobs a second
// that are enqueued and done here when there is nothing else to do, but at most
// mostRate.
func (r *one) setRate(ctx context.Context) error {
	if r.Rate > 0 {
		return nil
	}
	measured, err := r.measureRate(ctx)
	if err != nil {
		return fmt.Errorf("measure what this machine can do: %w", err)
	}
	r.Rate = min(max(measured/2, leastRate), mostRate)
	r.logf("%s: this machine does %.0f short jobs a second; the load is %.0f", r.Name, measured, r.Rate)
	return nil
}

// measureRate has the workers do jobs of no length, which some clients enqueue
// as the load does it: beside a row of the business.
func (r *one) measureRate(ctx context.Context) (perSecond float64, err error) {
	const jobs, batch, clients = 2000, 5, 4
	client, err := fencepost.New(r.stage.Admin(), fencepost.Config{})
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	enqueue, inTime := errgroup.WithContext(ctx)
	for c := range clients {
		enqueue.Go(func() error {
			for n := c * batch; n < jobs; n += clients * batch {
				if err := r.enqueueShort(inTime, client, n, batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := enqueue.Wait(); err != nil {
		return 0, err
	}
	for {
		var left int
		if err := r.stage.Admin().QueryRow(ctx, `SELECT count(*) FROM fencepost.jobs`).Scan(&left); err != nil {
			return 0, err
		}
		took := time.Since(begin)
		if left == 0 {
			return jobs / took.Seconds(), nil
		}
		if took > time.Minute {
			return 0, fmt.Errorf("%d of %d jobs are left after a minute", left, jobs)
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

func (r *one) enqueueShort(ctx context.Context, client *fencepost.Client, from, n int) error {
	tx, err := r.stage.Admin().Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) // nothing after a commit
	var jobs []fencepost.NewJob
	for i := from; i < from+n; i++ {
		token := fmt.Sprintf("harness-%d", i)
		if _, err := tx.Exec(ctx, `INSERT INTO shop.orders (token, via) VALUES ($1, 'go')`, token); err != nil {
			return err
		}
		jobs = append(jobs, fencepost.NewJob{Kind: script.Short, Queue: script.Main, Payload: script.Order{Token: token}})
	}
	call := r.history.Begin(enqueueing(jobs, nil))
	ids, err := client.In(tx).Enqueue(ctx, jobs...)
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		return err
	}
	r.history.End(call, history.OK, enqueueing(jobs, ids))
	return nil
}

func enqueueing(jobs []fencepost.NewJob, ids []int64) history.Event {
	e := history.Event{Op: history.Enqueue, Via: "go"}
	for i, j := range jobs {
		ref := history.Ref{Token: j.Payload.(script.Order).Token, Kind: j.Kind, Queue: j.Queue}
		if i < len(ids) {
			ref.Job = ids[i]
		}
		e.Refs = append(e.Refs, ref)
	}
	return e
}
