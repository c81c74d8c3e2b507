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
	now := time.Now()
	rest := func(want int, again bool) {
		t.Helper()
		next := r.rest(now)
		if r.alive != want {
			t.Errorf("%d runners are left, want %d", r.alive, want)
		}
		if again != next.Equal(now.Add(restAfter)) || again == next.IsZero() {
			t.Errorf("to be asked again after %v", next.Sub(now))
		}
		now = now.Add(restAfter)
	}
	rest(3*room, true) // they have just been needed
	give(2)
	end(1, false)
	rest(2, true)
	give(1)
	if next := r.rest(now.Add(time.Hour)); !next.IsZero() || r.alive != 2 {
		t.Errorf("with a job for each of %d runners they are to be asked at %v", r.alive, next)
	}
	end(2, false)
	now = now.Add(2 * time.Hour)
	rest(2, true)
	rest(0, false)
	r.wait()
	give(room)
	end(room, false)
	r.end()
	r.wait()
}
