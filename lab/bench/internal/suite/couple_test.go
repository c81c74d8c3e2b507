package suite

import (
	"testing"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// A job that has not started must not make the others look good: it counts with
// what it has waited. One that several have run counts from its first start,
// and the first jobs do not count.
func TestPickUps(t *testing.T) {
	c := couple{
		produced: wire.Produced{Returned: []int64{1, 1000, 2000, 3000, 4000}},
		warm:     1,
		stopped:  5000,
		worked: []wire.Worked{
			{Starts: map[int]int64{0: 900, 1: 1500, 2: 1990}}, // number 2 began before the answer came
			{Starts: map[int]int64{1: 1100, 4: 4900}},
		},
	}
	l, err := c.pickUps(nil)
	if err != nil {
		t.Fatal(err)
	}
	if l.TotalCount() != 4 || l.unseen != 1 {
		t.Errorf("%d jobs, %d of them unseen; want 4 and 1", l.TotalCount(), l.unseen)
	}
	if least, most := l.Min(), l.Max(); least != 0 || most < 1990 || most > 2010 {
		t.Errorf("from %d to %d ns; want 0 to 2000", least, most)
	}
	odd, err := c.pickUps(func(n int) bool { return n == 0 })
	if err != nil {
		t.Fatal(err)
	}
	if odd.TotalCount() != 1 || odd.Max() != 100 {
		t.Errorf("job 1 alone: %d jobs, %d ns; want 1 and 100", odd.TotalCount(), odd.Max())
	}
}

// What was enqueued is worked, and counted once for each job, by ourselves and
// by the floor.
func TestWaking(t *testing.T) {
	b := open(t)
	b.Peers = []string{"fencepost", "floor"}
	w := waking{subject: "wake", turns: 2, p: wire.Produce{N: 10, Rate: 200, Clients: 2}}
	r, err := w.measure(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{ownRow, wakeFloorRow} {
		if len(r[row]) != 1 {
			t.Fatalf("%s: %d rounds; want 1", row, len(r[row]))
		}
		if l := r[row][0]; l.TotalCount() != 20 || l.unseen != 0 || l.ms(50) <= 0 {
			t.Errorf("%s: %s; want 20 jobs, all of them seen", row, &l)
		}
	}
}

// A job that has run is not done for others before its outcome is stored.
func TestLoneSeesTheTables(t *testing.T) {
	b := open(t)
	r := make(latencies)
	if err := b.loneRound(t.Context(), []entrant{{ownRow, "fencepost", wire.Options{}}}, 0, 1, 3, r); err != nil {
		t.Fatal(err)
	}
	if l := r[ownRow][0]; l.TotalCount() != 3 || l.Min() <= 0 {
		t.Errorf("%s; want 3 jobs, none seen to be done before its handler had ended", &l)
	}
}
