package suite

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/host"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// Every figure of a drain, from a real one.
func TestDrain(t *testing.T) {
	t.Parallel()
	d, err := open(t).drain(t.Context(), drain{
		peer: "fencepost",
		o:    wire.Options{Slots: 50},
		p:    wire.Produce{N: 200, Bytes: 200, Way: "one", Clients: 4},
		w:    wire.Work{Window: 40},
		wal:  true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if d.jobs != 200 || d.handled != 200 || len(d.windows) != 5 {
		t.Errorf("jobs %d, handled %d, windows %v", d.jobs, d.handled, d.windows)
	}
	if d.took <= 0 || d.startUp <= 0 || d.rate <= 0 || d.allocs <= 1 || d.bytes < 200 {
		t.Errorf("took %v, start-up %v, %.0f jobs/s, %.1f objects of %.0f B", d.took, d.startUp, d.rate, d.allocs, d.bytes)
	}
	// Each job was enqueued in a commit of its own, and they were claimed and
	// ended in batches.
	if d.enqueued.Commits < 200 || d.worked.Commits < 4 || d.worked.Commits > 100 {
		t.Errorf("commits: %d to enqueue, %d to work", d.enqueued.Commits, d.worked.Commits)
	}
	if d.enqueuedBytes() < 200 || d.workedBytes() < 100 {
		t.Errorf("log: %.0f B to enqueue, %.0f B to work", d.enqueuedBytes(), d.workedBytes())
	}
}

// A job counts when its outcome is stored, not when its handler has returned.
func TestDrainBelievesTheTables(t *testing.T) {
	t.Parallel()
	d, err := open(t).drain(t.Context(), drain{
		peer: "liar", p: wire.Produce{N: 100, Way: "copy", Batch: 100}, limit: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	if d.handled != 100 || d.jobs != 50 || d.took < 500*time.Millisecond {
		t.Errorf("handled %d, done %d in %v", d.handled, d.jobs, d.took)
	}
}

func TestDrainedArithmetic(t *testing.T) {
	t.Parallel()
	d := drained{
		jobs: 1000, server: 30 * time.Millisecond, client: 10 * time.Millisecond,
		enqueued: host.WAL{Bytes: 700_000, Images: 188_000},
		worked:   host.WAL{Bytes: 900_000, Images: 388_000, Commits: 4},
	}
	d.span(1e9, 1.5e9, 3.5e9)
	if d.startUp != 500*time.Millisecond || d.took != 2*time.Second || d.rate != 500 {
		t.Errorf("start-up %v, took %v, %v jobs/s", d.startUp, d.took, d.rate)
	}
	if d.cpu() != 40 || d.enqueuedBytes() != 512 || d.workedBytes() != 512 || d.walKiB() != 1 || d.commits() != 0.004 {
		t.Errorf("%v µs, %v and %v B, %v KiB, %v commits", d.cpu(), d.enqueuedBytes(), d.workedBytes(), d.walKiB(), d.commits())
	}
	d.course(100, 1e9, []int64{2e9, 4e9})
	if !slices.Equal(d.windows, []float64{100, 50}) {
		t.Errorf("windows: %v", d.windows)
	}

	none := drained{}
	none.span(1e9, 0, 3e9) // no handler has started
	if none.took != 0 || none.rate != 0 || none.startUp != 2*time.Second || none.cpu() != 0 {
		t.Errorf("nothing was done, but %+v", none)
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	r := results{
		"a": {{rate: 10}, {rate: 30}, {rate: 20}},
		"b": {{rate: 5}, {rate: 10}, {rate: 20}},
	}
	if got := r.ratios("a", "b", rate); !slices.Equal(got, []float64{2, 3, 1}) {
		t.Error(got)
	}
	if got := r.ratios("a", "not chosen", rate); len(got) != 0 {
		t.Error(got)
	}
}

func TestTurn(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	for n, want := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"a", "b", "c"}} {
		if got := turn(names, n); !slices.Equal(got, want) {
			t.Errorf("turn %d: %v", n, got)
		}
	}
}
