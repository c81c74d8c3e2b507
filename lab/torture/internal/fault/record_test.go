package fault

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// A worker is killed, frozen, at the moment that is wanted, and at no other: a
// claim with an odd number has not begun, one with an even number has ended.
func TestKilledAtTheRightMoment(t *testing.T) {
	for name, right := range map[string]int{"kill-claimed": 1, "kill-finishing": 2} {
		for _, job := range []int{1, 2} {
			t.Run(name+" "+strconv.Itoa(job), func(t *testing.T) {
				w := open(t, stage.Options{Major: major()}, 0)
				p := w.start(script.Assignment{Role: script.Worker, Name: "worker-1.1", Break: "claim"})
				w.well(0)
				_, err := w.Admin().Exec(t.Context(), `INSERT INTO fencepost.jobs (id, kind, status, worker_id, lease_until, fence, attempts)
					OVERRIDING SYSTEM VALUE VALUES ($1, 'x', 'running', 'host:' || $2 || ':ABC', now() + '1 minute', $1, 1)`, 1000+job, strconv.Itoa(p.PID()))
				if err != nil {
					t.Fatal(err)
				}
				r := recordOf(p)
				for !r.ended[claim{1004, 1004}] { // all that the fake does about it
					r.read()
				}
				f, _ := Named(name)
				if err := f.play(t.Context(), w.Stage, rand.New(rand.NewPCG(1, 1)), length); err != nil {
					t.Fatal(err)
				}
				events := w.events()
				kill := slices.IndexFunc(events, func(e history.Event) bool { return e.Op == history.Kill })
				if kill < 0 {
					t.Fatal("nobody was killed")
				}
				frozen := false
				for _, e := range events[:kill] {
					switch e.Op {
					case history.Pause:
						frozen = true
					case history.Resume:
						frozen = false
					}
				}
				if frozen != (job == right) {
					t.Errorf("with job %d it was killed frozen: %v", job, frozen)
				}
				over := events[slices.IndexFunc(events, func(e history.Event) bool { return e.Op == history.Fault && e.Phase == history.OK })]
				if caught := over.Note == "caught"; caught != (job == right) {
					t.Errorf("with job %d it ends with %q", job, over.Note)
				}
				w.well(history.Now())
			})
		}
	}
}

// Of two workers the one that promises to look is met, and it is frozen or dead
// while its promise holds.
func TestThePromiserIsMet(t *testing.T) {
	for name, op := range map[string]history.Op{"kill-promiser": history.Kill, "freeze-promiser": history.Resume} {
		for _, promises := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", promises), func(t *testing.T) {
				w := open(t, stage.Options{Major: major()}, 1)
				a := script.Assignment{Role: script.Worker, Name: "worker-2.1"}
				if promises {
					a.Break = "promise"
				}
				w.start(a)
				w.well(0)
				f, _ := Named(name)
				if err := f.play(t.Context(), w.Stage, rand.New(rand.NewPCG(1, 1)), length); err != nil {
					t.Fatal(err)
				}
				note := ""
				var met []string
				for _, e := range w.events() {
					switch {
					case e.Op == op:
						met = append(met, e.Target)
					case e.Op == history.Fault && e.Phase == history.OK:
						note = e.Note
					}
				}
				if (note == "caught") != promises || len(met) != 1 || promises && met[0] != "worker-2.1" {
					t.Errorf("%q, of %q", note, met)
				}
				w.well(history.Now())
			})
		}
	}
}
