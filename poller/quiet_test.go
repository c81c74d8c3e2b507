package poller

import (
	"testing"
	"time"
)

// watch is a queue under the clock of a test.
type watch struct {
	*Quiet
	t     *testing.T
	now   time.Time
	looks int
	asked []QuietAsk
	last  QuietStep
}

func newWatch(t *testing.T) *watch {
	return &watch{Quiet: &Quiet{Spread: func() float64 { return 0.5 }}, t: t, now: time.Unix(1_700_000_000, 0)}
}

func (w *watch) step() QuietStep {
	w.last = w.Step(w.now)
	if w.last.Look {
		w.looks++
	}
	if w.last.Ask != AskNothing {
		w.asked = append(w.asked, w.last.Ask)
	}
	return w.last
}

// pass lets time pass, and does what is due in it. A look is a claim at once,
// which finds as much as found says and takes a millisecond.
func (w *watch) pass(d time.Duration, found func() int) {
	w.t.Helper()
	end := w.now.Add(d)
	for i := 0; ; i++ {
		if i > 100_000 {
			w.t.Fatal("it does not come to rest")
		}
		s := w.step()
		if s.Look {
			w.Claiming()
			w.now = w.now.Add(time.Millisecond)
			w.Claimed(w.now, true, 1000, found())
			continue
		}
		if s.Ask != AskNothing || s.Next.IsZero() || s.Next.After(end) {
			break
		}
		w.now = later(w.now, s.Next)
	}
	if w.last.Ask == AskNothing {
		w.now = later(w.now, end)
	}
}

func nothing() int { return 0 }

// bells rings at an even rate for a while, and claims after each, until the queue
// asks for something.
func (w *watch) bells(rate int, d time.Duration) QuietAsk {
	w.t.Helper()
	gap := time.Second / time.Duration(rate)
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(gap) {
		changed := w.Heard(w.now)
		w.Claiming()
		w.Claimed(w.now, true, 10, 1)
		if changed {
			if s := w.step(); s.Ask != AskNothing {
				return s.Ask
			}
		}
	}
	return AskNothing
}

// promise makes one that is answered.
func (w *watch) promise(others bool) {
	w.t.Helper()
	if ask := w.bells(1000, time.Second); ask != AskPromise {
		w.t.Fatalf("asked %v after many bells", ask)
	}
	w.Promised(w.now, 77, 0, 0, others)
}

func (w *watch) want(ask QuietAsk, promise int64) {
	w.t.Helper()
	if w.last.Ask != ask || w.last.Promise != promise {
		w.t.Errorf("asked %v with promise %d, want %v with %d", w.last.Ask, w.last.Promise, ask, promise)
	}
}

func TestQuietPromisesWhenBellsAreManyAndASlotIsFree(t *testing.T) {
	for name, test := range map[string]struct {
		rate   int
		before func(*watch)
		want   QuietAsk
	}{
		"many":       {rate: 150, want: AskPromise},
		"very many":  {rate: 5000, want: AskPromise},
		"some":       {rate: 80, want: AskNothing},
		"deaf":       {rate: 5000, before: func(w *watch) { w.Hearing(false) }, want: AskNothing},
		"hearing":    {rate: 5000, before: func(w *watch) { w.Hearing(false); w.Hearing(true) }, want: AskPromise},
		"another's":  {rate: 5000, before: func(w *watch) { w.Hushed(w.now, 5, 2*time.Second) }, want: AskNothing},
		"long over":  {rate: 5000, before: func(w *watch) { w.Hushed(w.now, 5, time.Millisecond) }, want: AskPromise},
		"refused":    {rate: 5000, before: func(w *watch) { w.Promised(w.now, 0, 0, 0, false) }, want: AskNothing},
		"impossible": {rate: 5000, before: func(w *watch) { w.Failed(w.now, true) }, want: AskNothing},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatch(t)
			if test.before != nil {
				test.before(w)
			}
			if ask := w.bells(test.rate, time.Second); ask != test.want {
				t.Errorf("asked %v, want %v", ask, test.want)
			}
		})
	}

	// Whose slots are all taken has no use for bells, nor can it promise.
	w := newWatch(t)
	w.Claiming()
	w.Claimed(w.now, true, 10, 10)
	w.now = w.now.Add(full + 1)
	for range 1000 {
		w.now = w.now.Add(time.Millisecond)
		w.Heard(w.now)
		if s := w.step(); s.Ask != AskNothing {
			t.Fatalf("without a free slot it asks %v", s.Ask)
		}
	}
}

