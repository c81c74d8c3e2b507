package dispatcher

import (
	"slices"
	"time"
)

const (
	// horizon is for how many trips there should be work: what is claimed now
	// arrives one trip later, and what is claimed then another one later.
	horizon = 2
	// mostAhead bounds how long a job waits here for a slot, by what the last ones
	// took; in a backlog of short jobs, that is: others are not waited for at all.
	mostAhead = 50 * time.Millisecond
)

// ahead is what is claimed of a queue beyond its free slots, so that slots whose
// jobs are short do not stand empty for as long as a trip takes: as many jobs as
// will begin until the trip after the next is back, by how fast the last ones
// ended. Out of a backlog only, when whoever else works the queue has enough to
// do: what waits here waits for nobody else.
type ahead struct {
	line  []*held // in hand, in the order of their claims
	begun int     // so many of them, the first, have a slot by now
	most  int     // how many may wait

	ends  int       // handlers that have ended since
	since time.Time // when it was last measured
	rate  float64   // handlers that end in a second
}

// measure is called when a trip is back that took so long.
func (a *ahead) measure(now time.Time, took time.Duration, backlog bool) {
	if past := now.Sub(a.since); past > 0 {
		a.rate = (a.rate + float64(a.ends)/past.Seconds()) / 2
		a.ends, a.since = 0, now
	}
	a.most = 0
	if backlog {
		a.most = min(int(a.rate*min(horizon*took, mostAhead).Seconds()), mostRows)
	}
}

// waiting is how many jobs have no slot yet.
func (a *ahead) waiting() int { return len(a.line) - a.begun }

// wait adds a job.
func (a *ahead) wait(h *held) {
	if a.begun > 0 && len(a.line) == cap(a.line) {
		a.line = slices.Delete(a.line, 0, a.begun) // room at the end, without more memory
		a.begun = 0
	}
	a.line = append(a.line, h)
}

// oldest takes the job that has waited longest.
func (a *ahead) oldest() *held {
	h := a.line[a.begun]
	a.line[a.begun] = nil
	a.begun++
	return h
}
