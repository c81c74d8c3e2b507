package dispatcher_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
)

// These tests run on the fake clock of synctest: time passes only while
// everything waits, so each duration in them is exact.

// pass lets time go by and everything that is due in it happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// sleeper is a handler that works for d, unless its context ends.
func sleeper(d time.Duration) func(context.Context, claim.Row) error {
	return func(ctx context.Context, _ claim.Row) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func wantVerbs(t *testing.T, tb *table, id int64, want ...claim.Verb) {
	t.Helper()
	if got := tb.verbs(id); !slices.Equal(got, want) {
		t.Errorf("job %d: outcomes %v, want %v", id, got, want)
	}
}

func TestALoneOutcomeIsStoredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		w := start(t, &store{table: tb}, dispatcher.Config{Handle: sleeper(0)})
		synctest.Wait()
		pass(1) // the handler's own timer
		wantVerbs(t, tb, id, claim.Done)
		w.mustStop()
	})
}

func TestNothingIsClaimedBeforeAWakeUpAndUnknownQueuesAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		w := start(t, &store{table: tb}, dispatcher.Config{Handle: sleeper(0)})
		pass(time.Second)
		before := tb.claimed()
		tb.insert("q", "k", 1)
		w.Wake("other")
		pass(time.Hour)
		if tb.claimed() != before {
			t.Errorf("%d claims without a wake-up", tb.claimed()-before)
		}
		w.Wake("q")
		pass(1)
		if len(tb.stored()) != 1 {
			t.Error("woken, but the job was not run")
		}
		w.mustStop()
	})
}

// B48: a wake-up that finds no free slot is not thrown away.
func TestAWakeUpWithoutAFreeSlotIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		var starts list[time.Duration]
		begin := time.Now()
		w := start(t, &store{table: tb}, dispatcher.Config{
			Queues: []dispatcher.Queue{{Name: "q", Slots: 1}},
			Handle: func(ctx context.Context, row claim.Row) error {
				starts.add(time.Since(begin))
				return sleeper(3*time.Second)(ctx, row)
			},
		})
		pass(time.Second)
		tb.insert("q", "k", 1)
		w.Wake("q") // idle
		pass(time.Second)
		tb.insert("q", "k", 1)
		w.Wake("q") // the one slot is taken
		pass(10 * time.Second)
		if got, want := starts.take(), []time.Duration{time.Second, 4 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("started at %v, want %v", got, want)
		}
		w.mustStop()
	})
}

func TestShortClaimsTellWhenTheNextJobIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		var told list[time.Duration]
		w := start(t, &store{table: tb}, dispatcher.Config{
			Handle: func(context.Context, claim.Row) error { return dispatcher.Snooze(time.Minute) },
			Short:  func(_ string, next time.Duration) { told.add(next) },
		})
		synctest.Wait()
		w.Wake("q")
		pass(time.Second)
		if got := told.take(); len(got) == 0 || got[0] != time.Minute {
			t.Errorf("told %v", got)
		}
		wantVerbs(t, tb, id, claim.Snooze)
		w.mustStop()
	})
}

// B69: the context ends with the timeout, the slot with the handler.
func TestATimeoutEndsTheContextNotTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		first := tb.insert("q", "slow", 1)
		second := tb.insert("q", "k", 1)
		var cause error
		var ended, started time.Duration
		begin := time.Now()
		w := start(t, &store{table: tb}, dispatcher.Config{
			Queues:  []dispatcher.Queue{{Name: "q", Slots: 1}},
			Timeout: func(kind string) time.Duration { return map[string]time.Duration{"slow": time.Second}[kind] },
			Handle: func(ctx context.Context, row claim.Row) error {
				if row.Kind != "slow" {
					started = time.Since(begin)
					return nil
				}
				<-ctx.Done()
				ended, cause = time.Since(begin), context.Cause(ctx)
				<-time.After(2 * time.Second) // three times its limit
				return ctx.Err()
			},
		})
		pass(time.Minute)
		if !errors.Is(cause, dispatcher.ErrTimeout) || ended != time.Second {
			t.Errorf("context ended after %v by %v", ended, cause)
		}
		if started != 3*time.Second {
			t.Errorf("the second job started after %v, want when the first had returned", started)
		}
		wantVerbs(t, tb, first, claim.Retry)
		wantVerbs(t, tb, second, claim.Done)
		if text := tb.stored()[0].Error; text != "job timed out after 1s: context deadline exceeded" {
			t.Errorf("error text %q", text)
		}
		w.mustStop()
	})
}

