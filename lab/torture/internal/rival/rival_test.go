package rival

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Both queues, with real processes and servers. Where the documentation of
// Fencepost has a bound, the jobs are waited for; River's would take too long
// for a test.
func TestShort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, err := build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		t.Run(q.name(), func(t *testing.T) {
			t.Parallel()
			s := setting{queue: q, program: program, dir: dir, seed: 1, timing: short}
			_, ours := q.(fencepostQueue)
			if ours {
				s.timing.Limit = 30 * time.Second
			}
			rows, err := measure(t.Context(), s, fewScenarios, t.Output())
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) != len(fewScenarios) {
				t.Fatalf("%d rows, want %d", len(rows), len(fewScenarios))
			}
			for _, row := range rows {
				t.Logf("%+v", row)
				if row.Held == 0 || row.Lost != 0 || row.StaleAccepted != 0 || row.Version == "unknown" {
					t.Errorf("%s: nothing held, something lost or stale, or no version: %+v", row.Scenario, row)
				}
				if slices.ContainsFunc(row.Notes, func(n string) bool { return strings.Contains(n, "by themselves") }) {
					t.Errorf("%s: %v", row.Scenario, row.Notes)
				}
				if ours && row.Recovered != row.Held {
					t.Errorf("%s: %d of %d jobs went on", row.Scenario, row.Recovered, row.Held)
				}
			}
			if crash := rows[1]; crash.Recovered == 0 {
				t.Errorf("no job went on after the crash: %+v", crash)
			}
		})
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	Print(&out, []Row{
		{Queue: "A", Version: "v1", Settings: "best", Scenario: "kill", Held: 3, Recovered: 2, MedianSeconds: 1.25, MaxSeconds: 2, Notes: []string{"a note"}},
		{Queue: "A", Version: "v1", Settings: "best", Scenario: "stop", StaleAccepted: 7},
		{Queue: "B", Version: "v2", Settings: "alike", Scenario: "kill", Held: 4, Recovered: 4},
	})
	text := out.String()
	last := -1
	for _, want := range []string{
		"│ kill     │ A     │         3 │       2 │      1.2 │   2.0 │",
		"│ kill     │ B     │         4 │       4 │",
		"│ stop     │ A     │         0 │       0 │      0.0 │   0.0 │              7 │",
		"A v1: best.", "B v2: alike.", "kill, A: a note.",
	} {
		at := strings.Index(text, want)
		if at <= last {
			t.Fatalf("%q is not in its place:\n%s", want, text)
		}
		last = at
	}
	if strings.Count(text, "best") != 1 {
		t.Error("the settings are said more than once")
	}
}