func TestQuietLooksAndRenews(t *testing.T) {
	w := newWatch(t)
	w.promise(false)
	w.pass(10*time.Second, func() int { return 3 })
	w.want(AskPromise, 77)
	if !w.last.Busy {
		t.Error("it does not look along with others")
	}
	if at := int(renewEvery / (lookEvery + time.Millisecond)); w.looks < at-10 || w.looks > at+10 {
		t.Errorf("%d looks in a second, want about %d", w.looks, at)
	}
	// It looks on while the answer is awaited, and asks nothing else.
	before := w.looks
	w.pass(100*time.Millisecond, func() int { return 3 })
	if w.last.Ask != AskNothing || w.looks < before+20 {
		t.Errorf("asked %v, and %d looks, while the answer is awaited", w.last.Ask, w.looks-before)
	}
	w.Promised(w.now, 78, 0, 0, false)
	if w.Mine() != 78 {
		t.Errorf("promised %d", w.Mine())
	}
}

// A claim that is under way, or that took all slots, is followed by another
// without being asked for.
func TestQuietDoesNotLookWhenThatIsOfNoUse(t *testing.T) {
	w := newWatch(t)
	w.promise(false)
	w.now = w.now.Add(lookEvery)
	w.Claiming()
	if w.step().Look {
		t.Error("a look while one is under way")
	}
	w.Claimed(w.now, true, 5, 5)
	w.now = w.now.Add(lookEvery)
	if w.step().Look {
		t.Error("a look without a free slot")
	}
}

// Of two claims at once the one that is still under way is a look, too.
func TestQuietDoesNotLookBesideAClaim(t *testing.T) {
	w := newWatch(t)
	w.promise(false)
	w.Claiming()
	w.Claiming()
	w.Claimed(w.now, true, 10, 0)
	w.looks = 0
	w.pass(100*time.Millisecond, nothing)
	if w.looks != 0 {
		t.Errorf("%d looks while a claim is under way", w.looks)
	}
	w.Claimed(w.now, true, 10, 0)
	w.pass(100*time.Millisecond, nothing)
	if w.looks == 0 {
		t.Error("no look after it")
	}
}

func TestQuietEndsWhatIsNotWorthIt(t *testing.T) {
	w := newWatch(t)
	w.promise(false)
	for round := 0; ; round++ { // worth it
		w.pass(10*time.Second, func() int { return 1 })
		if w.last.Ask != AskPromise {
			t.Fatalf("asked %v in round %d", w.last.Ask, round)
		}
		w.Promised(w.now, int64(100+round), 0, 0, false)
		if round == 5 {
			break
		}
	}
	for w.last.Ask != AskRevoke { // no more
		w.pass(10*time.Second, nothing)
		if w.last.Ask == AskPromise {
			w.Promised(w.now, 200, 0, 0, false)
		}
	}
	if w.Mine() == 0 {
		t.Error("it has nothing to end any more")
	}
	// Somebody who was silent has not committed: it tries again, ever more
	// slowly, until he has.
	begin := w.now
	for range 20 {
		if w.Revoked(w.now, false, 0, 0) {
			t.Fatal("it has ended while somebody is left")
		}
		last := w.now
		w.pass(time.Minute, nothing)
		w.want(AskRevoke, w.Mine())
		if gap := w.now.Sub(last); gap > restless {
			t.Errorf("%v until the next attempt", gap)
		}
	}
	w.now = begin.Add(wearyAfter + time.Second)
	w.Revoked(w.now, false, 0, 0)
	last := w.now
	w.pass(time.Minute, nothing)
	if w.want(AskRevoke, w.Mine()); w.now.Sub(last) != weary {
		t.Errorf("%v until the next attempt, after a long time", w.now.Sub(last))
	}
	if !w.Revoked(w.now, true, 0, 0) || w.Mine() != 0 {
		t.Error("it does not end")
	}
	if s := w.step(); s.Ask != AskNothing || s.Look || s.Busy || !s.Next.IsZero() {
		t.Errorf("at rest: %+v", s)
	}
}

// When bells come again while somebody is waited for, a promise is of use again.
func TestQuietPromisesAgainWhileItEnds(t *testing.T) {
	w := newWatch(t)
	w.promise(false)
	w.pass(10*time.Second, nothing)
	w.want(AskRevoke, 77)
	w.Revoked(w.now, false, 0, 0)
	if ask := w.bells(1000, time.Second); ask != AskPromise || w.last.Promise != 77 {
		t.Errorf("asked %v with %d", ask, w.last.Promise)
	}
}