// B70: handlers that ignore their timeout are named, their leases run out, and
// spares take their place, up to the cap.
func TestStuckHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		tb.insert("q", "stuck", 2)
		s := &store{table: tb}
		var extended list[int64]
		s.onExtend = func(_ context.Context, leases []claim.Lease) error {
			for _, l := range leases {
				extended.add(l.ID)
			}
			return nil
		}
		release := make(chan struct{})
		w := start(t, s, dispatcher.Config{
			Queues:  []dispatcher.Queue{{Name: "q", Slots: 2, Spares: 1}},
			Timeout: func(string) time.Duration { return time.Second },
			Handle: func(_ context.Context, row claim.Row) error {
				if row.Kind == "stuck" && row.Attempt == 1 {
					<-release
				}
				if row.Kind == "long" {
					<-time.After(time.Second)
				}
				return nil
			},
		})
		pass(time.Second)
		good := tb.insert("q", "k", 10)
		w.Wake("q")
		pass(11 * time.Second)
		if n := len(tb.stored()); n != 0 {
			t.Fatalf("%d outcomes before anybody is stuck", n)
		}
		pass(time.Second) // one lease after the timeout
		if w.logs.count("handler is stuck") != 2 {
			t.Errorf("stuck handlers were named %d times", w.logs.count("handler is stuck"))
		}
		extended.take()
		pass(time.Minute)
		for id := good; id < good+10; id++ {
			wantVerbs(t, tb, id, claim.Done)
		}
		if got := extended.take(); len(got) != 0 {
			t.Errorf("leases of stuck handlers were extended: %v", got)
		}
		if w.logs.count("handler is stuck") != 2 {
			t.Error("a stuck handler was named again")
		}
		close(release)
		synctest.Wait()
		tb.insert("q", "long", 10)
		w.Wake("q")
		pass(500 * time.Millisecond)
		if n := tb.held(); n != 2 {
			t.Errorf("%d jobs run at once after the stuck ones have returned, want 2", n)
		}
		pass(time.Minute)
		w.mustStop()
	})
}

// The longest timeout there is must not wrap around and make every handler
// stuck at once.
func TestTheLongestTimeoutMakesNobodyStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		w := start(t, &store{table: tb}, dispatcher.Config{
			Timeout: func(string) time.Duration { return math.MaxInt64 },
			Handle:  sleeper(time.Minute),
		})
		pass(2 * time.Minute)
		if w.logs.count("handler is stuck") != 0 {
			t.Error("a handler without a limit is called stuck")
		}
		wantVerbs(t, tb, id, claim.Done)
		w.mustStop()
	})
}

// B56: leases are extended until the drain is over, though the last handler
// takes longer than the lease and another process looks for dead ones.
func TestLeasesAreExtendedThroughTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(10 * time.Second)
		id := tb.insert("q", "k", 1)
		var starts atomic.Int32
		cfg := dispatcher.Config{
			Handle: func(ctx context.Context, row claim.Row) error {
				starts.Add(1)
				return sleeper(40*time.Second)(ctx, row)
			},
			SoftStop: time.Minute, HardStop: time.Second,
		}
		a := start(t, &store{table: tb}, cfg)
		pass(time.Second)
		b := start(t, &store{table: tb}, cfg)
		watch := time.NewTicker(time.Second)
		defer watch.Stop()
		ended := make(chan struct{})
		go func() { defer close(ended); a.mustStop() }()
		for stopping := true; stopping; {
			select {
			case <-watch.C:
				b.Wake("q")
			case <-ended:
				stopping = false
			}
		}
		if n := starts.Load(); n != 1 {
			t.Errorf("started %d times", n)
		}
		wantVerbs(t, tb, id, claim.Done)
		b.mustStop()
	})
}

