package dispatcher

import (
	"runtime"
	"testing"
	"time"
)

// No job waits for the handler of another, whatever has run before, and a runner
// that is free takes the next job.
func TestEachJobHasARunner(t *testing.T) {
	t.Parallel()
	const room = 4
	began, leave := make(chan task), make(chan bool)
	reports := make(chan bool)
	r := newRunners(room, func(t task) {
		began <- t
		died := <-leave
		reports <- died
		if died {
			runtime.Goexit()
		}
	})
	give := func(n int) {
		for range n {
			r.give(task{held: &held{}})
		}
		for range n { // all of them at once
			<-began
		}
	}
	end := func(n int, died bool) {
		for range n {
			leave <- died
			r.reported(<-reports)
		}
	}
	give(3 * room)
	if r.alive != 3*room || r.pending != 3*room {
		t.Errorf("%d runners of %d jobs", r.alive, r.pending)
	}
	end(room, false)
	give(room)
	if r.alive != 3*room {
		t.Errorf("%d runners, want those that were there", r.alive)
	}
	end(room, true) // such as runtime.Goexit
	if r.alive != 2*room {
		t.Errorf("%d runners, want those that are left", r.alive)
	}
	give(room)
	end(3*room, false)
	if next := r.rest(r.idle); !next.Equal(r.idle.Add(restAfter)) || r.alive == 0 {
		t.Errorf("they rest at once: next %v, %d left", next, r.alive)
	}
	give(1)
	if next := r.rest(time.Now().Add(time.Hour)); !next.IsZero() || r.alive == 0 {
		t.Errorf("they rest while a job runs: next %v, %d left", next, r.alive)
	}
	end(1, false)
	if next := r.rest(r.idle.Add(restAfter)); !next.IsZero() || r.alive != 0 {
		t.Errorf("they do not rest: next %v, %d left", next, r.alive)
	}
	r.wait()
	give(room)
	end(room, false)
	r.end()
	r.wait()
}
