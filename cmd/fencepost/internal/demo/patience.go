package demo

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// patience is how long a story waits for a sign of what must come. Everything
// in it takes less, also the lease of a dead worker and the pause after it.
const patience = 30 * time.Second

var errNoPatience = fmt.Errorf("it has not come in %v", patience)

// until calls look again and again until it is satisfied, or patience ends.
func until(ctx context.Context, what string, look func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errNoPatience)
	defer cancel()
	return poll(ctx, what, look)
}

// poll calls look again and again until it is satisfied.
func poll(ctx context.Context, what string, look func() (bool, error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := look()
		switch {
		case err != nil:
			return fmt.Errorf("waiting for %s: %w", what, err)
		case ok:
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// progress counts the jobs that have ended, for the story and for whoever
// looks on.
type progress struct {
	stage *stage
	query string // how many have ended
	jobs  int
	show  func(what string, done, total int)
	ended atomic.Int64
}

func newProgress(p Plan, s *stage, query string) *progress {
	return &progress{stage: s, query: s.sql(query), jobs: p.Jobs, show: p.Progress}
}

// watch counts until all jobs have ended, or none has for so long that the
// rest must be lost.
func (p *progress) watch(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for newest := time.Now(); time.Since(newest) < patience; {
		var ended int64
		if err := p.stage.pool.QueryRow(ctx, p.query).Scan(&ended); err != nil {
			return fmt.Errorf("count what has ended: %w", err)
		}
		if p.ended.Swap(ended) != ended {
			newest = time.Now()
		}
		p.show("worked", int(ended), p.jobs)
		if ended >= int64(p.jobs) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// reach waits until n jobs have ended.
func (p *progress) reach(ctx context.Context, n int) error {
	return poll(ctx, fmt.Sprintf("%d jobs to end", n), func() (bool, error) { return p.ended.Load() >= int64(n), nil })
}
