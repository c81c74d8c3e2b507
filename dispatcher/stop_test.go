package dispatcher_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
)

var discard = slog.New(slog.DiscardHandler)

// B138: Run returns after the outcome is stored.
func TestStopWaitsForHandlersAndTheirOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		w := start(t, &store{table: tb}, dispatcher.Config{Handle: sleeper(5 * time.Second), SoftStop: 30 * time.Second})
		pass(time.Second)
		if took, err := w.stop(); err != nil || took != 4*time.Second {
			t.Errorf("Run returned after %v: %v", took, err)
		}
		wantVerbs(t, tb, id, claim.Done)
	})
}

// B143: outcomes that are in nobody's hands but ours are stored.
func TestStopStoresWhatHasPiledUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		tb.insert("q", "k", 100)
		s := &store{table: tb}
		s.onFinish = func(context.Context, []claim.Outcome) error { <-time.After(time.Second); return nil }
		w := start(t, s, dispatcher.Config{Queues: []dispatcher.Queue{{Name: "q", Slots: 100}}, Handle: sleeper(0)})
		pass(1)
		w.mustStop()
		if n := len(tb.stored()); n != 100 {
			t.Errorf("%d outcomes stored", n)
		}
	})
}

func TestStopClaimsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		tb.insert("q", "k", 10)
		w := start(t, &store{table: tb}, dispatcher.Config{Handle: sleeper(time.Second), SoftStop: time.Minute})
		pass(500 * time.Millisecond)
		w.WakeAll()
		w.mustStop()
		if n := len(tb.stored()); n != 2 {
			t.Errorf("%d jobs were run, want the 2 that had begun", n)
		}

		done, cancel := context.WithCancel(t.Context())
		cancel()
		before := tb.claimed()
		d := dispatcher.New(dispatcher.Config{Store: &store{table: tb}, Queues: []dispatcher.Queue{{Name: "q", Slots: 1}}, Lease: lease, Logger: discard})
		d.Wake("q")
		if err := d.Run(done); err != nil || tb.claimed() != before {
			t.Errorf("a Run that begins stopped: %v, %d claims", err, tb.claimed()-before)
		}
	})
}

// Jobs claimed by a trip that was under way when the stop began are handed
// back without having counted.
func TestStopReturnsWhatAClaimInFlightBrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		s := &store{table: tb}
		s.onClaim = func(ctx context.Context, _ dispatcher.Want) error {
			<-time.After(time.Second)
			return ctx.Err() // not cancelled by the stop
		}
		failed := false
		s.onFinish = func(context.Context, []claim.Outcome) error {
			if !failed {
				failed = true
				return claim.ErrTryAgain // Run has to try again
			}
			return nil
		}
		w := start(t, s, dispatcher.Config{Handle: sleeper(0)})
		synctest.Wait()
		w.mustStop()
		wantVerbs(t, tb, id, claim.Return)
		if n := tb.jobs[id].row.Attempt; n != 0 {
			t.Errorf("%d attempts counted", n)
		}
	})
}

func TestStopCancelsHandlersAfterTheSoftTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		obeys := tb.insert("q", "obeys", 1)
		finishes := tb.insert("q", "finishes", 1)
		fails := tb.insert("q", "fails", 1)
		var causes list[error]
		w := start(t, &store{table: tb}, dispatcher.Config{
			Queues: []dispatcher.Queue{{Name: "q", Slots: 3}},
			Handle: func(ctx context.Context, row claim.Row) error {
				<-ctx.Done()
				causes.add(context.Cause(ctx))
				switch row.Kind {
				case "obeys":
					return ctx.Err()
				case "fails":
					return errors.New("broken off")
				}
				<-time.After(time.Second)
				return nil
			},
			SoftStop: 10 * time.Second, HardStop: 5 * time.Second,
		})
		pass(time.Second)
		if took, err := w.stop(); err != nil || took != 11*time.Second {
			t.Errorf("Run returned after %v: %v", took, err)
		}
		for _, cause := range causes.take() {
			if !errors.Is(cause, dispatcher.ErrStopping) {
				t.Errorf("cause %v", cause)
			}
		}
		wantVerbs(t, tb, obeys, claim.Release)
		wantVerbs(t, tb, fails, claim.Release)
		wantVerbs(t, tb, finishes, claim.Done)
	})
}

