package check

import (
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// times: nothing is claimed before it is due, and what is put off is due no
// earlier than its delay says. All by the database's clock.
func times(ix *index, f *finding) {
	for _, j := range ix.jobs {
		for _, changes := range [][]*change{j.changes, j.lost} {
			for _, c := range changes {
				switch c.what {
				case claimed:
					f.Checked++
					if c.line.At.Before(c.before.RunAt) {
						f.violated("a job was claimed before it was due", ix.change(c),
							Step{ix.at(c.before.RunAt.UnixNano() - ix.Offset), "witness", "the job is due"})
					}
				case failed, snoozed:
					putOff(ix, f, ix.claims[claimName{j.id, c.before.Fence}], c)
				case reaped:
					rested(ix, f, c)
				case inserted:
					scheduled(ix, f, j, c)
				}
			}
		}
	}
	paused(ix, f)
	for _, cl := range ix.claimList {
		if s := cl.start(); s != nil && cl.given != nil {
			f.Checked++
			if s.At+clockError < cl.given.at {
				f.violated("a handler started before its job was claimed", ix.event(s, cl.id, cl.fence), ix.change(cl.given))
			}
		}
	}
}

// putOff compares the delay that was asked for with when the job is due.
func putOff(ix *index, f *finding, cl *claim, c *change) {
	w := cl.outcome(c)
	if w == nil || w.Op != history.Finish {
		return
	}
	f.Checked++
	// By the earliest call that may have stored it, and to the microsecond.
	delay := w.ref.Delay
	if cl.end != nil && cl.end.Verb == w.verb {
		delay = max(delay, cl.end.Delay) // what the handler asked for
	}
	soonest := w.At + delay - clockError - int64(time.Microsecond)
	if due := c.after.RunAt.UnixNano() - ix.Offset; due < soonest {
		f.violated("a job is due again before its delay is over", steps(ix.call(w.call, cl.id, cl.fence), ix.change(c))...)
	}
}

// rested: what was taken from a worker waits for the pause of a failed attempt,
// 0.8 of the curve at least. It counts from the statement, and the witness writes
// when that is over: a second later, if all goes slowly.
func rested(ix *index, f *finding, c *change) {
	pause := reapPause(c)
	if pause < float64(time.Second) {
		return // too short to be told from a statement that takes its time
	}
	f.Checked++
	soonest := c.line.At.Add(max(0, time.Duration(pause*0.8)-ix.Limits.Slack))
	if !c.after.RunAt.After(soonest) {
		f.violated("a job that was taken from its worker is due again without a pause", ix.change(c))
	}
}

// scheduled compares what the producer asked for with when the job is due.
func scheduled(ix *index, f *finding, j *job, c *change) {
	for _, e := range ix.enqueues[j.token] {
		if e.phase() == history.Failed || !e.could(c.at) {
			continue
		}
		due := c.after.RunAt.UnixNano()
		soonest, latest := e.At+e.ref.Delay+ix.Offset, add(e.until(), e.ref.Delay+ix.Offset)
		if e.ref.RunAt != 0 {
			soonest, latest = e.ref.RunAt*1000, e.ref.RunAt*1000
		}
		f.Checked++
		switch {
		case due < soonest-clockError-int64(time.Microsecond) && (e.ref.RunAt != 0 || e.ref.Delay != 0):
			f.violated("a job is due before it was scheduled", steps(ix.call(e.call), ix.change(c))...)
		case due > add(latest, clockError+int64(time.Microsecond)):
			f.violated("a job is due later than it was scheduled", steps(ix.call(e.call), ix.change(c))...)
		}
	}
}
