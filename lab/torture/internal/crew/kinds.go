package crew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// kinds is what the handler of each kind does. Payload, attempt and progress
// decide, and nothing else.
var kinds = map[string]func(context.Context, *worker, *job) ending{
	script.Short:    takeTime,
	script.Long:     takeTime,
	script.Exit:     takeTime, // from its second attempt on
	script.Killer:   takeTime, // never gets here
	script.Fail:     fail,
	script.Later:    later,
	script.Snooze:   snooze,
	script.Panic:    panicOnce,
	script.Deaf:     deaf,
	script.Tx:       inTx,
	script.SlowTx:   inTx,
	script.Rollback: inTx,
	script.Parent:   inTx,
	script.Fenced:   fenced,
	script.Hopeless: hopeless,
	script.Off:      off,
	script.Progress: progress,
}

func millis(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func takeTime(ctx context.Context, _ *worker, j *job) ending {
	if err := rest(ctx, millis(j.Payload.Millis)); err != nil {
		return failed(j, err)
	}
	return done
}

func fail(ctx context.Context, w *worker, j *job) ending {
	if end := takeTime(ctx, w, j); end.err != nil || j.Attempt > j.Payload.Times {
		return end
	}
	return failed(j, errors.New("as planned"))
}

func later(ctx context.Context, w *worker, j *job) ending {
	if end := takeTime(ctx, w, j); end.err != nil || j.Attempt > j.Payload.Times {
		return end
	}
	pause := millis(j.Payload.Delay)
	return ending{claim.Retry, pause, fencepost.RetryAfter(pause, errors.New("as planned"))}
}

// snooze counts in the job's progress, since a snooze does not count as an
// attempt.
func snooze(ctx context.Context, w *worker, j *job) ending {
	p, err := w.progressOf(j)
	if err != nil {
		return failed(j, err)
	}
	if end := takeTime(ctx, w, j); end.err != nil || p.Times >= j.Payload.Times {
		return end
	}
	if err := w.setProgress(ctx, j, p.Times+1); err != nil {
		return failed(j, err)
	}
	pause := millis(j.Payload.Delay)
	return ending{claim.Snooze, pause, fencepost.Snooze(pause)}
}

func panicOnce(ctx context.Context, w *worker, j *job) ending {
	if j.Attempt == 1 {
		panic("as planned")
	}
	return takeTime(ctx, w, j)
}

func deaf(_ context.Context, _ *worker, j *job) ending {
	time.Sleep(millis(j.Payload.Millis))
	return done
}

func hopeless(ctx context.Context, w *worker, j *job) ending {
	if end := takeTime(ctx, w, j); end.err != nil {
		return end
	}
	return ending{verb: claim.Dead, err: fencepost.Dead(errors.New("as planned"))}
}

func off(ctx context.Context, w *worker, j *job) ending {
	if end := takeTime(ctx, w, j); end.err != nil {
		return end
	}
	return ending{verb: claim.Cancelled, err: fencepost.Cancel(errors.New("as planned"))}
}

// fenced writes to the business row with the fence of this claim. Some fail
// then, so that their next attempt writes over it.
func fenced(ctx context.Context, w *worker, j *job) ending {
	if end := takeTime(ctx, w, j); end.err != nil {
		return end
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	write := history.Event{Op: history.Effect, Ref: ref(j)}
	n := w.Begin(write)
	err := fencepost.Fenced(w.pool.Exec(ctx, `UPDATE shop.orders SET fence = $2 WHERE token = $1 AND fence <= $2`,
		unnamed, j.Payload.Token, j.Fence))
	write.Error = text(err)
	w.End(n, answered(err), write)
	if err != nil {
		return failed(j, err)
	}
	if j.Attempt <= j.Payload.Times {
		return failed(j, errors.New("as planned"))
	}
	return done
}

// progress stores something, fails, and finds it again.
func progress(ctx context.Context, w *worker, j *job) ending {
	p, err := w.progressOf(j)
	if err != nil {
		return failed(j, err)
	}
	if end := takeTime(ctx, w, j); end.err != nil || p.Times > 0 {
		return end
	}
	if err := w.setProgress(ctx, j, 1); err != nil {
		return failed(j, err)
	}
	return failed(j, errors.New("as planned"))
}

// stored is what a job keeps as its progress.
type stored struct {
	Token string `json:"token"`
	Times int    `json:"times"`
}

// progressOf returns what earlier runs of the job have left, and writes down
// what that is. That it is not this job's must never be seen.
func (w *worker) progressOf(j *job) (p stored, err error) {
	found := history.Event{Op: history.Progress, Ref: ref(j)}
	found.Result = string(j.Progress())
	w.Write(found)
	if found.Result == "" {
		return p, nil
	}
	err = json.Unmarshal(j.Progress(), &p)
	if err == nil && p.Token != j.Payload.Token {
		err = errors.New("it is another job's")
	}
	if err != nil {
		err = fmt.Errorf("progress %s: %w", found.Result, err)
		w.Write(history.Event{Op: history.Amiss, Ref: ref(j), Note: text(err)})
	}
	return p, err
}

func (w *worker) setProgress(ctx context.Context, j *job, times int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	write := history.Event{Op: history.Progress, Ref: ref(j)}
	n := w.Begin(write)
	err := j.SetProgress(ctx, stored{j.Payload.Token, times})
	write.Error = text(err)
	w.End(n, answered(err), write)
	return err
}
