package fencepost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// Did says what Retry, Cancel, Delete or Release has done about one job.
type Did = claim.Did

const (
	maxIDs        = 1000                  // in one call of an operator's verb
	busyPatience  = 5 * time.Second       // for jobs that somebody holds
	busyPause     = 20 * time.Millisecond // before the second try; then twice as long
	busyPauseMost = 500 * time.Millisecond
)

// Retry brings jobs that have ended, as done, dead or cancelled, back: ready at
// once, with the same id and Key, and with an attempt more if they had used up
// theirs. Live jobs are left alone.
//
// Like the other verbs it takes up to 1000 ids and answers once for each, in
// their order. What was done is committed. A job that somebody holds, such as a
// handler that completes it in an open transaction, is asked for again for up
// to 5 s and then reported as Busy. Next to an error there may be answers: what
// they say was done, was done.
func (c *Client) Retry(ctx context.Context, ids ...int64) ([]Did, error) {
	return c.operate(ctx, "retry", c.table.Retry, ids)
}

// Cancel ends jobs that have not ended yet as cancelled. The context of the
// handler of a running one ends with cause ErrCancelled: where notifications
// are heard, some milliseconds after the commit, elsewhere within a second.
// Whatever the handler still does about the job changes nothing. Jobs that have
// ended are left alone. See Retry for what all verbs have in common.
func (c *Client) Cancel(ctx context.Context, ids ...int64) ([]Did, error) {
	return c.operate(ctx, "cancel", c.table.Cancel, ids)
}

// Release takes running jobs from their workers, dead or alive, without waiting
// for the lease: they are ready at once. The attempt counts; if it was the last
// one there is one more. The context of a handler that still runs ends with
// cause ErrLeaseLost, and whatever it still does about the job changes nothing.
// Other jobs are left alone. See Retry for what all verbs have in common.
func (c *Client) Release(ctx context.Context, ids ...int64) ([]Did, error) {
	return c.operate(ctx, "release", c.table.Release, ids)
}

// Delete deletes jobs, live or ended, without a trace: all that there is under
// an id, also a live job that a producer has given the id of one that has ended.
// The context of the handler of a running one ends with cause ErrLeaseLost. See
// Retry for what all verbs have in common.
func (c *Client) Delete(ctx context.Context, ids ...int64) ([]Did, error) {
	return c.operate(ctx, "delete", c.table.Delete, ids)
}

// operate asks for all jobs, and then again for those that were busy.
func (c *Client) operate(ctx context.Context, verb string, do func(context.Context, claim.DB, []int64) ([]Did, error), ids []int64) ([]Did, error) {
	if len(ids) > maxIDs {
		return nil, fmt.Errorf("%s: %w: %d ids in one call; at most %d", verb, ErrInvalid, len(ids), maxIDs)
	}
	ids = unique(ids)
	known := make(map[int64]Did, len(ids))
	err := persist(ctx, func() error {
		var ask []int64
		for _, id := range ids {
			if d, asked := known[id]; !asked || d.Busy {
				ask = append(ask, id)
			}
		}
		did, err := fromPool(ctx, c, func(db poolDB) ([]Did, error) { return do(ctx, db, ask) })
		busy := len(did) < len(ask)
		for _, d := range did {
			known[d.ID] = d
			busy = busy || d.Busy
		}
		if err == nil && busy {
			err = errBusy
		}
		return err
	})
	switch {
	case err == errBusy: // the answers say which
		err = nil
	case errors.Is(err, errBusy):
		err = fmt.Errorf("%s: %w", verb, context.Cause(ctx))
	}
	var answers []Did
	for _, id := range ids {
		if d, asked := known[id]; asked {
			answers = append(answers, d)
		}
	}
	return answers, err
}

// errBusy says that somebody holds some of the jobs.
var errBusy = errors.New("busy")

// persist repeats what is worth another try, for as long as busyPatience, and
// returns the last error.
func persist(ctx context.Context, try func() error) error {
	end := time.Now().Add(busyPatience)
	for pause := busyPause; ; pause = min(2*pause, busyPauseMost) {
		err := try()
		worth := errors.Is(err, errBusy) || errors.Is(err, claim.ErrTryAgain)
		if !worth || time.Now().Add(pause).After(end) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

func unique(ids []int64) []int64 {
	seen := make(map[int64]bool, len(ids))
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
		again := seen[id]
		seen[id] = true
		return again
	})
}
