package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost/lab/torture/internal/check"
	"github.com/fencepost-go/fencepost/lab/torture/internal/rival"
)

// good is a run that held.
func good() Run {
	run := Run{
		Demands: Demands{
			Faults: 2, Judged: 2, StaleWrites: 10, Frozen: 4, Invariants: true, Controls: 1, Rivals: 1, Silent: 5,
			Names: map[string]string{"stall": "", "kill": "there is nobody to kill"},
		},
		Figures: Figures{
			Load:   Load{Acknowledged: 10, Completed: 10, Silent: 5},
			Faults: []Fault{{N: 1, Name: "stall"}, {N: 2, Name: "kill"}},
			Stale:  []StaleWrites{{By: byFrozen, Attempted: 4, Refused: 4}, {By: byZombie, Attempted: 6, Refused: 6}},
		},
		Controls: []Control{{Name: "poll", Expected: []int{11}, Caught: []int{10, 11}}},
		Rivals:   []rival.Row{{Queue: "River"}},
	}
	for i := range invariants {
		run.Findings = append(run.Findings, check.Finding{Invariant: i + 1, Name: "name", Checked: 1})
	}
	return run
}

func TestVerdict(t *testing.T) {
	if ok, reasons := good().OK(); !ok || len(reasons) > 0 {
		t.Fatal(reasons)
	}
	for want, spoil := range map[string]func(*Run){
		"the run itself went wrong: no server":                       func(r *Run) { r.Errors = []string{"no server"} },
		"invariant 3, name: 2 violations":                            func(r *Run) { r.Findings[2].Violations = 2 },
		"invariant 17 was not looked at":                             func(r *Run) { r.Findings = r.Findings[:16] },
		"invariant 7, name: there was nothing to check":              func(r *Run) { r.Findings[6].Checked = 0 },
		"stale writes accepted: 1 of 6 by zombie":                    func(r *Run) { r.Figures.Stale[1].Accepted = 1 },
		"fault 2, kill: no such process":                             func(r *Run) { r.Figures.Faults[1].Error, r.Demands.Faults = "no such process", 1 },
		"after fault 1, stall: too few":                              func(r *Run) { r.Figures.Faults[0].Missed = []string{"too few"} },
		"a process ended that should not have: worker-1.1":           func(r *Run) { r.Figures.Restarts.Unplanned = []string{"worker-1.1"} },
		"the queue did not drain: 3 jobs left after 60 s":            func(r *Run) { r.Left, r.Drain = 3, 60 },
		"nothing was enqueued":                                       func(r *Run) { r.Figures.Load.Acknowledged = 0 },
		"nothing was completed":                                      func(r *Run) { r.Figures.Load.Completed = 0 },
		"control poll could not be run: no crew":                     func(r *Run) { r.Controls[0].Error = "no crew" },
		"control poll was not caught: invariant 3, not invariant 11": func(r *Run) { r.Controls[0].Caught = []int{3} },
		"control poll was not caught: no invariant was violated":     func(r *Run) { r.Controls[0].Caught = nil },
		"1 different faults, of at least 2":                          func(r *Run) { r.Figures.Faults[1].Name, r.Demands.Names = "stall", nil },
		"1 faults after which recovery could be judged":              func(r *Run) { r.Figures.Faults[0].NotJudged = "too soon" },
		"9 stale writes attempted, of at least 10":                   func(r *Run) { r.Figures.Stale[1].Attempted-- },
		"3 stale writes attempted by frozen processes, of at least 4": func(r *Run) {
			r.Figures.Stale[0].Attempted--
			r.Figures.Stale[1].Attempted++
		},
		"invariant 16, name: of 200 cases 3 were not decided in time": func(r *Run) {
			r.Findings[15].Checked = 197
			r.Findings[15].Parts = []check.Part{{Name: "operations", N: 1000}, {Name: "not decided in time", N: 3}}
		},
		"2 jobs are dead that should not be: job 7": func(r *Run) { r.Figures.Dead = []string{"job 7", "job 8"} },
		"1 transaction that enqueues failed because of a bell: producer-1.1": func(r *Run) {
			r.Figures.Bells = []string{"producer-1.1"}
		},
		"fault disk-full was not made: that takes root": func(r *Run) {
			r.Demands.Names["disk-full"] = "that takes root"
		},
		"fault role-swap was not made: nothing says why": func(r *Run) { r.Demands.Names["role-swap"] = "" },
		`control poll was not caught: invariant 3, not invariant 11 with a word of ["poll"]`: func(r *Run) {
			r.Controls[0].Caught, r.Controls[0].Says = []int{3}, []string{"poll"}
		},
		"0 controls, of at least 1":                              func(r *Run) { r.Controls = nil },
		"0 rows of rivals, of at least 1":                        func(r *Run) { r.Rivals = nil },
		"4 jobs enqueued while bells were silent, of at least 5": func(r *Run) { r.Figures.Load.Silent = 4 },
	} {
		t.Run(want, func(t *testing.T) {
			run := good()
			spoil(&run)
			ok, reasons := run.OK()
			if ok || len(reasons) != 1 || !strings.Contains(reasons[0], want) {
				t.Errorf("%v %q", ok, reasons)
			}
		})
	}
	t.Run("all reasons", func(t *testing.T) {
		run := good()
		run.Left = 1
		run.Findings[0].Violations = 1
		run.Findings[4].Violations = 1
		if _, reasons := run.OK(); len(reasons) != 3 {
			t.Errorf("%q", reasons)
		}
	})
	t.Run("without demands", func(t *testing.T) {
		run := good()
		run.Demands = Demands{}
		run.Controls, run.Rivals, run.Figures.Faults, run.Figures.Stale = nil, nil, nil, nil
		run.Findings[6].Checked = 0
		if ok, reasons := run.OK(); !ok {
			t.Errorf("%q", reasons)
		}
	})
	t.Run("one in a hundred is not decided in time", func(t *testing.T) {
		run := good()
		run.Findings[15].Checked = 99
		run.Findings[15].Parts = []check.Part{{Name: "not decided in time", N: 1}}
		if ok, reasons := run.OK(); !ok {
			t.Errorf("%q", reasons)
		}
	})
	if about := slices.Index(about[:], ""); about >= 0 {
		t.Errorf("invariant %d has no sentence", about+1)
	}
}
