package dispatcher

import (
	"context"
	"sync"
	"time"
)

// restAfter is how long goroutines that have run handlers are kept without work, at
// least; twice that at most.
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

	alive   int       // runners that have not ended
	pending int       // jobs given out and not reported
	most    int       // of these at once, since
	since   time.Time // it was last looked who may rest
	all     sync.WaitGroup
}

func newRunners(room int, work func(task)) *runners {
	return &runners{work: work, jobs: make(chan task, room)}
}

// give has the handler of a job run.
func (r *runners) give(t task) {
	r.pending++
	r.most = max(r.most, r.pending)
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
}

// rest ends the runners that were not needed for a while, or those of a crowd that
// came once would be kept as long as there is now and then a job. It returns when to
// ask again; zero: after the next report.
func (r *runners) rest(now time.Time) (next time.Time) {
	if r.alive > r.pending && !now.Before(r.since.Add(restAfter)) {
		for ; r.alive > r.most; r.alive-- {
			r.jobs <- task{}
		}
		r.most, r.since = r.pending, now
	}
	if r.alive == r.pending {
		return time.Time{}
	}
	return r.since.Add(restAfter)
}

// end lets the runners go that are free, and the others when their handlers have
// returned, for which wait waits.
func (r *runners) end() { close(r.jobs) }

func (r *runners) wait() { r.all.Wait() }
