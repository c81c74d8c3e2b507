package report

import (
	"slices"
	"strings"

	"github.com/fencepost-go/fencepost/lab/torture/internal/check"
)

// Control is a run without one guard. It has to fail, or the checker is blind.
type Control struct {
	Name  string `json:"name"`
	Guard string `json:"guard"` // what was removed, in words
	// Expected are the invariants of which at least one must be violated.
	Expected []int `json:"expected"`
	// Says are words of which a counterexample must have one: that it is about
	// this guard. None: it may be about anything.
	Says []string `json:"says,omitempty"`
	// Caught are the invariants that were violated; see the function.
	Caught  []int   `json:"caught"`
	Seconds float64 `json:"seconds"`
	// Error is why the control could not be run.
	Error string `json:"error,omitempty"`
}

// OK says that the missing guard was noticed by an invariant that should.
func (c Control) OK() bool {
	if c.Error != "" {
		return false
	}
	return slices.ContainsFunc(c.Expected, func(want int) bool { return slices.Contains(c.Caught, want) })
}

// Caught are the invariants that were violated. One that is expected is among
// them only if a counterexample has one of the words: what else may break it is
// no proof that the missing guard was noticed.
func Caught(findings []check.Finding, expected []int, says []string) []int {
	caught := []int{}
	for _, f := range findings {
		about := len(says) == 0 || !slices.Contains(expected, f.Invariant) || slices.ContainsFunc(f.Examples, func(c check.Counterexample) bool { return speaks(c, says) })
		if f.Violations > 0 && about {
			caught = append(caught, f.Invariant)
		}
	}
	return caught
}

// speaks says that a counterexample has one of the words.
func speaks(c check.Counterexample, words []string) bool {
	return slices.ContainsFunc(words, func(word string) bool {
		return strings.Contains(c.Says, word) ||
			slices.ContainsFunc(c.Steps, func(s check.Step) bool { return strings.Contains(s.What, word) })
	})
}
