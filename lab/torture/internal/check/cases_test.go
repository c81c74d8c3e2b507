package check

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

const (
	w1 = "worker-1.1"
	w2 = "worker-2.1"
	w3 = "worker-3.1"
)

// acase is a short history, and the invariants that it violates: none, or the
// one that it is about and those that cannot but see it too.
type acase struct {
	name     string
	violates []int
	play     func(w *world)
}

var cases = slices.Concat(jobCases, fenceCases, endCases, overlapCases, waitCases, answerCases)

// claimedOnBothSides: a claim goes with a former primary, and the job is claimed
// again on the new one.
func claimedOnBothSides(w *world) {
	id := w.enqueue("a")
	saved, lines := w.save()
	fence := w.claim(w1, id)
	over := w.fault("failover")
	w.failover(saved, lines)
	over()
	again := w.claim(w2, id)
	if !w.clockFence {
		w.done(w1, id, fence)
	}
	w.done(w2, id, again)
}

// frozen: a process is frozen for more than its lease, loses its job, and writes
// when it wakes up, while another one has it.
func frozen(w *world, write func(*world, string, int64, int64)) {
	id := w.enqueue("a")
	fence := w.claim(w1, id)
	w.wait(time.Second)
	w.harness(history.Pause, w1)
	w.wait(testLimits.Lease)
	w.reap(id)
	w.wait(100 * time.Millisecond)
	again := w.claim(w2, id)
	w.wait(time.Second)
	w.harness(history.Resume, w1)
	write(w, w1, id, fence)
	w.wait(50 * time.Millisecond)
	w.done(w2, id, again)
}

// dies: a worker is killed, and its job taken so much later.
func dies(w *world, after time.Duration) {
	id := w.enqueue("a")
	w.claim(w1, id)
	w.kill(w1)
	w.wait(after - 20*time.Millisecond)
	w.reap(id)
	w.wait(100 * time.Millisecond)
	w.done(w2, id, w.claim(w2, id))
}

// deafFor: bells are lost, and a job waits for so long.
func deafFor(w *world, wait time.Duration) {
	over := w.fault("bells-lost")
	id := w.enqueue("a")
	w.wait(wait)
	w.done(w1, id, w.claim(w1, id))
	over()
}

// effectsOf: two claims of a job write to its business row.
func effectsOf(w *world, inOrder bool) {
	id := w.enqueue("a")
	write := func(proc string, fence int64) {
		e := history.Event{Op: history.Effect, Ref: history.Ref{Job: id, Fence: fence, Token: "a"}}
		w.call(proc, e, func() (history.Phase, history.Event) {
			w.db.orders[0].Fence = max(w.db.orders[0].Fence, fence)
			return history.OK, e
		})
	}
	first := w.claim(w1, id)
	if inOrder {
		write(w1, first)
	}
	w.outcome(w1, id, first, "retry", 0)
	second := w.claim(w2, id)
	write(w2, second)
	if !inOrder {
		write(w1, first)
	}
	w.done(w2, id, second)
}

func TestCases(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.crew()
			c.play(w)
			w.wait(10 * time.Millisecond)
			w.event("harness", history.Event{Op: history.Ready})
			findings := Check(w.input())
			if len(findings) != len(names) {
				t.Fatalf("%d findings, want %d", len(findings), len(names))
			}
			if got := violated(findings); !slices.Equal(got, c.violates) {
				t.Errorf("violates %v, want %v", got, c.violates)
				say(t, findings)
			}
			for _, f := range findings {
				if f.Violations > 0 && (len(f.Examples) == 0 || len(f.Examples[0].Steps) == 0 || f.Examples[0].Says == "") {
					t.Errorf("%d says nothing of why", f.Invariant)
				}
			}
		})
	}
}

// Each invariant has cases that violate it, and one that comes near it.
func TestEachInvariantHasCases(t *testing.T) {
	for n := 1; n <= len(names); n++ {
		bad, good := 0, 0
		for _, c := range cases {
			if slices.Contains(c.violates, n) {
				bad++
			}
			var of int
			if _, err := fmt.Sscanf(c.name, "%d:", &of); err == nil && of == n && c.violates == nil {
				good++
			}
		}
		if bad == 0 || good == 0 {
			t.Errorf("invariant %d: %d cases violate it, %d legal ones are near", n, bad, good)
		}
	}
}

func violated(findings []Finding) (numbers []int) {
	for i, f := range findings {
		if f.Invariant != i+1 {
			panic("not in order")
		}
		if f.Violations > 0 {
			numbers = append(numbers, f.Invariant)
		}
	}
	return numbers
}

func say(t *testing.T, findings []Finding) {
	t.Helper()
	for _, f := range findings {
		if f.Violations == 0 {
			continue
		}
		t.Logf("%d %s: %d of %d", f.Invariant, f.Name, f.Violations, f.Checked)
		for _, e := range f.Examples {
			t.Logf("  %s", e.Says)
			for _, s := range e.Steps {
				t.Logf("    %10.3fs  %-14s %s", s.At.Seconds(), s.Who, s.What)
			}
		}
	}
}
