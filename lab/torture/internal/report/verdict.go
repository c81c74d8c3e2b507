package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost-go/fencepost/lab/torture/internal/check"
)

// invariants is how many there are.
const invariants = 17

// OK says whether the run held, and all reasons why not. One without a guard has
// held if that was noticed.
func (r Run) OK() (ok bool, reasons []string) {
	if r.Without == "" {
		reasons = r.failures()
	}
	r.controls(func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) })
	return len(reasons) == 0, reasons
}

// failures are all that must not be, and all that is missing, but for controls.
func (r Run) failures() (reasons []string) {
	no := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	for _, e := range r.Errors {
		no("the run itself went wrong: %s", e)
	}
	r.invariants(no)
	for _, s := range r.Figures.Stale {
		if s.Accepted > 0 {
			no("stale writes accepted: %d of %d by %s", s.Accepted, s.Attempted, s.By)
		}
	}
	for _, f := range r.Figures.Faults {
		if f.Error != "" {
			no("fault %d, %s: %s", f.N, f.Name, f.Error)
		}
		for _, missed := range f.Missed {
			no("after fault %d, %s: %s", f.N, f.Name, missed)
		}
	}
	for _, u := range r.Figures.Restarts.Unplanned {
		no("a process ended that should not have: %s", u)
	}
	if d := r.Figures.Dead; len(d) > 0 {
		no("%s dead that should not be: %s", plural(len(d), "job is", "jobs are"), d[0])
	}
	if b := r.Figures.Bells; len(b) > 0 {
		no("%s failed because of a bell: %s", plural(len(b), "transaction that enqueues", "transactions that enqueue"), b[0])
	}
	if r.Left > 0 {
		no("the queue did not drain: %d jobs left after %.0f s", r.Left, r.Drain)
	}
	if r.Figures.Load.Acknowledged == 0 {
		no("nothing was enqueued")
	} else if r.Figures.Load.Completed == 0 {
		no("nothing was completed")
	}
	r.demands(no)
	return reasons
}

// controls names those that were not caught.
func (r Run) controls(no func(string, ...any)) {
	for _, c := range r.Controls {
		switch {
		case c.Error != "":
			no("control %s could not be run: %s", c.Name, c.Error)
		case !c.OK():
			about := ""
			if len(c.Says) > 0 {
				about = fmt.Sprintf(" with a word of %q", c.Says)
			}
			no("control %s was not caught: %s, not %s%s", c.Name, list(c.Caught, "no invariant was violated"), list(c.Expected, "which none says"), about)
		}
	}
}

// invariants names what the checker found.
func (r Run) invariants(no func(string, ...any)) {
	for i := 1; i <= invariants; i++ {
		at := slices.IndexFunc(r.Findings, func(f check.Finding) bool { return f.Invariant == i })
		if at < 0 {
			no("invariant %d was not looked at", i)
			continue
		}
		f := r.Findings[at]
		if f.Violations > 0 {
			no("invariant %d, %s: %s", f.Invariant, f.Name, plural(f.Violations, "violation", "violations"))
		}
		if f.Checked == 0 && r.Demands.Invariants {
			no("invariant %d, %s: there was nothing to check", f.Invariant, f.Name)
		}
		if n := undecided(f); float64(n) > mostUndecided*float64(f.Checked+n) {
			no("invariant %d, %s: of %d cases %d were not decided in time", f.Invariant, f.Name, f.Checked+n, n)
		}
	}
}

// mostUndecided is which share of an invariant's cases the checker may give up.
const mostUndecided = 0.01

// undecided is how many cases the checker gave up because the search took too
// long.
func undecided(f check.Finding) (n int) {
	for _, p := range f.Parts {
		if p.Name == check.Undecided {
			n += p.N
		}
	}
	return n
}

// demands names what the run should have seen and has not.
func (r Run) demands(no func(string, ...any)) {
	names, tried, judged := make(map[string]bool), make(map[string]bool), 0
	for _, f := range r.Figures.Faults {
		tried[f.Name] = true
		if f.Error == "" {
			names[f.Name] = true
		}
		if f.NotJudged == "" {
			judged++
		}
	}
	for _, d := range []struct {
		what      string
		got, want int
	}{
		{"different faults", len(names), r.Demands.Faults},
		{"faults after which recovery could be judged", judged, r.Demands.Judged},
		{"stale writes attempted", r.Figures.attempted(""), r.Demands.StaleWrites},
		{"stale writes attempted by frozen processes", r.Figures.attempted(byFrozen), r.Demands.Frozen},
		{"controls", len(r.Controls), r.Demands.Controls},
		{"rows of rivals", len(r.Rivals), r.Demands.Rivals},
		{"jobs enqueued while bells were silent", r.Figures.Load.Silent, r.Demands.Silent},
	} {
		if d.got < d.want {
			no("too little was tried: %d %s, of at least %d", d.got, d.what, d.want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Demands.Names)) {
		if !tried[name] { // or its error is a reason already
			no("fault %s was not made: %s", name, cmp.Or(r.Demands.Names[name], "nothing says why"))
		}
	}
}

// attempted is the number of stale writes, by whom; "": by all.
func (f Figures) attempted(by string) (n int) {
	for _, s := range f.Stale {
		if by == "" || by == s.By {
			n += s.Attempted
		}
	}
	return n
}

// list writes numbers of invariants.
func list(numbers []int, none string) string {
	if len(numbers) == 0 {
		return none
	}
	all := make([]string, len(numbers))
	for i, n := range numbers {
		all[i] = fmt.Sprint(n)
	}
	return "invariant " + strings.Join(all, ", ")
}
