package crew

import (
	"math"
	"testing"
	"time"
)

// With bursts there are as many jobs a second as without, in the order of time.
func TestBurstsArePartOfTheLoad(t *testing.T) {
	for _, test := range []struct{ rate, share, want float64 }{
		{30, 0.2, 0.2},
		{75, 0.2, 0.2},
		{5, 1, 1},
		{30, 0, 0},
		{1000, 0.2, 1. / 30},
		{100, 1, 1. / 3}, // no more fit into the time
	} {
		s, err := newSchedule("producer-1.1", 1, test.rate, test.share, nil)
		if err != nil {
			t.Fatal(err)
		}
		var jobs, inBursts float64
		last := time.Duration(0)
		for range 20_000 {
			left := len(s.bursting)
			x := s.next()
			if x.at < last {
				t.Fatalf("%+v: at %s after %s", test, x.at, last)
			}
			last = x.at
			jobs += float64(len(x.orders))
			if len(s.bursting) < left {
				inBursts++
			}
		}
		near := func(what string, got, want float64) {
			if math.Abs(got-want) > 0.05*want+0.001 {
				t.Errorf("%+v: %s: %.4f, want %.4f", test, what, got, want)
			}
		}
		near("jobs a second", jobs/last.Seconds(), test.rate)
		near("of them in bursts", inBursts/jobs, test.want)
	}
}

// A burst makes a promise, and goes on while that holds: with transactions that
// commit when it may be over, and such as have a snapshot from before it.
func TestBurst(t *testing.T) {
	s, err := newSchedule("producer-1.1", 1, 30, 0.2, nil)
	if err != nil {
		t.Fatal(err)
	}
	const at, bursts = time.Minute, 200
	slow, old := 0, 0
	for range bursts {
		all := s.burst(at)
		rushed := 0
		for i, x := range all {
			if len(x.orders) != 1 || x.orders[0].queue != all[0].orders[0].queue || x.orders[0].delay > 0 {
				t.Fatalf("not one job, due at once, into one queue: %+v", x)
			}
			if i > 0 && x.at < all[i-1].at {
				t.Fatalf("at %s after %s", x.at, all[i-1].at)
			}
			switch {
			case x.at < at || x.at >= at+followTo:
				t.Fatalf("at %s", x.at-at)
			case x.at < at+followFrom:
				if rushed++; x.hold > 0 || x.lull > 0 {
					t.Fatalf("slow, in the rush: %+v", x)
				}
			case x.hold+x.lull > 2*time.Second:
				slow++
			}
			if x.lull > 0 {
				if old++; x.via != "rr" || x.rowsLast {
					t.Fatalf("no old snapshot: %+v", x)
				}
			}
		}
		if rushed != rush || len(all) != rush+followers {
			t.Fatalf("%d in a rush, of %d", rushed, len(all))
		}
	}
	if slow < 3*bursts || old < 3*bursts {
		t.Errorf("in a burst %d commit late, %d have an old snapshot", slow/bursts, old/bursts)
	}
}
