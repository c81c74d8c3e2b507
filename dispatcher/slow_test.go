package dispatcher_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
)

// What a slow database does to leases.

// A lease is counted from before its claim was sent: it may have begun then,
// however late its answer comes.
func TestASlowClaimGivesNoTimeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		tb.insert("q", "k", 1)
		s := &store{table: tb}
		s.afterClaim = func(c *claim.Claimed) {
			if len(c.Rows) > 0 {
				<-time.After(5 * time.Second)
			}
		}
		s.onExtend = func(context.Context, []claim.Lease) error { return claim.ErrTryAgain }
		begin := time.Now()
		var ended time.Duration
		var cause error
		w := start(t, s, dispatcher.Config{Handle: func(ctx context.Context, _ claim.Row) error {
			<-ctx.Done()
			ended, cause = time.Since(begin), context.Cause(ctx)
			return nil
		}})
		pass(time.Minute)
		if ended != lease || !errors.Is(cause, claim.ErrLeaseLost) {
			t.Errorf("context ended after %v by %v, want one lease after the claim was sent", ended, cause)
		}
		w.mustStop()
	})
}

// B64: each extension takes its time, and a job of five leases is started once
// all the same, though another process looks for dead ones all the while.
func TestSlowExtensionsMakeNoSecondStart(t *testing.T) {
	for _, term := range []time.Duration{2 * time.Second, 30 * time.Second, time.Minute} {
		t.Run(term.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := newTable(term)
				id := tb.insert("q", "k", 1)
				slow := func(context.Context, []claim.Lease) error {
					<-time.After(min(term/3, 5*time.Second) - time.Millisecond) // just within its deadline
					return nil
				}
				var starts atomic.Int32
				cfg := dispatcher.Config{Handle: func(ctx context.Context, row claim.Row) error {
					starts.Add(1)
					return sleeper(5*term)(ctx, row)
				}}
				a := start(t, &store{table: tb, onExtend: slow}, cfg)
				pass(time.Millisecond)
				b := start(t, &store{table: tb, onExtend: slow}, cfg)
				for range 60 {
					b.Wake("q")
					pass(term / 10)
				}
				if n := starts.Load(); n != 1 {
					t.Errorf("started %d times", n)
				}
				wantVerbs(t, tb, id, claim.Done)
				a.mustStop()
				b.mustStop()
			})
		})
	}
}
