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
	// mostWait is how long it waits at most, if the last ones have deceived: then
	// whoever has nothing to do may have it.
	mostWait = time.Second
	// memory is for how long it counts how fast jobs have ended: those that end all
	// at once are few among those of so long.
	memory = mostAhead
)

// ahead is what is claimed of a queue beyond its free slots, so that slots whose
// jobs are short do not stand empty for as long as a trip takes: as many jobs as
// will begin until the trip after the next is back, by how fast the last ones
// ended. Out of a backlog only, when whoever else works the queue has enough to
// do: what waits here waits for nobody else.
type ahead struct {
	line  []place // in the order of their claims
	begun int     // so many of them, the first, have left it
	most  int     // how many may wait

	ends  int       // handlers that have ended since
	since time.Time // when it was last measured
	rate  float64   // handlers that end in a second
}

// place is that of a job in hand that waits for a slot.
type place struct {
	*held
	until time.Time // it is not begun from then on
}

// measure is called when a trip is back that took so long. What has ended longer
// ago counts less, and after a pause it counts for nothing.
func (a *ahead) measure(now time.Time, took time.Duration, backlog bool) {
	past := now.Sub(a.since).Seconds()
	a.rate = (a.rate*memory.Seconds() + float64(a.ends)) / (memory.Seconds() + past)
	a.ends, a.since = 0, now
	a.most = 0
	if backlog {
		a.most = min(int(a.rate*min(horizon*took, mostAhead).Seconds()), mostRows)
	}
}

// waiting is how many jobs have no slot yet.
func (a *ahead) waiting() int { return len(a.line) - a.begun }

// wait adds a job.
func (a *ahead) wait(h *held, until time.Time) {
	if a.begun > 0 && len(a.line) == cap(a.line) {
		a.line = slices.Delete(a.line, 0, a.begun) // room at the end, without more memory
		a.begun = 0
	}
	a.line = append(a.line, place{h, until})
}

// oldest is the job that has waited longest.
func (a *ahead) oldest() place { return a.line[a.begun] }

// leave takes the oldest job out of the line.
func (a *ahead) leave() {
	a.line[a.begun] = place{}
	a.begun++
}

// deceived says that a job has waited too long: those that run take longer than
// the ones by which it was claimed.
func (a *ahead) deceived() { a.rate, a.most = 0, 0 }

// look is when the oldest job has waited long enough; zero: none waits.
func (a *ahead) look() time.Time {
	if a.waiting() == 0 {
		return time.Time{}
	}
	return a.oldest().until
}
