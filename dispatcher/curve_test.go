package dispatcher_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost-go/fencepost/dispatcher"
)

func TestTheDefaultCurveIsTheDocumentedTable(t *testing.T) {
	table := []time.Duration{
		time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second,
		64 * time.Second, 128 * time.Second, 256 * time.Second, 512 * time.Second, 1024 * time.Second,
		2048 * time.Second, time.Hour, time.Hour, time.Hour,
	}
	for i, want := range table {
		exact := dispatcher.Curve{Jitter: -1}.Delay(i + 1)
		if exact != want {
			t.Errorf("failure %d without jitter: %v, want %v", i+1, exact, want)
		}
		for range 200 {
			got := dispatcher.Curve{}.Delay(i + 1)
			low, high := want*8/10, min(want*12/10+1, time.Hour)
			if got < low || got > high {
				t.Fatalf("failure %d: %v, want %v ± 20 %%, at most 1 h", i+1, got, want)
			}
		}
	}
}

func TestJitterSpreadsTheDelays(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 50 {
		seen[dispatcher.Curve{}.Delay(3)] = true
	}
	if len(seen) < 10 {
		t.Errorf("50 delays had %d different values", len(seen))
	}
}

func TestABaseAboveTheCapCountsAsTheCap(t *testing.T) {
	for _, base := range []time.Duration{2 * time.Minute, math.MaxInt64} {
		seen := map[time.Duration]bool{}
		for range 100 {
			got := dispatcher.Curve{Base: base, Cap: time.Minute}.Delay(1)
			if got < 48*time.Second || got > time.Minute {
				t.Fatalf("base %v: %v", base, got)
			}
			seen[got] = true
		}
		if len(seen) < 10 {
			t.Errorf("base %v: no jitter", base)
		}
	}
}

func TestADelayNeverOverflows(t *testing.T) {
	for _, base := range []time.Duration{math.MinInt64, -1, 0, 1, time.Millisecond, 24 * time.Hour, math.MaxInt64} {
		for _, limit := range []time.Duration{0, 1, time.Second, 48 * time.Hour, math.MaxInt64} {
			for _, factor := range []float64{0, -1, 0.5, 1, 1.0000001, 2, 1e300, math.Inf(1), math.NaN()} {
				for _, jitter := range []float64{0, -1, 0.2, 1, 7, math.Inf(1), math.NaN()} {
					c := dispatcher.Curve{Base: base, Cap: limit, Factor: factor, Jitter: jitter}
					for _, failures := range []int{math.MinInt, -1, 0, 1, 10, 30, 31, 32, 62, 63, 64, 1000, 157_177, math.MaxInt} {
						got := c.Delay(failures)
						if got < time.Millisecond || got > capOf(c) {
							t.Fatalf("%+v after %d failures: %v", c, failures, got)
						}
					}
				}
			}
		}
	}
}

func TestCurveProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := dispatcher.Curve{
			Base:   time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "base")),
			Factor: rapid.Float64Range(0, 10).Draw(t, "factor"),
			Jitter: rapid.Float64Range(-1, 1).Draw(t, "jitter"),
			Cap:    time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "cap")),
		}
		failures := rapid.IntRange(1, 1<<40).Draw(t, "failures")

		exact := c
		exact.Jitter = -1
		here, further := exact.Delay(failures), exact.Delay(failures+1)
		if further < here {
			t.Fatalf("not monotone: %v then %v", here, further)
		}
		if again := exact.Delay(failures); again != here {
			t.Fatalf("not a function of the failures: %v, then %v", here, again)
		}

		got := c.Delay(failures)
		if got < time.Millisecond || got > capOf(c) {
			t.Fatalf("out of bounds: %v", got)
		}
		jitter := max(c.Jitter, 0)
		if c.Jitter == 0 {
			jitter = 0.2
		}
		low := time.Duration(float64(here) * (1 - jitter))
		high := time.Duration(float64(here)*(1+jitter)) + 2
		if got < min(low, capOf(c)) || got > max(high, time.Millisecond) {
			t.Fatalf("%v is outside %v ± %v", got, here, jitter)
		}
	})
}

func capOf(c dispatcher.Curve) time.Duration {
	if c.Cap <= 0 {
		return time.Hour
	}
	return min(max(c.Cap, time.Millisecond), 365*24*time.Hour)
}
