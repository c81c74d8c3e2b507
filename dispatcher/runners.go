package dispatcher

import (
	"context"
	"sync"
	"time"
)

// restAfter is how long goroutines that have run handlers are kept without work.
const restAfter = time.Second

// task is a job whose handler is to be run.
type task struct {
	*held
	ctx     context.Context // but for the timeout
	timeout time.Duration   // 0: none
}

// runners are the goroutines that run handlers. One that has run a handler takes
// the next job: its stack has grown to what handlers need, and to grow another is
// a third of all that a small job costs here.
//
// No job waits for the handler of another: there are never fewer runners than
// jobs that were given out and are not reported.
//
// All methods are called by the loop.
type runners struct {
	work func(task) // returns when the job was reported, or ends the goroutine
	jobs chan task  // to a runner that is free; without a job: it ends

	alive   int // runners that have not ended
	pending int // jobs given out and not reported
	// idle is since when there has been no job; zero: there is one, or no runner.
	idle time.Time
	all  sync.WaitGroup
}

func newRunners(room int, work func(task)) *runners {
	return &runners{work: work, jobs: make(chan task, room)}
}

// give has the handler of a job run.
func (r *runners) give(t task) {
	r.idle = time.Time{}
	r.pending++
	if r.pending <= r.alive {
		select {
		case r.jobs <- t:
			return
		default: // some wait to report before they take the next
		}
	}
	r.alive++
	r.all.Go(func() {
		for ; t.held != nil; t = <-r.jobs {
			r.work(t)
		}
	})
}

// reported notes that a job was reported; died says that its runner has gone with
// it.
func (r *runners) reported(died bool) {
	r.pending--
	if died {
		r.alive--
	}
	if r.pending == 0 && r.alive > 0 {
		r.idle = time.Now()
	}
}

// rest ends the runners when there has been no job for a while. It returns when to
// ask again; zero: after the next report.
func (r *runners) rest(now time.Time) (next time.Time) {
	if r.idle.IsZero() {
		return time.Time{}
	}
	if end := r.idle.Add(restAfter); now.Before(end) {
		return end
	}
	for ; r.alive > 0; r.alive-- {
		r.jobs <- task{}
	}
	r.idle = time.Time{}
	return time.Time{}
}

// end lets the runners go that are free, and the others when their handlers have
// returned, for which wait waits.
func (r *runners) end() { close(r.jobs) }

func (r *runners) wait() { r.all.Wait() }
