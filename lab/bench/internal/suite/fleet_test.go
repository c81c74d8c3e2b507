package suite

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// Every job is done once, by whichever of them.
func TestFleet(t *testing.T) {
	t.Parallel()
	d, err := open(t).fleet(t.Context(), drain{
		peer: "fencepost", o: wire.Options{Keep: true, Slots: 10},
		p: wire.Produce{N: 300, Bytes: 200, Way: "copy", Batch: 100}, limit: 20 * time.Second,
	}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if d.jobs != 300 || d.handled != 300 || d.rate <= 0 || d.took <= 0 {
		t.Errorf("%+v", d)
	}
}

func TestSlowestOf(t *testing.T) {
	t.Parallel()
	slowest, shares := slowestOf([]string{"1", "4"}, []map[string]float64{
		{"1": 10, "4": 5}, {"1": 8, "4": 10}, {"1": 10, "4": 9},
	})
	if slowest != "4" || !slices.Equal(shares, []float64{0.5, 1, 0.9}) {
		t.Errorf("%s, %v", slowest, shares)
	}
}
