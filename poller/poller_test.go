package poller

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bench runs a Poller inside a synctest bubble and notes, with the time since
// its start, what the Poller does.
type bench struct {
	*Poller
	start time.Time
	stop  func() // ends Run and waits for it

	mu     sync.Mutex
	events []string
	tick   func(ctx context.Context) (Look, error) // what a tick does; nil: sees nothing
}

func newBench(config Config) *bench {
	b := &bench{start: time.Now()}
	config.Tick = func(ctx context.Context) (Look, error) {
		b.note("tick")
		b.mu.Lock()
		tick := b.tick
		b.mu.Unlock()
		if tick == nil {
			return Look{}, nil
		}
		return tick(ctx)
	}
	config.Wake = func(queue string) { b.note("wake " + queue) }
	b.Poller = New(config)
	return b
}

func (b *bench) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(b.stop)
}

func (b *bench) ticks(tick func(ctx context.Context) (Look, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tick = tick
}

func (b *bench) note(event string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, time.Since(b.start).String()+" "+event)
}

// want lets the time pass and compares what has happened since the last call.
func (b *bench) want(t *testing.T, pass time.Duration, want ...string) {
	t.Helper()
	time.Sleep(pass) // the bubble's time: exact
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := strings.Join(b.events, "; "); got != strings.Join(want, "; ") {
		t.Errorf("after %v: got %q, want %q", time.Since(b.start), got, strings.Join(want, "; "))
	}
	b.events = nil
}

// newHearing returns a bench that has made its first tick; the next is far away.
func newHearing(t *testing.T) *bench {
	b := newBench(Config{Interval: time.Hour})
	b.SetHearing(true)
	b.run(t)
	b.want(t, 0, "0s tick")
	return b
}

func TestRunTicksAtTheDeafPaceUntilHearing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Config{})
		b.run(t)
		b.want(t, 2500*time.Millisecond, "0s tick", "1s tick", "2s tick")
		b.SetHearing(true)
		b.want(t, 25*time.Second) // the next is due at 2 s + 30 s ± 10 %
	})
}

func TestRunTicksWithinTheJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last time.Time
		var pauses []time.Duration
		b := newBench(Config{})
		b.ticks(func(context.Context) (Look, error) {
			if !last.IsZero() {
				pauses = append(pauses, time.Since(last))
			}
			last = time.Now()
			return Look{}, nil
		})
		b.SetHearing(true)
		b.run(t)
		time.Sleep(time.Hour)
		b.stop()
		if n := len(pauses); n < 100 || n > 135 {
			t.Errorf("%d ticks in an hour, want about 120", n)
		}
		different := false
		for _, pause := range pauses {
			if pause < 27*time.Second || pause > 33*time.Second {
				t.Errorf("a tick after %v, want 30 s ± 10 %%", pause)
			}
			different = different || pause != pauses[0]
		}
		if !different {
			t.Error("all pauses are equal: no jitter")
		}
	})
}

func TestSetHearingBeforeRunIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHearing(t)
		b.want(t, 50*time.Minute)
	})
}

func TestBecomingDeafTicksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHearing(t)
		b.want(t, 5*time.Second)
		b.SetHearing(false)
		b.want(t, 0, "5s tick")
		b.want(t, time.Second, "6s tick")
	})
}

func TestTickNowIsStickyAndCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Config{Interval: time.Hour})
		b.SetHearing(true)
		for range 3 {
			b.TickNow() // before Run: the first tick does
		}
		slow := make(chan struct{})
		b.ticks(func(context.Context) (Look, error) { <-slow; return Look{}, nil })
		b.run(t)
		b.want(t, time.Second, "0s tick")
		for range 3 {
			b.TickNow() // in flight: that one may have looked already
		}
		b.want(t, 0)
		slow <- struct{}{}
		b.want(t, 0, "1s tick")
		slow <- struct{}{}
		b.want(t, time.Minute)
	})
}

func TestAlarmsRingOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHearing(t)
		b.Arm("a", 1234567*time.Microsecond)
		b.Arm("b", 3*time.Second)
		b.Arm("b", time.Second)
		b.Arm("b", 2*time.Second)
		b.want(t, 10*time.Second, "1s wake b", "1.234567s wake a")
	})
}

