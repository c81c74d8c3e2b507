package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost/lab/torture/internal/check"
)

func TestCaught(t *testing.T) {
	example := func(says string, steps ...string) check.Counterexample {
		c := check.Counterexample{Says: says}
		for _, what := range steps {
			c.Steps = append(c.Steps, check.Step{What: what})
		}
		return c
	}
	findings := []check.Finding{
		{Invariant: 5, Violations: 7, Examples: []check.Counterexample{
			example("a stale extension was accepted", "worker-1.1 extends job 3"),
			example("a stale write was accepted", "worker-1.1 completes job 4 in its own transaction"),
		}},
		{Invariant: 8, Violations: 1, Examples: []check.Counterexample{example("two handlers", "extends, too")}},
		{Invariant: 11},
	}
	for name, c := range map[string]struct {
		expected []int
		says     []string
		want     []int
	}{
		"without a demand":                   {[]int{5}, nil, []int{5, 8}},
		"what it says":                       {[]int{5}, []string{"extension"}, []int{5, 8}},
		"what a step of the second one says": {[]int{5}, []string{"own transaction"}, []int{5, 8}},
		"one of several":                     {[]int{5}, []string{"outcome", "extends"}, []int{5, 8}},
		"about something else":               {[]int{5}, []string{"outcome"}, []int{8}},
		"another invariant's example":        {[]int{5}, []string{"too"}, []int{8}},
		"two that are expected, one says it": {[]int{5, 8}, []string{"two handlers"}, []int{8}},
		"what was expected is not violated":  {[]int{11}, []string{"poll"}, []int{5, 8}},
		"all is about something else":        {[]int{5, 8}, []string{"poll"}, []int{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Caught(findings, c.expected, c.says); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestControlIsCaught(t *testing.T) {
	for _, c := range []struct {
		control Control
		want    bool
	}{
		{Control{Expected: []int{5}, Caught: []int{4, 5}}, true},
		{Control{Expected: []int{4, 5}, Caught: []int{5}}, true},
		{Control{Expected: []int{5}, Caught: []int{4}}, false},
		{Control{Expected: []int{5}}, false},
		{Control{Caught: []int{4}}, false},
		{Control{Expected: []int{5}, Caught: []int{5}, Error: "no crew"}, false},
	} {
		if c.control.OK() != c.want {
			t.Errorf("%+v", c.control)
		}
	}
}

// A run without a guard is there to fail: its verdict is whether that was noticed.
func TestVerdictOfAControl(t *testing.T) {
	run := failingSample()
	run.Without, run.Controls = "finish-fence", run.Controls[:1]
	var out bytes.Buffer
	Print(&out, run)
	_, page := written(t, run, "control")
	for where, said := range map[string]string{"terminal": out.String(), "page": reading(page)} {
		if !strings.Contains(said, "finish-fence was taken away on purpose, and the checker has noticed") || strings.Contains(said, "The run failed") {
			t.Errorf("%s: %s", where, said)
		}
	}
	if j := judged(run); !j.Verdict.OK || len(j.Verdict.Reasons) > 0 || len(j.Verdict.Found) < 3 {
		t.Errorf("%+v", j.Verdict)
	}
	run.Controls = []Control{{Name: "finish-fence", Expected: []int{5}}}
	if j := judged(run); j.Verdict.OK || len(j.Verdict.Reasons) != 1 {
		t.Errorf("not noticed: %+v", j.Verdict)
	}
}

// A reason that many faults have is told once.
func TestNotJudgedIsToldOnce(t *testing.T) {
	got := notJudged([]Fault{{N: 1, NotJudged: tooSoon}, {N: 2}, {N: 3, NotJudged: tooSoon}, {N: 4, NotJudged: tooSoon, Error: "no"}})
	if want := []string{"Not judged, fault 1, 3: " + tooSoon + "."}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
