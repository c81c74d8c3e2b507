package poller

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// reading is one round trip to a database whose clock is ahead of ours: out
// and back are how long question and answer travel.
func reading(c *Clock, ahead, out, back time.Duration) time.Duration {
	sent := time.Now()
	time.Sleep(out)
	db := time.Now().Add(ahead).Round(0) // no monotonic reading: it came over a wire
	time.Sleep(back)
	return c.Observe(db, sent, time.Now())
}

func TestClock(t *testing.T) {
	const ms = time.Millisecond
	type trip struct{ ahead, out, back, jump, off time.Duration }
	for _, test := range []struct {
		name  string
		trips []trip // off: the most that Until may be wrong after it
	}{
		{"even trip", []trip{{ahead: time.Hour, out: ms, back: ms}}},
		{"database behind", []trip{{ahead: -time.Hour, out: ms, back: ms}}},
		{"uneven trip: wrong by half of it at most", []trip{{out: 0, back: 100 * ms, off: 50 * ms}}},
		{"a fast trip makes up for a slow one", []trip{
			{out: 0, back: 5 * time.Second, off: 2500 * ms},
			{out: ms, back: 0, off: ms / 2},
		}},
		{"a slow trip spoils nothing and is no jump", []trip{
			{out: ms, back: ms},
			{out: 5 * time.Second, back: 0, off: ms / 2},
			{out: 0, back: 5 * time.Second},
		}},
		{"uneven in opposite ways: the truth lies in both ranges", []trip{
			{out: 0, back: 100 * ms, off: 50 * ms},
			{out: 100 * ms, back: 0},
		}},
		{"step forward", []trip{
			{out: ms, back: ms},
			{ahead: 10 * time.Second, out: ms, back: ms, jump: 9998 * ms},
			{ahead: 10 * time.Second, out: ms, back: ms},
		}},
		{"step back", []trip{
			{ahead: time.Minute, out: ms, back: ms},
			{ahead: 0, out: ms, back: ms, jump: -time.Minute + 2*ms},
		}},
		{"drift is followed", []trip{
			{ahead: 0, out: ms, back: ms},
			{ahead: ms, out: ms, back: ms, off: ms},
			{ahead: 2 * ms, out: ms, back: ms, off: ms},
			{ahead: 5 * ms, out: ms, back: ms, off: ms},
			{ahead: 500 * ms, out: ms, back: ms, off: ms},
			{ahead: 0, out: ms, back: ms, off: ms},
		}},
		{"a second is drift, more is a step", []trip{
			{},
			{ahead: time.Second},
			{ahead: 0},
			{ahead: time.Second + 1, jump: time.Second + 1},
			{ahead: 0, jump: -time.Second - 1},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c Clock
				for i, trip := range test.trips {
					if jump := reading(&c, trip.ahead, trip.out, trip.back); jump != trip.jump {
						t.Errorf("trip %d: jump %v, want %v", i, jump, trip.jump)
					}
					time.Sleep(time.Minute)
					due := time.Now().Add(trip.ahead).Round(0).Add(time.Hour)
					if off := c.Until(due) - time.Hour; off.Abs() > trip.off {
						t.Errorf("trip %d: Until is wrong by %v, want at most %v", i, off, trip.off)
					}
					if late := c.Latest().Sub(time.Now().Add(trip.ahead)); late < 0 || late > drift+2*trip.off+2*ms {
						t.Errorf("trip %d: Latest is %v after the time, want at most %v", i, late, drift+2*trip.off)
					}
				}
			})
		})
	}
}

// TestClockNeverTakesTravelForAStep has one difference between the clocks and
// any round trips.
func TestClockNeverTakesTravelForAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		for range 1000 {
			out, back := rand.N(10*time.Second), rand.N(10*time.Second)
			if jump := reading(&c, 3*time.Minute, out, back); jump != 0 {
				t.Fatalf("jump %v after a trip of %v and %v", jump, out, back)
			}
		}
	})
}

func TestClockBeforeAnyReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		if got := c.Until(time.Now().Add(time.Minute)); got != time.Minute {
			t.Errorf("got %v, want 1m", got)
		}
		if !c.Latest().IsZero() {
			t.Errorf("the latest time is %v, want none", c.Latest())
		}
	})
}

func TestClockAtTheEndsOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		reading(&c, 0, time.Second, time.Second)
		if got := c.Until(time.Date(294276, 12, 31, 0, 0, 0, 0, time.UTC)); got < 100*365*24*time.Hour {
			t.Errorf("the far future is %v away", got)
		}
		if got := c.Until(time.Date(-4712, 1, 1, 0, 0, 0, 0, time.UTC)); got > -100*365*24*time.Hour {
			t.Errorf("the far past is %v away", got)
		}
	})
}