// B61: when leases cannot be extended, handlers are told in time and nothing
// more is claimed, though claims would work.
func TestLeasesThatCannotBeExtendedEndTheirHandlers(t *testing.T) {
	for name, extend := range map[string]func(context.Context) error{
		"errors":           func(context.Context) error { return claim.ErrTryAgain },
		"stalls":           func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"stalls for good":  func(ctx context.Context) error { <-ctx.Done(); <-time.After(time.Minute); return ctx.Err() },
		"works, but late":  func(context.Context) error { <-time.After(20 * time.Second); return nil },
		"is not forgotten": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := newTable(lease)
				id := tb.insert("q", "long", 1)
				s := &store{table: tb}
				if extend != nil {
					s.onExtend = func(ctx context.Context, _ []claim.Lease) error { return extend(ctx) }
				}
				var cause error
				var ended time.Duration
				begin := time.Now()
				w := start(t, s, dispatcher.Config{
					Handle: func(ctx context.Context, row claim.Row) error {
						if row.ID != id {
							return nil
						}
						err := sleeper(time.Minute)(ctx, row)
						ended, cause = time.Since(begin), context.Cause(ctx)
						return err
					},
					SoftStop: time.Hour,
				})
				pass(11 * time.Second)
				other := tb.insert("q", "k", 1)
				w.Wake("q")
				pass(500 * time.Millisecond)
				if extend == nil {
					wantVerbs(t, tb, other, claim.Done)
					pass(time.Minute)
					wantVerbs(t, tb, id, claim.Done)
					w.mustStop()
					return
				}
				wantVerbs(t, tb, other) // not begun while the first job's lease is in doubt
				pass(2 * time.Minute)
				if ended != lease || !errors.Is(cause, claim.ErrLeaseLost) {
					t.Errorf("context ended after %v by %v, want at the end of the lease", ended, cause)
				}
				wantVerbs(t, tb, id, claim.Retry) // nobody had taken it: the fence let it pass
				wantVerbs(t, tb, other, claim.Done)
				w.mustStop()
			})
		})
	}
}

// A lease is counted from when its extension was sent: it may have begun then.
func TestASlowExtensionGivesNoTimeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		tb.insert("q", "k", 1)
		first := true
		s := &store{table: tb, onExtend: func(context.Context, []claim.Lease) error {
			if !first {
				return claim.ErrTryAgain
			}
			first = false
			<-time.After(2 * time.Second)
			return nil
		}}
		begin := time.Now()
		var ends list[time.Duration]
		w := start(t, s, dispatcher.Config{Handle: func(ctx context.Context, _ claim.Row) error {
			<-ctx.Done()
			ends.add(time.Since(begin))
			return nil
		}})
		pass(time.Minute)
		if got := ends.take(); !slices.Equal(got, []time.Duration{lease/3 + lease}) {
			t.Errorf("context ended after %v, want one lease after the extension was sent", got)
		}
		w.mustStop()
	})
}

// forgetful answers its first outcomes with no results at all.
type forgetful struct {
	*store
	answered bool
}

func (f *forgetful) Exchange(ctx context.Context, trip dispatcher.Trip) dispatcher.Haul {
	h := f.store.Exchange(ctx, trip)
	if len(h.Results) > 0 && !f.answered {
		f.answered, h.Results = true, nil
	}
	return h
}

func TestAHaulWithoutResultsSettlesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		tb.insert("q", "k", 1)
		var refused list[claim.Lease]
		w := start(t, &forgetful{store: &store{table: tb}}, dispatcher.Config{
			Handle:  sleeper(0),
			Refused: func(l claim.Lease, _ claim.Verb) { refused.add(l) },
		})
		pass(time.Second)
		if got := refused.take(); len(got) != 1 {
			t.Errorf("refused: %v; want the second try, which this table does not know any more", got)
		}
		if w.logs.count("0 results for 1 outcomes") != 1 {
			t.Error("not logged")
		}
		w.mustStop()
	})
}

// B54: the late outcome is sent, the fence decides, and it is told.
func TestALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		var causes list[error]
		var refused list[claim.Verb]
		w := start(t, &store{table: tb}, dispatcher.Config{
			Handle: func(ctx context.Context, row claim.Row) error {
				defer func() { causes.add(context.Cause(ctx)) }()
				return sleeper(time.Hour)(ctx, row)
			},
			Refused: func(l claim.Lease, v claim.Verb) {
				if l.ID == id {
					refused.add(v)
				}
			},
		})
		pass(time.Second)
		tb.steal(id)
		pass(lease)
		if got := causes.take(); len(got) != 1 || !errors.Is(got[0], claim.ErrLeaseLost) {
			t.Errorf("causes %v", got)
		}
		if got := refused.take(); !slices.Equal(got, []claim.Verb{claim.Retry}) || w.logs.count("was refused") != 1 {
			t.Errorf("refused %v, logged %d times", got, w.logs.count("was refused"))
		}
		wantVerbs(t, tb, id)
		w.mustStop()
	})
}

