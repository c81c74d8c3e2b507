package report

import (
	"math"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/check"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// never is later than all times.
const never = int64(math.MaxInt64)

// job is the life of one job, in times of the history.
type job struct {
	id       int64
	token    string
	kind     string
	max      int  // attempts, as its producer wanted: an operator may give it more
	inserted bool // seen from its INSERT on
	states   []state
	waits    []wait
	left     int64 // when it left the queue for good; 0: it has not
}

// state is what a job was from a time on.
type state struct {
	at     int64
	status string // ready, running, or "": not in the queue
	fence  int64
	worker string // of running ones
	due    int64  // of ready ones: not before
	end    string // of one that has left: done, dead, cancelled, or "" without a trace
	reaped bool   // it was taken from a worker whose lease was over, or that had died
}

// wait is a time in which a job was due and held by nobody.
type wait struct {
	from, to int64
	fence    int64 // of the claim that ended it; 0: something else did
}

// lives reads the lives of all jobs from the log. A line has the time of its
// statement but counts from the commit, so where somebody was told of that, his
// time is taken: visible has those of enqueues by token, answered those of
// completions by claim.
func lives(lines []witness.Line, offset int64, visible map[string]int64, answered map[claimKey]int64) map[int64]*job {
	jobs := make(map[int64]*job)
	ended := ends(lines)
	for _, l := range lines {
		if l.Place != "jobs" {
			continue
		}
		j := jobs[l.ID]
		if j == nil {
			j = &job{id: l.ID, token: l.Token, kind: l.Kind, max: l.Max, inserted: l.Op == "INSERT"}
			jobs[l.ID] = j
		}
		s := state{at: stamp(l.At, offset), status: l.After.Status, fence: l.After.Fence, worker: l.After.Worker, reaped: check.Reaped(l)}
		switch l.Op {
		case "INSERT":
			if len(j.states) == 0 {
				s.at = max(s.at, visible[l.Token])
			}
		case "DELETE":
			s.at = max(s.at, answered[claimKey{l.ID, l.Before.Fence}])
			s.end = ended[endKey{l.XID, l.ID}]
		}
		if s.status == "ready" {
			s.due = stamp(l.After.RunAt, offset)
		}
		j.enter(s)
	}
	for _, j := range jobs {
		j.close()
	}
	return jobs
}

func stamp(t time.Time, offset int64) int64 { return t.UnixNano() - offset }

// enter adds a state. If the job is seen to have gone on before its producer was
// told of the commit, it had been visible by then.
func (j *job) enter(s state) {
	if n := len(j.states); n > 0 {
		j.states[n-1].at = min(j.states[n-1].at, s.at)
	}
	j.states = append(j.states, s)
}

// close derives what is known when all states are.
func (j *job) close() {
	for i, s := range j.states {
		if s.status != "ready" {
			continue
		}
		w := wait{from: max(s.at, s.due), to: never}
		if i+1 < len(j.states) {
			next := j.states[i+1]
			w.to = next.at
			if next.status == "running" {
				w.fence = next.fence
			}
		}
		if w.from <= w.to {
			j.waits = append(j.waits, w)
		}
	}
	if last := j.states[len(j.states)-1]; last.status == "" {
		j.left = last.at
	}
}

// at is the state of the job at a time by which it was known.
func (j *job) at(t int64) state {
	for i := len(j.states) - 1; i >= 0; i-- {
		if j.states[i].at <= t {
			return j.states[i]
		}
	}
	return state{status: "unknown"}
}

// enqueued is when the job began to be visible to others; never: before the log.
func (j *job) enqueued() int64 {
	if !j.inserted {
		return never
	}
	return j.states[0].at
}

// first is when the job was first due; never: it was not.
func (j *job) first() int64 {
	if !j.inserted || len(j.waits) == 0 {
		return never
	}
	return j.waits[0].from
}
