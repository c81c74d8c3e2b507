package dispatcher_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
)

// watched is what a dispatcher tells about cancelled and lost jobs.
type watched struct {
	causes             list[error]
	refused, cancelled list[int64]
}

// watch runs jobs that end when their context does, and return err.
func (w *watched) watch(err error) dispatcher.Config {
	return dispatcher.Config{
		Handle: func(ctx context.Context, _ claim.Row) error {
			<-ctx.Done()
			w.causes.add(context.Cause(ctx))
			return err
		},
		Refused:   func(l claim.Lease, _ claim.Verb) { w.refused.add(l.ID) },
		Cancelled: func(l claim.Lease) { w.cancelled.add(l.ID) },
		HardStop:  time.Second,
	}
}

// want compares the one cause, and which jobs were refused and cancelled.
func (w *watched) want(t *testing.T, cause error, refused, cancelled []int64) {
	t.Helper()
	if got := w.causes.take(); len(got) != 1 || !errors.Is(got[0], cause) {
		t.Errorf("causes %v, want %v", got, cause)
	}
	if got := w.refused.take(); !slices.Equal(got, refused) {
		t.Errorf("refused %v, want %v", got, refused)
	}
	if got := w.cancelled.take(); !slices.Equal(got, cancelled) {
		t.Errorf("cancelled %v, want %v", got, cancelled)
	}
}

// A recall ends the context of a cancelled job at once, with its own cause.
// What the handler returns does not matter, and is no news; one job's end is
// nothing to the others.
func TestARecallEndsACancelledJob(t *testing.T) {
	for name, err := range map[string]error{
		"nil": nil, "error": errors.New("e"), "snooze": dispatcher.Snooze(time.Second), "dead": dispatcher.Dead(nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := newTable(lease)
				id := tb.insert("q", "k", 2)
				var watched watched
				w := start(t, &store{table: tb}, watched.watch(err))
				pass(time.Second)
				tb.cancel(id)
				w.Recall()
				synctest.Wait() // and no time passes
				watched.want(t, dispatcher.ErrCancelled, nil, []int64{id})
				if n := w.logs.count("was refused"); n > 0 {
					t.Errorf("refused, says the log %d times", n)
				}
				wantVerbs(t, tb, id)
				if tb.held() != 1 {
					t.Errorf("%d jobs are held, want the other", tb.held())
				}
				// Its slot is free.
				next := tb.insert("q", "k", 1)
				w.Wake("q")
				synctest.Wait()
				tb.cancel(next)
				w.Recall()
				synctest.Wait()
				watched.want(t, dispatcher.ErrCancelled, nil, []int64{next})
				w.mustStop()
			})
		})
	}
}

// A recall finds jobs that were taken or are gone as well, and those end as
// lost ones do. Without a recall the next extension finds what was cancelled.
func TestARecallFindsLostLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		var watched watched
		w := start(t, &store{table: tb}, watched.watch(nil))
		pass(time.Second)
		tb.steal(id)
		w.Recall()
		synctest.Wait()
		watched.want(t, claim.ErrLeaseLost, []int64{id}, nil)

		id = tb.insert("q", "k", 1)
		w.Wake("q")
		pass(time.Second)
		tb.cancel(id)
		pass(lease / 3)
		watched.want(t, dispatcher.ErrCancelled, nil, []int64{id})
		w.mustStop()
	})
}

// The outcome of a handler that had returned before the cancellation was found
// comes too late, and that is said: its effects are there.
func TestAnOutcomeThatComesAfterACancellationIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		var watched watched
		cfg := watched.watch(nil)
		cfg.Handle = sleeper(2 * time.Second)
		w := start(t, &store{table: tb}, cfg)
		pass(time.Second)
		tb.cancel(id)
		pass(2 * time.Second)
		if refused, cancelled := watched.refused.take(), watched.cancelled.take(); !slices.Equal(refused, []int64{id}) || cancelled != nil {
			t.Errorf("refused %v, cancelled %v", refused, cancelled)
		}
		w.mustStop()
	})
}

// A recall that comes while the claim of its job is on its way back is not
// lost.
func TestARecallOvertakesItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		s := &store{table: tb}
		s.afterClaim = func(c *claim.Claimed) {
			if len(c.Rows) > 0 {
				<-time.After(time.Second)
			}
		}
		var watched watched
		w := start(t, s, watched.watch(nil))
		pass(100 * time.Millisecond)
		tb.cancel(id)
		w.Recall()
		pass(time.Second)
		watched.want(t, dispatcher.ErrCancelled, nil, []int64{id})
		w.mustStop()
	})
}