func TestStopNow(t *testing.T) {
	for _, early := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tb := newTable(lease)
			id := tb.insert("q", "k", 1)
			w := start(t, &store{table: tb}, dispatcher.Config{Handle: sleeper(time.Hour), SoftStop: time.Hour, HardStop: time.Second})
			pass(time.Second)
			want := time.Duration(0)
			if early {
				w.StopNow()
				pass(time.Minute)
				wantVerbs(t, tb, id) // nothing yet: no stop is under way
			} else {
				want = 5 * time.Second
				time.AfterFunc(want, func() { w.StopNow(); w.StopNow() })
			}
			if took, err := w.stop(); err != nil || took != want {
				t.Errorf("early %v: Run returned after %v: %v", early, took, err)
			}
			wantVerbs(t, tb, id, claim.Release)
		})
	}
}

// B137, B140, B141: a handler that ignores its context is named, its job is at
// once free for others, and nothing but its own goroutine is left.
func TestStopLeavesStuckHandlersBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(2 * time.Hour)
		id := tb.insert("q", "ignores", 1)
		good := tb.insert("q", "k", 1)
		s := &store{table: tb}
		release := make(chan struct{})
		w := start(t, s, dispatcher.Config{
			Handle: func(ctx context.Context, row claim.Row) error {
				if row.Kind == "ignores" {
					<-release
				}
				return nil
			},
			SoftStop: 2 * time.Second, HardStop: time.Second,
		})
		pass(time.Second)
		took, err := w.stop()
		if took != 3*time.Second {
			t.Errorf("Run returned after %v", took)
		}
		if !errors.Is(err, dispatcher.ErrStuck) || !strings.Contains(err.Error(), "handlers still running: jobs 1") {
			t.Errorf("Run: %v", err)
		}
		wantVerbs(t, tb, id, claim.Release)
		wantVerbs(t, tb, good, claim.Done)
		if c := tb.claim(dispatcher.Want{Queue: "q", Limit: 1}); len(c.Rows) != 1 || c.Rows[0].Attempt != 2 {
			t.Errorf("claimable after the stop: %+v", c)
		}
		close(release) // its goroutine ends: the bubble would not otherwise
	})
}

// Handlers that return after Run find nobody to report to, and end.
func TestHandlersLeftBehindEndWhenTheyReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 500
		tb := newTable(lease)
		tb.insert("q", "k", many)
		release := make(chan struct{})
		w := start(t, &store{table: tb}, dispatcher.Config{
			Queues: []dispatcher.Queue{{Name: "q", Slots: many}},
			Handle: func(context.Context, claim.Row) error { <-release; return nil },
		})
		pass(time.Second)
		if _, err := w.stop(); !errors.Is(err, dispatcher.ErrStuck) {
			t.Errorf("Run: %v", err)
		}
		close(release) // the bubble fails if any of them stays
	})
}

// A stop ends within its time though the database does not answer, and says
// what it could not store.
func TestStopDuringAnOutage(t *testing.T) {
	for name, finish := range map[string]func(context.Context) error{
		"errors":              func(context.Context) error { return claim.ErrTryAgain },
		"stalls":              func(ctx context.Context) error { <-ctx.Done(); return claim.ErrUnknown },
		"ignores its context": func(context.Context) error { <-time.After(time.Hour); return claim.ErrUnknown },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := newTable(lease)
				tb.insert("q", "k", 1)
				s := &store{table: tb, onFinish: func(ctx context.Context, _ []claim.Outcome) error { return finish(ctx) }}
				w := start(t, s, dispatcher.Config{Handle: sleeper(0), SoftStop: 2 * time.Second, HardStop: time.Second})
				pass(time.Second)
				took, err := w.stop()
				if took > 8*time.Second {
					t.Errorf("Run returned after %v", took)
				}
				if !errors.Is(err, dispatcher.ErrStuck) || !strings.Contains(err.Error(), "outcomes not stored: jobs 1") {
					t.Errorf("Run: %v", err)
				}
				if said := strings.Contains(err.Error(), "a call of the store has not returned"); said != (name == "ignores its context") {
					t.Errorf("Run: %v", err)
				}
				if name == "ignores its context" {
					<-time.After(2 * time.Hour) // the call returns, and its goroutine ends
				}
			})
		})
	}
}

