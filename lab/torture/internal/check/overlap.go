package check

import (
	"slices"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// pauseEnough is how much of a lease a process must have been frozen for its
// lease to run out by that: it is extended when a third is over, and a pause of
// 0.6 of one must do no harm.
const pauseEnough = 0.62

// overlaps: a job is taken from its worker only if the lease is over, or if the
// worker is dead or cut off; and a lease does not run out while its worker lives.
// So two handlers run at once only then, or if an operator or the first worker
// itself gave the job free.
func overlaps(ix *index, f *finding) {
	for _, j := range ix.jobs {
		for _, changes := range [][]*change{j.changes, j.lost} {
			for _, c := range changes {
				if !c.taken() || c.line.Place == "finished" && c.what == odd {
					continue
				}
				f.Checked++
				f.part("jobs taken from a worker", 1)
				if why := ix.wrongly(j, c); why != "" {
					f.violated(why, ix.takenFrom(j, c)...)
				}
			}
		}
		for i, b := range j.claims {
			if b.start() == nil {
				continue
			}
			f.Checked++
			for _, a := range j.claims[:i] {
				if a.start() == nil || a.over(ix) <= b.start().At || a.start().At > b.start().At {
					continue
				}
				f.part("overlaps", 1)
				if why := ix.unlawful(j, a, b); why != "" {
					s := steps(ix.event(a.start(), j.id), ix.change(b.given), ix.event(b.start(), j.id))
					if a.out != nil {
						s = append(s, ix.change(a.out))
					}
					if a.end != nil {
						s = append(s, ix.event(a.end, j.id))
					}
					f.violated(why, s...)
				}
			}
		}
	}
}

// takenFrom is what shows that a job was taken: its claim, the last extension,
// and the taking.
func (ix *index) takenFrom(j *job, c *change) []Step {
	s := []Step{ix.change(c)}
	if cl := ix.claims[claimName{j.id, c.before.Fence}]; cl != nil && cl.given != nil {
		s = append(s, ix.change(cl.given))
		var last *change
		for n := cl.given.next; n != nil && n != c; n = n.next {
			if n.what == extended {
				last = n
			}
		}
		if last != nil {
			s = append(s, ix.change(last))
		}
	}
	return s
}

// excuseTime is how long after a trouble it may still be the reason that a job
// is taken: by then leases have been extended, and everybody has come back.
func (ix *index) excuseTime() int64 {
	return max(ix.Limits.Lease.Nanoseconds(), 10e9) + 2e9
}

// lostTouch says that the process was dead then, or that it or everybody had
// lost the server, or may have.
func (ix *index) lostTouch(p *process, at int64) bool {
	from := at - ix.excuseTime()
	return p == nil || p.gone <= at+clockError || meets(p.cuts, from, at) || ix.troubled(rough, from, at)
}

// wrongly says why the job should not have been taken; "": it was right.
func (ix *index) wrongly(j *job, c *change) string {
	if c.before.Status != "running" {
		return "a job was taken that nobody had"
	}
	p := ix.workers[c.before.Worker]
	if ix.lostTouch(p, c.at) {
		return ""
	}
	if !c.overAt() {
		return "a job was taken from a live worker before its lease was over"
	}
	lease := ix.Limits.Lease.Nanoseconds()
	end := c.before.Lease.UnixNano() - ix.Offset
	if float64(within(p.pauses, end-lease, c.at)) >= pauseEnough*float64(lease) {
		return ""
	}
	if cl := ix.claims[claimName{j.id, c.before.Fence}]; cl != nil && cl.given != nil && ix.unheard(p, cl, c.at) {
		return ""
	}
	return "the lease of a live worker ran out"
}

// unheard says that the worker could not know by then that it had the claim: the
// answer was lost, or came too late.
func (ix *index) unheard(p *process, cl *claim, at int64) bool {
	if cl.taken != nil {
		return cl.taken.ret.At > at
	}
	return slices.ContainsFunc(p.claims, func(c *call) bool {
		return c.ret != nil && c.phase() == history.Unknown && c.could(cl.given.at)
	})
}

// unlawful says why the second handler should not have started while the first
// one ran; "": it might.
func (ix *index) unlawful(j *job, a, b *claim) string {
	if len(j.lost) > 0 || a.given.lost || b.given.lost {
		return "" // the new primary did not know of the first
	}
	out := a.out
	if out == nil || out.at > b.given.at {
		return "a job was claimed while it was somebody's"
	}
	if out.taken() {
		if !out.before.Lease.IsZero() && b.given.line.At.After(out.before.Lease) {
			return ""
		}
		if ix.lostTouch(ix.workers[out.before.Worker], out.at) {
			return ""
		}
		return "two handlers of a job ran at once, and the first had not lost it"
	}
	if ix.operated(j.id, out, "release", "cancel", "delete") != nil {
		return ""
	}
	switch out.what {
	case released:
		return "" // by a hard stop, which leaves its handler behind
	case ended, removed:
		// The handler goes on after its own commit; then only a retry lets another
		// one start.
		return ""
	case returned:
		return "a job was handed back as not started while its handler ran"
	}
	return "the outcome of a handler was stored before it had ended"
}