// One call of the keeper at a time: a recall during one is followed by a check
// of its own, also when that has to be tried again; many at once are few.
func TestRecallsDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		var checks, at, most atomic.Int32
		s := &store{table: tb}
		fails := true
		s.onCheck = func(context.Context, []claim.Lease) error {
			checks.Add(1)
			most.Store(max(most.Load(), at.Add(1)))
			defer at.Add(-1)
			<-time.After(200 * time.Millisecond)
			if fails {
				fails = false
				return claim.ErrTryAgain
			}
			return nil
		}
		var watched watched
		w := start(t, s, watched.watch(nil))
		synctest.Wait()
		for range 100 {
			w.Recall() // one check, which fails
		}
		pass(100 * time.Millisecond)
		if n := checks.Load(); n > 2 {
			t.Errorf("%d checks at once", n)
		}
		pass(time.Second)
		begin := checks.Load()
		w.Recall()
		pass(100 * time.Millisecond) // it is under way, and has not looked yet or has; this is not known
		tb.cancel(id)
		w.Recall()
		pass(time.Second)
		watched.want(t, dispatcher.ErrCancelled, nil, []int64{id})
		if n := checks.Load() - begin; n > 2 || most.Load() != 1 {
			t.Errorf("%d checks for two recalls, %d at a time", n, most.Load())
		}
		w.Recall() // nothing is in hand
		pass(time.Second)
		if checks.Load() > begin+2 {
			t.Error("a check with nothing in hand")
		}
		w.mustStop()
	})
}

// A store whose checks never answer costs no lease: the extension follows in
// time.
func TestAStalledCheckCostsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		s := &store{table: tb, onCheck: func(ctx context.Context, _ []claim.Lease) error {
			<-ctx.Done()
			return claim.ErrUnknown
		}}
		w := start(t, s, dispatcher.Config{Handle: sleeper(5 * lease)})
		for range 50 {
			w.Recall()
			pass(lease / 10)
		}
		pass(lease)
		wantVerbs(t, tb, id, claim.Done)
		w.mustStop()
	})
}

// What the keeper brings back may be from before the recall: it has looked at
// the table, the job is cancelled, and only then it answers.
func TestARecallAfterTheKeeperHasLooked(t *testing.T) {
	for _, call := range []string{"check", "extension"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := newTable(lease)
				id := tb.insert("q", "k", 1)
				once := true
				delay := func() {
					if once {
						once = false
						<-time.After(time.Second)
					}
				}
				s := &slowAnswers{store: &store{table: tb}, afterCheck: delay, afterExtend: delay}
				var watched watched
				w := start(t, s, watched.watch(nil))
				synctest.Wait()
				if call == "check" {
					w.Recall()
				} else {
					pass(lease / 3)
				}
				pass(500 * time.Millisecond)
				tb.cancel(id)
				w.Recall()
				pass(100 * time.Millisecond)
				if got := watched.causes.take(); len(got) > 0 {
					t.Errorf("%v before the answer", got)
				}
				pass(400 * time.Millisecond)
				watched.want(t, dispatcher.ErrCancelled, nil, []int64{id})
				w.mustStop()
			})
		})
	}
}

// slowAnswers does something between the look at the table and the answer.
type slowAnswers struct {
	*store
	afterCheck, afterExtend func()
}

func (s *slowAnswers) Check(ctx context.Context, leases []claim.Lease) ([]claim.Loss, error) {
	lost, err := s.store.Check(ctx, leases)
	if s.afterCheck != nil {
		s.afterCheck()
	}
	return lost, err
}

func (s *slowAnswers) Extend(ctx context.Context, leases []claim.Lease) ([]claim.Loss, error) {
	lost, err := s.store.Extend(ctx, leases)
	if s.afterExtend != nil {
		s.afterExtend()
	}
	return lost, err
}

// A job that is not there any more is a lost one.
func TestARecallFindsDeletedJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		var watched watched
		w := start(t, &store{table: tb}, watched.watch(nil))
		pass(time.Second)
		tb.remove(id)
		w.Recall()
		synctest.Wait()
		watched.want(t, claim.ErrLeaseLost, []int64{id}, nil)
		w.mustStop()
	})
}