func TestAlarmArmedBeforeRunRings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Config{Interval: time.Hour})
		b.SetHearing(true)
		b.Arm("a", time.Second)
		b.run(t)
		b.want(t, 2*time.Second, "0s tick", "1s wake a")
	})
}

func TestAlarmRingsWhileATickIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Config{})
		b.ticks(func(ctx context.Context) (Look, error) { <-ctx.Done(); return Look{}, ctx.Err() })
		b.run(t)
		b.Arm("a", time.Second)
		b.want(t, 10*time.Second, "0s tick", "1s wake a")
	})
}

func TestHeldJobIsLookedAtEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHearing(t)
		b.Arm("a", 0)
		b.want(t, time.Second, "1s wake a")
		b.Arm("a", -time.Second)
		b.want(t, 2*time.Second, "3s wake a")
		b.Arm("a", -3*time.Second)
		b.want(t, 4*time.Second, "7s wake a")
		b.want(t, 30*time.Second)
	})
}

func TestTickWakesAndArms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Config{Interval: time.Hour})
		b.SetHearing(true)
		b.ticks(func(context.Context) (Look, error) {
			return Look{Next: map[string]time.Duration{"now": -time.Second, "soon": time.Second}}, nil
		})
		b.run(t)
		b.want(t, 2*time.Second, "0s tick", "0s wake now", "1s wake soon")
	})
}

func TestExpiredLeaseIsFoundAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Config{Interval: time.Hour})
		b.SetHearing(true)
		end := time.Now().Add(5 * time.Second)
		b.ticks(func(context.Context) (Look, error) {
			return Look{Lease: time.Until(end), HasLease: true}, nil
		})
		b.run(t)
		b.want(t, 6*time.Second, "0s tick", "5.05s tick")
		b.want(t, 2*time.Second, "7.05s tick") // over and still there: once per guard
	})
}

func TestFailedTicksArePacedAndSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBench(Config{Interval: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		b.SetHearing(true)
		b.ticks(func(context.Context) (Look, error) { return Look{}, errors.New("no route to host") })
		b.run(t)
		b.want(t, 3500*time.Millisecond, "0s tick", "1s tick", "2s tick", "3s tick")
		b.ticks(nil)
		b.want(t, 5*time.Minute, "4s tick")
		b.stop()
		if n := strings.Count(log.String(), "no route to host"); n != 1 {
			t.Errorf("the failure is logged %d times, want once:\n%s", n, &log)
		}
		if n := strings.Count(log.String(), "tick works again"); n != 1 {
			t.Errorf("the recovery is logged %d times, want once:\n%s", n, &log)
		}
	})
}

func TestStopWaitsForTheTickInFlightAndIsNotAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBench(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		left := false
		b.ticks(func(ctx context.Context) (Look, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			left = true
			return Look{}, ctx.Err()
		})
		b.run(t)
		b.want(t, time.Second, "0s tick")
		b.stop()
		if !left {
			t.Error("Run returned before its tick")
		}
		if log.Len() > 0 {
			t.Errorf("a stop is logged: %s", &log)
		}
	})
}

// A tick that the stop cancels may end before Run has seen the stop itself.
func TestStopThatOnlyTheTickHasSeenIsNotAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		for range 30 { // a select between the two takes either
			ctx, cancel := context.WithCancel(t.Context())
			p := New(Config{
				Tick: func(ctx context.Context) (Look, error) { <-ctx.Done(); return Look{}, ctx.Err() },
				Wake: func(string) {
					cancel()
					time.Sleep(time.Second) // the tick ends meanwhile
				},
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			p.Arm("a", time.Second)
			if err := p.Run(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if log.Len() > 0 {
			t.Errorf("a stop is logged: %s", &log)
		}
	})
}

// TestNothingBlocksBesideRun calls everything from many goroutines at once,
// with and without a loop that listens.
func TestNothingBlocksBesideRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Config{})
		storm := func() {
			var calls sync.WaitGroup
			for i := range 8 {
				calls.Go(func() {
					for range 100 {
						b.TickNow()
						b.SetHearing(i%2 == 0)
						b.Arm("a", time.Duration(i-4)*time.Second)
					}
				})
			}
			calls.Wait()
		}
		storm()
		b.run(t)
		storm()
		b.stop()
		storm()
	})
}