// B72 at the end: the database is back before the time is over.
func TestStopStoresOutcomesWhenTheDatabaseIsBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		back := time.Now().Add(20 * time.Second)
		s := &store{table: tb, onFinish: func(context.Context, []claim.Outcome) error {
			if time.Now().Before(back) {
				return claim.ErrTryAgain
			}
			return nil
		}}
		w := start(t, s, dispatcher.Config{Handle: sleeper(0), SoftStop: 20 * time.Second, HardStop: time.Second})
		pass(time.Second)
		if took, err := w.stop(); err != nil || took < 19*time.Second || took > 21*time.Second {
			t.Errorf("Run returned after %v: %v", took, err)
		}
		wantVerbs(t, tb, id, claim.Done)
	})
}

// B10, B40, B71: a claim that stalls for ever takes down neither handlers nor
// extensions nor a stop.
func TestAClaimThatStallsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		tb.insert("q", "short", 1)
		tb.insert("q", "long", 1)
		s := &store{table: tb}
		var claims, extensions atomic.Int32
		ended := make(chan struct{})
		s.onClaim = func(context.Context, dispatcher.Want) error {
			if claims.Add(1) > 1 {
				<-ended // deaf to its context
			}
			return nil
		}
		s.onExtend = func(context.Context, []claim.Lease) error { extensions.Add(1); return nil }
		var causes list[error] // of handlers that have returned
		w := start(t, s, dispatcher.Config{
			Queues: []dispatcher.Queue{{Name: "q", Slots: 3}},
			Handle: func(ctx context.Context, row claim.Row) error {
				defer func() { causes.add(context.Cause(ctx)) }()
				if row.Kind == "short" {
					return sleeper(time.Second)(ctx, row)
				}
				return sleeper(time.Hour)(ctx, row)
			},
			SoftStop: 2 * time.Second, HardStop: time.Second,
		})
		pass(500 * time.Millisecond)
		w.Wake("q") // this claim stalls
		pass(2 * time.Minute)
		if got := causes.take(); len(got) != 1 || got[0] != nil {
			t.Errorf("ends of handlers %v, want that of the short one", got)
		}
		if n := extensions.Load(); n < 25 {
			t.Errorf("%d extensions in two minutes, with a lease of %v", n, lease)
		}
		took, err := w.stop()
		if got := causes.take(); took > 8*time.Second || len(got) != 1 || !errors.Is(got[0], dispatcher.ErrStopping) {
			t.Errorf("Run returned after %v; ends of handlers %v", took, got)
		}
		if !errors.Is(err, dispatcher.ErrStuck) ||
			!strings.Contains(err.Error(), "outcomes not stored: jobs 1 2") || !strings.Contains(err.Error(), "has not returned") {
			t.Errorf("Run: %v", err)
		}
		close(ended)
	})
}

// A claim that stalls on a store that keeps to its context is given up by
// itself, and the next one works.
func TestAStalledClaimIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		s := &store{table: tb}
		first := true
		s.onClaim = func(ctx context.Context, _ dispatcher.Want) error {
			if first {
				first = false
				<-ctx.Done()
				return claim.ErrUnknown
			}
			return nil
		}
		w := start(t, s, dispatcher.Config{Handle: sleeper(0)})
		pass(11 * time.Second)
		wantVerbs(t, tb, id, claim.Done)
		w.mustStop()
	})
}

// An extension that hangs does not keep Run from returning.
func TestAnExtensionThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		ended := make(chan struct{})
		s := &store{table: tb, onExtend: func(context.Context, []claim.Lease) error { <-ended; return nil }}
		w := start(t, s, dispatcher.Config{Handle: sleeper(10 * time.Second), SoftStop: time.Minute})
		pass(5 * time.Second)
		took, err := w.stop()
		if took != 6*time.Second || !errors.Is(err, dispatcher.ErrStuck) || !strings.Contains(err.Error(), "has not returned") {
			t.Errorf("Run returned after %v: %v", took, err)
		}
		wantVerbs(t, tb, id, claim.Done)
		close(ended)
	})
}
