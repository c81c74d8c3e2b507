package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// tooSoon: from 5 s on a second is looked at, at least, and one more for grace.
const tooSoon = "the next fault, or the end of the load, came less than 7 s after it"

// share counts what became of the jobs that were offered after a fault.
func (m *measure) share(f *Fault, others []Fault) {
	from := f.base + settle
	due := min(f.base+settle+window+grace, f.next)
	offered := span{from, due - grace}
	if other := f.disturbed(others, span{from, due}); other != "" {
		f.NotJudged = "another fault was on: " + other
		return
	}
	if offered.to-offered.from < int64(time.Second) {
		f.NotJudged = tooSoon
		return
	}
	var missing map[string]bool
	f.NotEnqueued, missing = m.notEnqueued(offered, due)
	f.Offered = f.NotEnqueued
	for _, j := range m.jobs {
		if !offered.has(j.first()) || missing[j.token] {
			continue
		}
		f.Offered++
		switch s := j.at(due); { // perhaps not for good: an operator may bring it back
		case s.status != "" && m.atWork(j, s, due), m.interfered(j, s):
			f.LeftOut++
		case j.well(s):
			f.Completed++
		}
	}
	rest := f.Offered - f.LeftOut
	if rest == 0 {
		return
	}
	part := float64(f.Completed) / float64(rest)
	if part < shareDone {
		missed := fmt.Sprintf("%d of %d jobs were completed, less than %g", f.Completed, rest, shareDone)
		if f.NotEnqueued > 0 {
			missed += fmt.Sprintf("; %d could not be enqueued", f.NotEnqueued)
		}
		f.Missed = append(f.Missed, missed)
	}
	part = round(part, 4)
	f.Share = &part
}

// notEnqueued are the jobs that producers began to enqueue in a time, or should
// have, and of which they had not been told by another that they got in; with
// the tokens of those that may be there all the same. A transaction that is to
// be rolled back, or held open for longer, is as planned.
func (m *measure) notEnqueued(in span, by int64) (n int, tokens map[string]bool) {
	tokens = make(map[string]bool)
	add := func(call history.Event) {
		for _, ref := range refs(call) {
			n++
			tokens[ref.Token] = true
		}
	}
	open := make(map[callKey]history.Event)
	for _, e := range m.during(span{in.from, by}) {
		key := callKey{e.Proc, e.N}
		switch {
		case e.Op == history.Missed && in.has(e.At):
			n += e.Asked
		case !produces(e):
		case e.Phase == history.Call:
			if in.has(e.At) {
				open[key] = e
			}
		default:
			if call, ok := open[key]; ok && e.Phase != history.OK && e.Note != asPlanned {
				add(call)
			}
			delete(open, key)
		}
	}
	for _, call := range open {
		if call.At+call.Delay+grace <= by {
			add(call)
		}
	}
	return n, tokens
}

// asPlanned is the note of a transaction that was to be rolled back.
const asPlanned = "rolled back"

// produces says that the event is of a producer's transaction: handlers enqueue
// too.
func produces(e history.Event) bool {
	return e.Op == history.Enqueue && strings.HasPrefix(e.Proc, string(script.Producer))
}

// atWork says that a job that is not completed is where the script wants it: in
// its handler, waiting for a time of its own, or in the hands of a process that
// a job has just ended.
func (m *measure) atWork(j *job, s state, at int64) bool {
	claim := claimKey{j.id, s.fence}
	holder, ok := m.holder[claim]
	if !ok { // it fell before it could write down what it had claimed
		holder = m.proc[s.worker]
	}
	if fell, ok := m.fallen[holder]; ok && fell <= at && at < fell+noticed {
		return s.status == "running"
	}
	if j.kind == script.Short {
		return false // it asks for no time
	}
	if s.status == "ready" {
		// The pause is over, or was a moment ago. But it was due before.
		return s.due > at-grace && s.due > j.first()
	}
	started, ok := m.starts[claim]
	ended, over := m.ends[claim]
	// Just over: its outcome is on the way.
	return ok && started <= at && (!over || ended > at-grace)
}
