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
func (d *Dispatcher) work(ctx context.Context, row claim.Row, timeout time.Duration, reports chan<- report, gone <-chan struct{}) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, ErrTimeout)
		defer cancel()
	}
	// What counts if even the judging ends this goroutine: it calls funcs and
	// methods of the user's.
	outcome := claim.Outcome{Lease: row.Lease(), Verb: claim.Retry, Delay: DefaultCurve.Delay(row.Attempt), Error: goexited}
	judged := false
	defer func() {
		select {
		case reports <- report{row.Lease(), outcome}:
		case <-gone:
		}
	}()
	defer func() {
		if !judged {
			outcome = d.crashed(row, recover())
		}
	}()
	err := d.cfg.Handle(ctx, row)
	// Judging calls methods of the user's error: also under the recover above.
	outcome = d.judge(row, timeout, err, context.Cause(ctx))
	judged = true
}
