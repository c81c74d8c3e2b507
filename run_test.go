package fencepost

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// A part that ends, with or without an error, ends the whole (B75): it must
// not go on with a part missing.
func TestOnePartThatEndsEndsAll(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	untilDone := loop{"good", func(ctx context.Context) error { <-ctx.Done(); return nil }}
	for _, c := range []struct {
		name string
		bad  loop
		want error
	}{
		{"with an error", loop{"bad", func(context.Context) error { return boom }}, boom},
		{"without one", loop{"bad", func(context.Context) error { return nil }}, nil},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := together(ctx, untilDone, c.bad, untilDone)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || ctx.Err() != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		cancel()
		if err := together(ctx, untilDone, untilDone); err != nil {
			t.Errorf("a stop from outside: %v", err)
		}
	}
}

// Each part that Run needs is among those of which the end ends it; TestHealth
// sees them at work.
func TestRunEndsWithEachOfItsParts(t *testing.T) {
	t.Parallel()
	var names []string
	for _, l := range new(running).loops() {
		names = append(names, l.name)
	}
	if want := []string{"dispatcher", "listener", "poller", "presence", "quiet", "turns"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// The identity of a worker is that of one start: a process that comes back on
// the same host must not take its former life's jobs for its own (B63).
func TestWorkerIDsAreNewAtEveryStart(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for range 1000 {
		id := newWorkerID()
		if seen[id] || len(id) > 128 {
			t.Fatalf("worker id %q: seen before, or too long", id)
		}
		seen[id] = true
	}
}