// Others may have slots free when this process has none.
func TestQuietDoesNotKeepJobsFromOthers(t *testing.T) {
	for name, others := range map[string]bool{"alone": false, "with others": true} {
		t.Run(name, func(t *testing.T) {
			w := newWatch(t)
			w.promise(others)
			fill := func() {
				w.Claiming()
				w.Claimed(w.now, true, 5, 5)
			}
			more := 0
			for end := w.now.Add(renewEvery - time.Millisecond); w.now.Before(end); w.now = w.now.Add(time.Millisecond) {
				fill() // slots are free now and then
				if s := w.step(); s.Ask == AskMore {
					more++
					w.Told()
				} else if s.Ask != AskNothing {
					t.Fatalf("asked %v", s.Ask)
				}
			}
			if most := int(renewEvery / moreEvery); others && (more < most/2 || more > most) || !others && more > 0 {
				t.Errorf("rang %d times for more", more)
			}
			fill() // and now for long not
			w.now = w.now.Add(full + time.Millisecond)
			for w.step().Ask == AskMore || w.last.Ask == AskPromise {
				if w.last.Ask == AskMore {
					w.Told()
				} else {
					w.Promised(w.now, 77, 0, 0, others)
				}
			}
			if want := map[bool]QuietAsk{true: AskRevoke, false: AskNothing}[others]; w.last.Ask != want {
				t.Errorf("asked %v, want %v", w.last.Ask, want)
			}
		})
	}
}

// Somebody who has promised and gives no news is not waited for for ever.
func TestQuietEndsWhatNobodyElseEnds(t *testing.T) {
	w := newWatch(t)
	for promise := int64(10); promise < 15; promise++ { // renewed
		w.Hushed(w.now, promise, PromiseLength)
		w.pass(renewEvery, nothing)
		if w.last.Ask != AskNothing {
			t.Fatalf("asked %v while the promise is renewed", w.last.Ask)
		}
	}
	heard := w.now.Add(-renewEvery)
	w.pass(time.Minute, nothing)
	w.want(AskRevoke, 14)
	if at := w.now.Sub(heard); at != PromiseLength+patience+patienceSpread/2 {
		t.Errorf("after %v", at)
	}
	if !w.Revoked(w.now, true, 0, 0) {
		t.Error("it does not end")
	}
	w.pass(time.Minute, nothing)
	if w.last.Ask != AskNothing {
		t.Errorf("asked %v", w.last.Ask)
	}
	// A forged one that is for ever is not believed.
	w.Hushed(w.now, 1<<60, time.Hour)
	w.pass(10*time.Second, nothing)
	w.want(AskRevoke, 1<<60)
}

// Of two who promise, the one who is told so leaves it to the other.
func TestQuietLeavesItToAnother(t *testing.T) {
	w := newWatch(t)
	w.promise(true)
	w.pass(10*time.Second, func() int { return 9 })
	w.Promised(w.now, 0, 99, time.Second, true)
	if w.Mine() != 0 {
		t.Error("it still has something to end")
	}
	begin := w.now
	w.pass(time.Minute, nothing)
	if w.want(AskRevoke, 99); w.now.Before(begin.Add(time.Second + patience)) {
		t.Errorf("after %v", w.now.Sub(begin))
	}
	w.Revoked(w.now, false, 123, 2*time.Second) // a third one
	if w.Mine() != 0 {
		t.Error("it still has something to end")
	}
}

// Its own promise is heard before or after the answer.
func TestQuietHearsItself(t *testing.T) {
	for _, early := range []bool{true, false} {
		w := newWatch(t)
		w.bells(1000, time.Second)
		if early {
			w.Hushed(w.now, 77, PromiseLength)
		}
		w.Promised(w.now, 77, 0, 0, false)
		if !early {
			w.Hushed(w.now, 77, PromiseLength)
		}
		w.pass(10*time.Second, nothing)
		w.want(AskRevoke, 77)
		w.Revoked(w.now, true, 0, 0)
		w.pass(time.Minute, nothing)
		if w.last.Ask != AskNothing {
			t.Errorf("early %v: asked %v after the end", early, w.last.Ask)
		}
	}
}

// A question that fails may have been answered or not: what was promised is
// ended, as soon as that can be.
func TestQuietAfterFailures(t *testing.T) {
	w := newWatch(t)
	w.promise(false)
	w.pass(10*time.Second, func() int { return 9 })
	w.want(AskPromise, 77)
	w.Failed(w.now, false)
	for range 5 {
		w.pass(10*time.Second, nothing)
		w.want(AskRevoke, 77)
		w.Failed(w.now, false)
	}
	w.pass(10*time.Second, nothing)
	w.want(AskRevoke, 77)
	if !w.Revoked(w.now, true, 0, 0) {
		t.Error("it does not end")
	}

	w = newWatch(t)
	w.promise(false)
	w.Hearing(false) // bells would tell nothing
	w.pass(time.Second, nothing)
	w.want(AskRevoke, 77)
}
