package dispatcher

import (
	"testing"
	"time"
)

// How many jobs may wait for a slot, by how many have ended in the last 10 ms
// while a trip took so long.
func TestHowManyAreClaimedAhead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ends    int
		took    time.Duration
		backlog bool
		want    int
	}{
		"until the trip after the next is back": {100, 2 * time.Millisecond, true, 40},
		"none without a backlog":                {100, 2 * time.Millisecond, false, 0},
		"none that would wait for long":         {1, 2 * time.Millisecond, true, 0},
		"50 ms at most":                         {5, time.Second, true, 25},
		"a claim at most":                       {10_000, time.Second, true, mostRows},
	} {
		now := time.Now()
		var a ahead
		for range 300 { // the older measurements fade
			a.since, a.ends = now, test.ends
			now = now.Add(10 * time.Millisecond)
			a.measure(now, test.took, test.backlog)
		}
		if a.most != test.want && a.most != test.want-1 {
			t.Errorf("%s: %d, want %d", name, a.most, test.want)
		}
	}
}
