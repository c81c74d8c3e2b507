package peer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// B47: whatever fails, and however fast, the rate of attempts is bounded.
func TestPaceBoundsTheRateForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, start := NewPace(), time.Now()
		attempts := 0
		for time.Since(start) < time.Hour && attempts < 10_000 {
			if err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			attempts++
			switch since := time.Since(start); {
			case attempts == 1 && since != 0:
				t.Errorf("the first attempt waits %v", since)
			case attempts == 2 && (since < 200*time.Millisecond || since > 300*time.Millisecond):
				t.Errorf("the second attempt comes after %v, want 250 ms ± 20 %%", since)
			}
		}
		if attempts < 3400 || attempts > 3800 {
			t.Errorf("%d attempts in an hour, want about one a second", attempts)
		}
	})
}

func TestPaceIsBoundedEvenIfEachConnectionWorksForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, start := NewPace(), time.Now()
		for range 101 {
			if err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.Lived()
		}
		if took := time.Since(start); took < 20*time.Second {
			t.Errorf("100 connections in %v", took)
		}
	})
}

func TestPaceReconnectsAtOnceAfterALongLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPace()
		for range 5 {
			if err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		p.Lived()
		time.Sleep(time.Minute)
		lost := time.Now()
		if err := p.Wait(t.Context()); err != nil || time.Since(lost) != 0 {
			t.Errorf("waited %v, %v", time.Since(lost), err)
		}
		if err := p.Wait(t.Context()); err != nil || time.Since(lost) > 600*time.Millisecond {
			t.Errorf("then waited %v, %v; want 250 ms or its double, ± 20 %%", time.Since(lost), err)
		}
	})
}

func TestPaceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		p, start := NewPace(), time.Now()
		if err := p.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Millisecond {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}
