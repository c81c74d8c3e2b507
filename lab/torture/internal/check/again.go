package check

import "github.com/fencepost-go/fencepost/lab/torture/internal/history"

// again: an outcome that was acknowledged was stored by then, and what was done
// is not done again, whatever crashed in between, unless an operator wants it.
func again(ix *index, f *finding) {
	for _, cl := range ix.claimList {
		for _, w := range cl.writes {
			if w.result != accepted || w.Op != history.Finish && w.Op != history.Complete {
				continue
			}
			f.Checked++
			out := cl.out
			if cl.lostOut != nil && (out == nil || out.at > cl.lostOut.at) {
				f.part("went with a former primary", 1)
				continue
			}
			if out == nil && cl.given != nil && cl.given.lost && cl.completes() {
				// A job that has gone altogether may have been completed by its
				// handler: that is what its holder takes for true.
				f.part("went with a former primary", 1)
				continue
			}
			switch {
			case out == nil:
				f.violated("an outcome was acknowledged, and never stored", ix.call(w.call, cl.id, cl.fence)...)
			case out.at > w.ret.At+clockError:
				f.violated("an outcome was acknowledged before it was stored", steps(ix.call(w.call, cl.id, cl.fence), ix.change(out))...)
			case out.at < w.At-clockError: // a write with an old fence, which is another invariant
			case !out.fits(w.verb):
				f.violated("an outcome was acknowledged, and another one stored", steps(ix.call(w.call, cl.id, cl.fence), ix.change(out))...)
			}
			if w.verb == "done" || w.verb == "complete" {
				redone(ix, f, cl, w)
			}
		}
	}
}

// redone: no handler of the job started under a later claim.
func redone(ix *index, f *finding, cl *claim, w *write) {
	if cl.job == nil {
		return
	}
	for _, later := range cl.job.claims {
		s := later.start()
		if s == nil || later.given.lost || later.fence <= cl.fence || s.At < w.ret.At {
			continue
		}
		for _, c := range cl.job.changes {
			if c.what == retried && ix.operated(cl.id, c, "retry") != nil && c.at > cl.given.at && c.at < later.given.at {
				return
			}
		}
		f.violated("a job was done again after that was acknowledged", steps(ix.call(w.call, cl.id, cl.fence), ix.change(later.given), ix.event(s, cl.id, cl.fence))...)
		return
	}
}

// fits says that the change may be what the verb was acknowledged for. A job
// that has ended under its own fence is acknowledged to whoever says so again.
func (c *change) fits(verb string) bool {
	switch c.what {
	case ended, removed:
		return true
	case failed:
		return verb == "retry"
	case snoozed:
		return verb == "snooze"
	case returned:
		return verb == "return"
	case released:
		return verb == "release"
	}
	return false
}
