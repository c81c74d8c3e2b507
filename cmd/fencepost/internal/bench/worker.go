package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencepost-go/fencepost"
)

// worker is a process's worth of Fencepost, in this one.
type worker struct {
	stop  context.CancelFunc
	ended chan error // what Run has returned
	hears chan struct{}
}

// hearingLimit is how long a worker has to hear its own bell before it is taken
// for deaf.
const hearingLimit = 3 * time.Second

// employ starts a worker for one queue.
func (s *stage) employ(ctx context.Context, queue string, slots int, handle func(load)) (*worker, error) {
	w := &worker{ended: make(chan error, 1), hears: make(chan struct{})}
	var heard atomic.Bool
	client, err := fencepost.New(s.pool, fencepost.Config{
		Schema:       s.schema,
		Queues:       map[string]fencepost.Queue{queue: {Slots: slots}},
		ListenConfig: s.Listen,
		Observer: fencepost.Observer{Hearing: func(hears bool) {
			if hears && heard.CompareAndSwap(false, true) {
				close(w.hears)
			}
		}},
	})
	if err != nil {
		return nil, err
	}
	fencepost.Handle(client, func(_ context.Context, j *fencepost.Job[load]) error {
		handle(j.Payload)
		return nil
	})
	ctx, w.stop = context.WithCancel(ctx)
	go func() { w.ended <- client.Run(ctx) }()
	return w, nil
}

// dismiss stops the worker and waits for it: its outcomes are stored then.
func (w *worker) dismiss() error {
	w.stop()
	if err := <-w.ended; err != nil {
		return fmt.Errorf("the worker: %w", err)
	}
	return nil
}

// wake measures how soon a handler begins while the queue is idle.
func (s *stage) wake(ctx context.Context, limit time.Duration) (err error) {
	laps := s.laps(limit)
	w, err := s.employ(ctx, queueWake, 10, func(l load) { laps.reached(l.N) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.dismiss()) }()
	select {
	case <-w.hears:
	case <-time.After(hearingLimit): // it looks each second, and that is measured then
	case err := <-w.ended:
		w.ended <- nil // for dismiss
		return errors.Join(errors.New("the worker ended"), err)
	case <-ctx.Done():
		return ctx.Err()
	}
	err = laps.run(ctx, func(n int) error {
		_, err := s.client.Enqueue(ctx, job(queueWake, n))
		return err
	})
	if err == nil {
		err = laps.wait(ctx, nil)
	}
	if err == nil {
		s.seen.Wake = laps.times()
	}
	return err
}

// drainSlots is what a claim takes at most.
const drainSlots = 500

const (
	sqlLeft  = `SELECT EXISTS (SELECT FROM {{schema}}.jobs WHERE queue = '` + queueDrain + `')`
	sqlEnded = `SELECT count(*) FROM {{schema}}.finished WHERE queue = '` + queueDrain + `' AND status = 'done'`
)

// drain measures how fast the jobs that bulk has left are worked, from the
// start of the first handler to when the last outcome is stored. What is not
// done when the time is up is left.
func (s *stage) drain(ctx context.Context, limit time.Duration) error {
	var began atomic.Int64 // since start, not 0
	var ran atomic.Int64
	start, first, all := time.Now(), make(chan struct{}), make(chan struct{})
	handle := func(load) {
		if began.CompareAndSwap(0, int64(max(1, time.Since(start)))) {
			close(first)
		}
		if ran.Add(1) == int64(s.seen.Bulk.N) {
			close(all)
		}
	}
	var took time.Duration
	waits, err := s.watched(ctx, func() error {
		w, err := s.employ(ctx, queueDrain, drainSlots, handle)
		if err != nil {
			return err
		}
		over := time.After(lapLimit) // for the worker to begin
		select {
		case <-first:
			over = time.After(limit)
		case <-over:
			return errors.Join(fmt.Errorf("no job has begun after %v", lapLimit), w.dismiss())
		case <-ctx.Done():
		case err := <-w.ended:
			w.ended <- err
		}
		select {
		case <-all:
			for left := true; left && err == nil; {
				err = s.pool.QueryRow(ctx, s.sql(sqlLeft)).Scan(&left)
			}
			took = time.Since(start)
			return errors.Join(err, w.dismiss())
		case <-over:
		case <-ctx.Done():
		case err := <-w.ended:
			w.ended <- err
		}
		err = w.dismiss()
		took = time.Since(start)
		return err
	})
	if err != nil {
		return err
	}
	s.seen.DrainWaits = waits
	var ended int
	if err := s.pool.QueryRow(ctx, s.sql(sqlEnded)).Scan(&ended); err != nil {
		return err
	}
	s.seen.Drain = rateOf(ended, took-time.Duration(began.Load()))
	return nil
}