// B72: a result that cannot be stored for 90 s is kept and stored, with the
// lease renewed or not; nothing is claimed meanwhile.
func TestOutcomesOutliveAnOutage(t *testing.T) {
	for _, term := range []time.Duration{5 * time.Minute, 30 * time.Second} {
		t.Run(term.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := newTable(term)
				tb.insert("q", "k", 2)
				s := &store{table: tb}
				var tries atomic.Int32
				back := time.Now().Add(91 * time.Second)
				away := func() error {
					if time.Now().Before(back) {
						return claim.ErrTryAgain
					}
					return nil
				}
				s.onFinish = func(context.Context, []claim.Outcome) error { tries.Add(1); return away() }
				s.onExtend = func(context.Context, []claim.Lease) error { return away() }
				w := start(t, s, dispatcher.Config{Handle: sleeper(time.Second)})
				pass(2 * time.Second)
				tb.insert("q", "k", 10)
				before := tb.claimed()
				w.Wake("q")
				pass(85 * time.Second)
				if tb.claimed() != before {
					t.Errorf("%d claims while outcomes could not be stored", tb.claimed()-before)
				}
				if n := tries.Load(); n < 80 || n > 200 {
					t.Errorf("%d tries in 85 s", n)
				}
				pass(20 * time.Second)
				for id := range int64(12) {
					wantVerbs(t, tb, id+1, claim.Done)
				}
				if bad, good := w.logs.count("cannot be stored"), w.logs.count("stored again"); bad != 1 || good != 1 {
					t.Errorf("logged %d times as failing and %d times as over", bad, good)
				}
				w.mustStop()
			})
		})
	}
}

func TestClaimsThatFailArePacedAndRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		s := &store{table: tb}
		var tries atomic.Int32
		back := time.Now().Add(time.Minute)
		s.onClaim = func(context.Context, dispatcher.Want) error {
			tries.Add(1)
			if time.Now().Before(back) {
				return claim.ErrReadOnly
			}
			return nil
		}
		w := start(t, s, dispatcher.Config{Handle: sleeper(0)})
		for range 60 {
			w.WakeAll()
			pass(time.Second)
		}
		if n := tries.Load(); n < 50 || n > 100 {
			t.Errorf("%d claims in a minute", n)
		}
		pass(1300 * time.Millisecond)
		wantVerbs(t, tb, id, claim.Done)
		if bad, good := w.logs.count("claims do not work"), w.logs.count("claims work again"); bad != 1 || good != 1 {
			t.Errorf("logged %d times as failing and %d times as over", bad, good)
		}
		w.mustStop()
	})
}

// A handler's open transaction may hold the job's row for a while.
func TestABusyOutcomeIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		tb.jobs[id].busy = 3
		w := start(t, &store{table: tb}, dispatcher.Config{Handle: sleeper(0)})
		pass(69 * time.Millisecond)
		wantVerbs(t, tb, id)
		pass(time.Millisecond) // 10 + 20 + 40 ms
		pass(time.Millisecond)
		wantVerbs(t, tb, id, claim.Done)
		w.mustStop()
	})
}

// B145: handlers that panic while the database is away free their slots, and
// nothing hangs.
func TestPanicsDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		tb.insert("q", "k", 3)
		s := &store{table: tb}
		back := time.Now().Add(20 * time.Second)
		s.onFinish = func(ctx context.Context, _ []claim.Outcome) error {
			if time.Now().Before(back) {
				<-ctx.Done()
				return claim.ErrUnknown
			}
			return nil
		}
		var panicked atomic.Int32
		w := start(t, s, dispatcher.Config{
			Queues: []dispatcher.Queue{{Name: "q", Slots: 3}},
			Handle: func(_ context.Context, row claim.Row) error {
				if row.ID <= 3 {
					panicked.Add(1)
					panic("ouch")
				}
				return nil
			},
		})
		pass(time.Second)
		tb.insert("q", "k", 5)
		w.Wake("q")
		pass(time.Minute)
		if n := panicked.Load(); n != 3 {
			t.Errorf("%d handlers have panicked", n)
		}
		for id := range int64(3) {
			wantVerbs(t, tb, id+1, claim.Retry)
		}
		for id := range int64(5) {
			wantVerbs(t, tb, id+4, claim.Done)
		}
		w.mustStop()
	})
}

