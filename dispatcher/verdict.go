package dispatcher

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// verdict is an error by which a handler decides what becomes of its job. It
// counts wherever it stands in the chain; the outermost one wins.
type verdict struct {
	verb   claim.Verb
	delay  time.Duration
	reason error
}

func (v *verdict) Unwrap() error { return v.reason }

func (v *verdict) Error() string {
	switch {
	case v.reason != nil:
		return fmt.Sprint(v.reason)
	case v.verb == claim.Cancelled:
		return "called off by its handler"
	case v.verb == claim.Dead:
		return "given up by its handler"
	case v.verb == claim.Snooze:
		return fmt.Sprintf("snoozed for %v", v.delay)
	default:
		return fmt.Sprintf("to be tried again in %v", v.delay)
	}
}

// Cancel makes an error by which a handler calls the job off: it ends as
// cancelled, for the given reason, which may be nil.
func Cancel(reason error) error { return &verdict{verb: claim.Cancelled, reason: reason} }

// Dead makes an error by which a handler gives the job up: it ends as dead,
// whatever attempts are left. The reason may be nil.
func Dead(reason error) error { return &verdict{verb: claim.Dead, reason: reason} }

// RetryAfter makes an error that fails the attempt like any other, but names
// the delay before the next one. Less than 0 counts as 0. The reason may be
// nil.
func RetryAfter(delay time.Duration, reason error) error {
	return &verdict{verb: claim.Retry, delay: max(delay, 0), reason: reason}
}

// Snooze makes an error by which a handler puts the job off without counting
// the attempt. Less than 0 counts as 0.
func Snooze(delay time.Duration) error {
	return &verdict{verb: claim.Snooze, delay: max(delay, 0)}
}

const (
	goexited    = "handler called runtime.Goexit"
	mostText    = 8 << 10 // of an outcome, in bytes; more is not stored
	mostMessage = 4 << 10 // of a panic, so that its stack has room beside it
)

// judge decides what becomes of a job whose handler has returned err, while
// the cause of its context's end, if it had ended, was cause.
func (d *Dispatcher) judge(row *claim.Row, timeout time.Duration, err, cause error) claim.Outcome {
	outcome := claim.Outcome{Lease: row.Lease(), Verb: claim.Done}
	switch {
	case errors.Is(cause, ErrCancelled):
		outcome.Verb = claim.Cancelled // it has been, whatever its handler says
		return outcome
	case err == nil:
		return outcome
	}
	var own *verdict
	switch {
	case errors.As(err, &own):
		outcome.Verb, outcome.Delay = own.verb, own.delay
		if own.verb == claim.Snooze {
			return outcome // nothing went wrong
		}
	case errors.Is(cause, ErrStopping):
		// We have broken it off: that is no failure of the job's.
		outcome.Verb = claim.Release
		err = fmt.Errorf("%w: %w", ErrStopping, err)
	default:
		switch {
		case errors.Is(cause, ErrTimeout):
			err = fmt.Errorf("%w after %v: %w", ErrTimeout, timeout, err)
		case errors.Is(cause, claim.ErrLeaseLost):
			err = fmt.Errorf("%w: %w", claim.ErrLeaseLost, err)
		}
		outcome.Verb, outcome.Delay = claim.Retry, d.delay(row.Attempt, err)
	}
	// Sprint outlives an Error method that panics, as one on a nil pointer may.
	outcome.Error = cut(fmt.Sprint(err), mostText)
	return outcome
}

// crashed is the outcome of a handler that has not returned: a failed attempt
// like any other. It must be called while the goroutine unwinds, so that the
// stack is still there; value is nil after runtime.Goexit.
func (d *Dispatcher) crashed(row *claim.Row, value any) claim.Outcome {
	message := goexited
	if value != nil {
		message = cut("panic: "+fmt.Sprint(value), mostMessage)
	}
	return claim.Outcome{
		Lease: row.Lease(),
		Verb:  claim.Retry,
		Delay: d.delay(row.Attempt, errors.New(message)),
		Error: cut(message+"\n\n"+string(debug.Stack()), mostText),
	}
}

// delay asks the user's curve. One that panics must not take the process with
// it, nor the outcome.
func (d *Dispatcher) delay(attempt int, err error) (pause time.Duration) {
	defer func() {
		if value := recover(); value != nil {
			d.cfg.Logger.Error("retry delay panicked; the default curve is used", "panic", value)
			pause = DefaultCurve.Delay(attempt)
		}
	}()
	return max(d.cfg.Delay(attempt, err), 0)
}

// cut shortens a text, and does not keep the memory of what is cut off.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.Clone(text[:most])
}
