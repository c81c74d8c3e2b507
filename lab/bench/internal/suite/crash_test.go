package suite

import (
	"slices"
	"testing"
	"time"
)

// All jobs of the killed one start again, after it was killed.
func TestCrash(t *testing.T) {
	t.Parallel()
	late, settings, err := open(t).crash(t.Context(), 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(late) != crashJobs || slices.Min(late) <= 0 || settings == "" {
		t.Errorf("%d jobs, the first after %v s; %q", len(late), slices.Min(late), settings)
	}
}
