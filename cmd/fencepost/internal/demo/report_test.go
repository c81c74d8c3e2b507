package demo

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// What --json prints is one flat object, whose names scripts rely on.
func TestReportsAreFlatObjects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		report any
		names  []string
	}{
		{Report{}, []string{
			"enqueued", "done", "dead", "lost", "repeated_effects", "repeated_killed", "repeated_paused", "late_refused",
			"live_overlaps", "recovery_seconds", "pickup_p50_ms", "pickup_p99_ms", "idle_statements_per_minute",
			"idle_wal_bytes_per_minute", "ok",
		}},
		{NaiveReport{}, []string{"enqueued", "double_claims", "late_overwrites", "ok"}},
	} {
		text, err := json.Marshal(c.report)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(slices.Values(c.names))) {
			t.Errorf("%T has %v, want %v", c.report, names, c.names)
		}
		for name, value := range got {
			switch value.(type) {
			case float64, bool:
			default:
				t.Errorf("%T: %s is %v, want a number or a truth", c.report, name, value)
			}
		}
	}
}
