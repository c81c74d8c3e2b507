package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// openRate is how many laps a second begin at most: few enough for the queue
	// to be idle in between.
	openRate = 50
	// lapLimit is how long the last laps may take: a worker that hears nothing
	// looks each second.
	lapLimit = 10 * time.Second
)

// laps is an open loop: each lap begins at its own time, however long the others
// take, with a commit; it ends when somebody has reached what was committed.
type laps struct {
	at    []time.Duration // when each begins
	began time.Time       // what the following counts from

	// Each since began, 0 until then; by the number of the lap.
	committed, reachedAt []atomic.Int64
	left                 atomic.Int64
	all                  chan struct{} // closed when every lap has been reached
}

// laps plans an open loop that lasts so long, at random distances.
func (s *stage) laps(limit time.Duration) *laps {
	rate := float64(openRate)
	if commit := s.seen.Commit.P50.Seconds(); commit > 0 {
		// A lap has two commits, which must not catch up with each other.
		rate = min(rate, max(1, 0.2/commit))
	}
	l := &laps{began: time.Now(), all: make(chan struct{})}
	for at := time.Duration(0); ; {
		at += time.Duration(rand.ExpFloat64() / rate * float64(time.Second))
		if at > limit && len(l.at) > 0 {
			break
		}
		l.at = append(l.at, at)
	}
	l.committed = make([]atomic.Int64, len(l.at))
	l.reachedAt = make([]atomic.Int64, len(l.at))
	l.left.Store(int64(len(l.at)))
	return l
}

// run begins each lap in its time and returns when all are committed.
func (l *laps) run(ctx context.Context, commit func(n int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for n, at := range l.at {
		select {
		case <-time.After(time.Until(start.Add(at))):
		case <-ctx.Done():
			return group.Wait()
		}
		group.Go(func() error {
			if err := commit(n); err != nil {
				return err
			}
			l.committed[n].Store(int64(time.Since(l.began)))
			return nil
		})
	}
	return group.Wait()
}

// reached ends a lap; the first time counts.
func (l *laps) reached(n int) {
	if n < 0 || n >= len(l.at) {
		return
	}
	if l.reachedAt[n].CompareAndSwap(0, int64(time.Since(l.began))) && l.left.Add(-1) == 0 {
		close(l.all)
	}
}

// wait waits for all laps to be reached by somebody who may fail.
func (l *laps) wait(ctx context.Context, failed <-chan error) error {
	select {
	case <-l.all:
		return nil
	case err := <-failed:
		return err
	case <-time.After(lapLimit):
		return fmt.Errorf("%d of %d have not begun after %v", l.left.Load(), len(l.at), lapLimit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// times are from the commit's return, without the first tenth, which warms up.
// What was reached before the commit had returned took no time.
func (l *laps) times() Times {
	var took []time.Duration
	for n := len(l.at) / 10; n < len(l.at); n++ {
		took = append(took, time.Duration(max(0, l.reachedAt[n].Load()-l.committed[n].Load())))
	}
	return timesOf(took)
}
