//go:build torture

package fencepost

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
	"github.com/fencepost-go/fencepost/internal/torture"
	"github.com/fencepost-go/fencepost/notify"
	"github.com/fencepost-go/fencepost/poller"
)

// riggedTick does not tell what is due, without the guard Poll.
func riggedTick(tick func(context.Context) (poller.Look, error)) func(context.Context) (poller.Look, error) {
	if !torture.Removed(torture.Poll) {
		return tick
	}
	return func(ctx context.Context) (poller.Look, error) {
		look, err := tick(ctx)
		look.Next = nil
		return look, err
	}
}

// riggedListener looks before it listens, without the guard ListenFirst, and
// takes itself for hearing from then on: a process that knows that it is deaf
// polls. It looks a while before, or it would take many runs to see what that
// costs.
func riggedListener(r *running, c notify.Config) notify.Config {
	if !torture.Removed(torture.ListenFirst) {
		return c
	}
	c.Connected = func() {}
	hearing := c.Hearing
	c.Hearing = func(bool, error) { hearing(true, nil) }
	connConfig := c.ConnConfig
	c.ConnConfig = func(ctx context.Context) (*pgx.ConnConfig, error) {
		r.look()
		time.Sleep(2 * time.Second)
		return connConfig(ctx)
	}
	return c
}

// riggedAlone trusts that nobody is left who was silent, without the guard
// QuietLock.
func riggedAlone(alone bool) bool { return alone || torture.Removed(torture.QuietLock) }

// riggedLastLook says that the last look of a promise is left out, without the
// guard QuietLook.
func riggedLastLook() bool { return torture.Removed(torture.QuietLook) }

// riggedPromised tells the tap what is promised for a queue.
func riggedPromised(queue string, until int64) {
	if t := torture.Watching(); t != nil {
		t.Promise(queue, until)
	}
}

// riggedStore is the store with the tap in front of it.
func riggedStore(ctx context.Context, s *store) dispatcher.Store {
	rigged := &rigged{store: s, stopping: ctx}
	if t := torture.Watching(); t != nil {
		return tapped{rigged, t}
	}
	return rigged
}

// rigged is the store without the guards of this file.
type rigged struct {
	*store
	stopping context.Context // done: Run is stopping
}

// Exchange settles done jobs before they are stored, without the guard
// StoredFirst.
func (s *rigged) Exchange(ctx context.Context, trip dispatcher.Trip) dispatcher.Haul {
	if !torture.Removed(torture.StoredFirst) {
		return s.store.Exchange(ctx, trip)
	}
	var later, now []claim.Outcome
	for _, o := range trip.Outcomes {
		if o.Verb == claim.Done {
			later = append(later, o)
		} else {
			now = append(now, o)
		}
	}
	if len(later) > 0 {
		go func() { // nobody waits for it: that is what is wrong with it
			time.Sleep(200 * time.Millisecond)
			_, _ = s.store.finish(context.WithoutCancel(ctx), &s.lanes[0], later)
		}()
	}
	outcomes := trip.Outcomes
	trip.Outcomes = now
	haul := s.store.Exchange(ctx, trip)
	if haul.FinishErr != nil {
		return haul
	}
	results := make([]claim.Result, len(outcomes))
	for i, o := range outcomes {
		results[i] = claim.Stored
		if o.Verb != claim.Done {
			results[i], haul.Results = haul.Results[0], haul.Results[1:]
		}
	}
	haul.Results = results
	return haul
}

// Extend extends nothing any more once a stop has begun, without the guard
// DrainExtends.
func (s *rigged) Extend(ctx context.Context, leases []claim.Lease) ([]claim.Loss, error) {
	if torture.Removed(torture.DrainExtends) && s.stopping.Err() != nil {
		return nil, nil
	}
	return s.store.Extend(ctx, leases)
}

// tapped tells the tap of each call.
type tapped struct {
	*rigged
	tap *torture.Tap
}

func (s tapped) Exchange(ctx context.Context, trip dispatcher.Trip) dispatcher.Haul {
	type answer = func([]torture.Job, error)
	var finished answer
	if len(trip.Outcomes) > 0 {
		finished = s.tap.Finish(outcomesOf(trip.Outcomes, nil))
	}
	var claimed []answer
	for _, w := range trip.Wants {
		claimed = append(claimed, s.tap.Claim(s.client.workerID, w.Queue, w.Limit))
	}
	haul := s.rigged.Exchange(ctx, trip)
	if finished != nil {
		finished(outcomesOf(trip.Outcomes, haul.Results), haul.FinishErr)
	}
	for i, answered := range claimed {
		var jobs []torture.Job
		err := errors.Join(haul.FinishErr, haul.ClaimErr)
		if i < len(haul.Claimed) {
			for _, r := range haul.Claimed[i].Rows {
				jobs = append(jobs, torture.Job{ID: r.ID, Fence: r.Fence, Attempt: r.Attempt, Queue: r.Queue, Kind: r.Kind})
			}
		}
		if len(jobs) > 0 { // one that worked, before one that did not
			err = nil
		}
		answered(jobs, err)
	}
	return haul
}

func (s tapped) Extend(ctx context.Context, leases []claim.Lease) ([]claim.Loss, error) {
	var jobs []torture.Job
	for _, l := range leases {
		jobs = append(jobs, torture.Job{ID: l.ID, Fence: l.Fence})
	}
	answered := s.tap.Extend(jobs)
	losses, err := s.rigged.Extend(ctx, leases)
	var lost []torture.Job
	for _, l := range losses {
		lost = append(lost, torture.Job{ID: l.ID, Fence: l.Fence, Result: string(l.Reason)})
	}
	answered(lost, err)
	return losses, err
}

func outcomesOf(outcomes []claim.Outcome, results []claim.Result) (jobs []torture.Job) {
	for i, o := range outcomes {
		j := torture.Job{ID: o.ID, Fence: o.Fence, Verb: string(o.Verb), Delay: int64(o.Delay)}
		if i < len(results) {
			j.Result = results[i].String()
		}
		jobs = append(jobs, j)
	}
	return slices.Clip(jobs)
}
