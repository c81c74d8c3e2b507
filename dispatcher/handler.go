package dispatcher

import (
	"context"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// report says that the handler of a job is done.
type report struct {
	lease   claim.Lease
	outcome claim.Outcome
}

// work runs one handler and delivers exactly one report, whatever the handler
// does: return, panic or end its goroutine. After gone is closed nobody wants
// the report any more.
func (l *loop) work(ctx context.Context, row *claim.Row, timeout time.Duration) {
	defer l.handlers.Done()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, ErrTimeout)
		defer cancel()
	}
	var outcome claim.Outcome // without a verb: not judged yet
	defer func() {
		if outcome.Verb == "" {
			// Even the judging has ended this goroutine: it calls funcs and methods
			// of the user's.
			outcome = claim.Outcome{Lease: row.Lease(), Verb: claim.Retry, Delay: DefaultCurve.Delay(row.Attempt), Error: goexited}
		}
		select {
		case l.reports <- report{row.Lease(), outcome}:
		case <-l.gone:
		}
	}()
	defer func() {
		if outcome.Verb == "" {
			outcome = l.crashed(row, recover())
		}
	}()
	err := l.cfg.Handle(ctx, *row)
	// Judging calls methods of the user's error: also under the recover above.
	outcome = l.judge(row, timeout, err, context.Cause(ctx))
}
