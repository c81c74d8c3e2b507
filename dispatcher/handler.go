package dispatcher

import (
	"context"

	"github.com/fencepost-go/fencepost/claim"
)

// report says that the handler of a job is done.
type report struct {
	lease   claim.Lease
	outcome claim.Outcome
	died    bool // the goroutine has ended with it
}

// work runs one handler and delivers exactly one report, whatever the handler
// does: return, panic or end its goroutine. After gone is closed nobody wants
// the report any more.
func (l *loop) work(t task) {
	ctx := t.ctx
	if t.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.timeout, ErrTimeout)
		defer cancel()
	}
	row := &t.row
	var outcome claim.Outcome // without a verb: not judged yet
	died := true              // unless we come to the end, or recover
	defer func() {
		if outcome.Verb == "" {
			// Even the judging has ended this goroutine: it calls funcs and methods
			// of the user's.
			outcome = claim.Outcome{Lease: row.Lease(), Verb: claim.Retry, Delay: DefaultCurve.Delay(row.Attempt), Error: goexited}
		}
		select {
		case l.reports <- report{row.Lease(), outcome, died}:
		case <-l.gone:
		}
	}()
	defer func() {
		if outcome.Verb == "" {
			value := recover()
			outcome = l.crashed(row, value)
			died = value == nil
		}
	}()
	err := l.cfg.Handle(ctx, *row)
	// Judging calls methods of the user's error: also under the recover above.
	outcome = l.judge(row, t.timeout, err, context.Cause(ctx))
	died = false
}
