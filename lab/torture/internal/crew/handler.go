package crew

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// job is a claimed job of any kind.
type job = fencepost.Job[script.Order]

// ref names the job in an event.
func ref(j *job) history.Ref {
	return history.Ref{Job: j.ID, Fence: j.Fence, Attempt: j.Attempt, Token: j.Payload.Token, Kind: j.Kind, Queue: j.Queue}
}

// ending is how a handler ends: the error that it returns, and what is to be
// written down about it.
type ending struct {
	verb  claim.Verb
	delay time.Duration // of a retry or a snooze
	err   error
}

var done = ending{verb: claim.Done}

// failed is the end of an attempt for a reason that leaves the delay to the
// worker's curve.
func failed(j *job, err error) ending {
	return ending{claim.Retry, script.RetryDelay(j.Attempt, err), err}
}

// frame puts around what a kind does what all kinds have in common: start,
// a look at the business row, and the end, also by a panic.
func (w *worker) frame(do func(context.Context, *worker, *job) ending) func(context.Context, *job) error {
	return func(ctx context.Context, j *job) error {
		start := history.Event{Op: history.Start, Ref: ref(j), Max: j.MaxAttempts}
		start.Payload = j.Payload.Sum()
		w.Write(start)
		w.mayExit(j)
		end := failed(j, errors.New("panic"))
		defer func() {
			r := ref(j)
			r.Verb, r.Delay = string(end.verb), int64(end.delay)
			w.Write(history.Event{Op: history.End, Ref: r, Error: text(end.err), Note: text(context.Cause(ctx))})
		}()
		if err := w.see(ctx, j); err != nil {
			end = failed(j, err)
		} else {
			end = do(ctx, w, j)
		}
		leaveReadOnly(w.pool, end.err)
		return end.err
	}
}

// mayExit ends the process if that is what the job is for.
func (w *worker) mayExit(j *job) {
	if j.Kind == script.Killer || j.Kind == script.Exit && j.Attempt == 1 {
		w.exit(3)
	}
}

// see looks whether the job's business row is visible, and what time it is
// there.
func (w *worker) see(ctx context.Context, j *job) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var row bool
	var at time.Time
	err := w.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM shop.orders WHERE token = $1), clock_timestamp()`,
		unnamed, j.Payload.Token).Scan(&row, &at)
	if err != nil {
		return fmt.Errorf("look for the business row: %w", err)
	}
	seen := history.Event{Op: history.Seen, Ref: ref(j), DB: at.UnixMicro()}
	seen.Result = "no row"
	if row {
		seen.Result = "row"
	}
	w.Write(seen)
	return nil
}
