package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-go/fencepost/lab/torture/internal/check"
)

// invariants is how many there are.
const invariants = 16

// OK says whether the run held, and all reasons why not.
func (r Run) OK() (ok bool, reasons []string) {
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
	if r.Left > 0 {
		no("the queue did not drain: %d jobs left after %.0f s", r.Left, r.Drain)
	}
	if r.Figures.Load.Acknowledged == 0 {
		no("nothing was enqueued")
	} else if r.Figures.Load.Completed == 0 {
		no("nothing was completed")
	}
	for _, c := range r.Controls {
		switch {
		case c.Error != "":
			no("control %s could not be run: %s", c.Name, c.Error)
		case !c.OK():
			no("control %s was not caught: %s, not %s", c.Name, list(c.Caught, "no invariant was violated"), list(c.Expected, "which none says"))
		}
	}
	r.demands(no)
	return len(reasons) == 0, reasons
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
	}
}

// demands names what the run should have seen and has not.
func (r Run) demands(no func(string, ...any)) {
	names, judged := make(map[string]bool), 0
	for _, f := range r.Figures.Faults {
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
		{"stale writes attempted", r.Figures.attempted(), r.Demands.StaleWrites},
		{"controls", len(r.Controls), r.Demands.Controls},
		{"rows of rivals", len(r.Rivals), r.Demands.Rivals},
	} {
		if d.got < d.want {
			no("too little was tried: %d %s, of at least %d", d.got, d.what, d.want)
		}
	}
}

// attempted is the number of all stale writes.
func (f Figures) attempted() (n int) {
	for _, s := range f.Stale {
		n += s.Attempted
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