// A claim that took half of the lease starts nothing.
func TestRowsWithLittleLeftOfTheirLeaseAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		s := &store{table: tb}
		slow := 6 * time.Second
		s.afterClaim = func(c *claim.Claimed) {
			if len(c.Rows) > 0 {
				<-time.After(slow)
				slow = 6*time.Second - 1
			}
		}
		var attempts list[int]
		w := start(t, s, dispatcher.Config{Handle: func(_ context.Context, row claim.Row) error { attempts.add(row.Attempt); return nil }})
		pass(20 * time.Second)
		wantVerbs(t, tb, id, claim.Return, claim.Done)
		if got := attempts.take(); !slices.Equal(got, []int{1}) {
			t.Errorf("run as attempts %d, want the first: its handler had not started before", got)
		}
		w.mustStop()
	})
}

// B1, B2: whatever the database calls ours is run or handed back.
func TestSurplusRowsAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		tb.insert("q", "k", 5)
		s := &store{table: tb}
		once := true
		s.afterClaim = func(c *claim.Claimed) {
			if once {
				once = false
				c.Rows = append(c.Rows, tb.claim(dispatcher.Want{Queue: "q", Limit: 3}).Rows...)
			}
		}
		var running atomic.Int32
		var most list[int32]
		w := start(t, s, dispatcher.Config{Handle: func(ctx context.Context, row claim.Row) error {
			most.add(running.Add(1))
			defer running.Add(-1)
			return sleeper(time.Second)(ctx, row)
		}})
		pass(time.Minute)
		returned := 0
		for id := range int64(5) {
			verbs := tb.verbs(id + 1)
			returned += len(verbs) - 1
			if verbs[len(verbs)-1] != claim.Done {
				t.Errorf("job %d: %v", id+1, verbs)
			}
		}
		if at := slices.Max(most.take()); returned != 3 || at != 2 {
			t.Errorf("%d handed back, want 3; %d ran at once, want 2", returned, at)
		}
		if unclosed := tb.unclosed(); len(unclosed) > 0 {
			t.Errorf("claims %v are open, and nothing of them runs", unclosed)
		}
		w.mustStop()
	})
}

func TestTheKeeperRestsWhenNothingIsInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTable(lease)
		s := &store{table: tb}
		w := start(t, s, dispatcher.Config{Handle: sleeper(5 * time.Second)})
		for round := 1; round <= 2; round++ {
			tb.insert("q", "k", 1)
			w.Wake("q")
			pass(4500 * time.Millisecond)
			if n := s.rested(); n != round-1 {
				t.Fatalf("rested %d times while a lease is in hand", n)
			}
			pass(time.Minute)
			if n := s.rested(); n != round {
				t.Fatalf("rested %d times after round %d", n, round)
			}
		}
		w.mustStop()
	})
}

func TestHandlersGetTheValuesOfTheContextNotItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		tb := newTable(lease)
		id := tb.insert("q", "k", 1)
		s := &store{table: tb}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		var value any
		d := dispatcher.New(dispatcher.Config{
			Store: s, Queues: []dispatcher.Queue{{Name: "q", Slots: 1}}, Lease: lease, SoftStop: time.Minute,
			Logger: discard, Delay: func(int, error) time.Duration { return 0 },
			Handle: func(ctx context.Context, row claim.Row) error {
				value = ctx.Value(key{})
				return sleeper(10*time.Second)(ctx, row)
			},
		})
		d.Wake("q")
		result := make(chan error)
		go func() { result <- d.Run(ctx) }()
		pass(time.Second)
		cancel()
		if err := <-result; err != nil || value != "value" {
			t.Errorf("Run: %v; value %v", err, value)
		}
		wantVerbs(t, tb, id, claim.Done)
	})
}
