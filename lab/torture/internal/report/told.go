package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-go/fencepost/lab/torture/internal/check"
)

// What the table and the page have in common.

// place says in short where the run was.
func (r Run) place() []string {
	var all []string
	add := func(format string, value any, known bool) {
		if known {
			all = append(all, fmt.Sprintf(format, value))
		}
	}
	v, m, s := r.Versions, r.Machine, r.Settings
	add("Fencepost %s", v.Fencepost, v.Fencepost != "")
	add("PostgreSQL %s", v.PostgreSQL, v.PostgreSQL != "")
	add("%s", v.Go, v.Go != "")
	add("PgBouncer %s", v.PgBouncer, v.PgBouncer != "")
	add("%s", m.OS, m.OS != "")
	add("%s", plural(m.Cores, "core", "cores"), m.Cores > 0)
	add("fsync %s", s.Fsync, s.Fsync != "")
	add("synchronous_commit %s", s.SynchronousCommit, s.SynchronousCommit != "")
	return all
}

// noticed says what became of a run without a guard.
func (r Run) noticed() string {
	if r.Verdict.OK {
		return fmt.Sprintf("The guard %s was taken away on purpose, and the checker has noticed: this is as it should be.", r.Without)
	}
	if slices.ContainsFunc(r.Controls, func(c Control) bool { return c.Error != "" }) {
		return fmt.Sprintf("The guard %s was taken away on purpose, and the run itself went wrong.", r.Without)
	}
	return fmt.Sprintf("The guard %s was taken away on purpose, and the checker has not noticed.", r.Without)
}

// example is the shortest counterexample of an invariant.
type example struct {
	check.Finding
	check.Counterexample
}

// shortest is one for each invariant that is violated, the shortest first.
func shortest(findings []check.Finding) []example {
	var all []example
	for _, f := range findings {
		if f.Violations > 0 && len(f.Examples) > 0 {
			all = append(all, example{f, f.Examples[0]})
		}
	}
	slices.SortStableFunc(all, func(a, b example) int { return cmp.Compare(len(a.Steps), len(b.Steps)) })
	return all
}

// numbers of invariants, in short.
func numbers(all []int) string {
	if len(all) == 0 {
		return none
	}
	var words []string
	for _, n := range all {
		words = append(words, fmt.Sprint(n))
	}
	return strings.Join(words, ", ")
}
