package check

import (
	"slices"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// overlaps: a job is taken from its worker only if the lease is over, or if the
// worker is dead or cut off; and a lease does not run out while its worker lives.
// So two handlers run at once only then, or if an operator or the first worker
// itself gave the job free.
func overlaps(ix *index, f *finding) {
	for _, j := range ix.jobs {
		for _, changes := range [][]*change{j.changes, j.lost} {
			for _, c := range changes {
				if !c.taken() {
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

// wrongly says why the job should not have been taken; "": it was right.
func (ix *index) wrongly(j *job, c *change) string {
	if c.before.Status != "running" {
		return "a job was taken that nobody had"
	}
	p := ix.workers[c.before.Worker]
	switch {
	case p == nil || p.gone <= c.at+clockError:
		return ""
	case !c.overAt() && !ix.seemedDead(p, c.at):
		return "a job was taken from a live worker before its lease was over"
	case c.overAt() && !ix.lapsed(p, j, c):
		return "the lease of a live worker ran out"
	}
	return ""
}

// seemedDead says that the live process may have been without its sessions, so
// that others could take it for dead: its network let nothing through, everybody
// lost them, or it lost them when it could not make others. That leases could
// run out then is not enough: nobody may look at a lease that is not over.
func (ix *index) seemedDead(p *process, at int64) bool {
	from := at - ix.excuseTime()
	return meets(p.apart, from, at) ||
		ix.met(from, at, func(f fault) bool { return f.is(sessionsEnd...) }) ||
		ix.met(from, at, fault.ends) && (meets(p.pauses, from, at) || ix.troubled(rough, from, at))
}

// lapsed says that there was a reason for a lease of the live process to run
// out: it, or everybody, had lost the server; it was slow; it was frozen; or it
// did not know what it had.
func (ix *index) lapsed(p *process, j *job, c *change) bool {
	from := c.at - ix.excuseTime()
	if meets(p.apart, from, c.at) || ix.troubled(rough, from, c.at) || meets(p.cuts, c.at-ix.Limits.Lease.Nanoseconds(), c.at) {
		return true
	}
	if p.overslept(c.before.Lease.UnixNano()-ix.Offset, ix.Limits.Lease.Nanoseconds(), c.at) {
		return true
	}
	cl := ix.claims[claimName{j.id, c.before.Fence}]
	return cl != nil && cl.given != nil && ix.unheard(p, cl, c.at)
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
	if ix.forgot(j, a, b) {
		return "" // the new primary did not know of the first
	}
	out := a.out
	if out == nil || out.at > b.given.at {
		return "a job was claimed while it was somebody's"
	}
	if out.taken() {
		p := ix.workers[out.before.Worker]
		if b.given.line.At.After(out.before.Lease) || p == nil || p.gone <= out.at+clockError || ix.seemedDead(p, out.at) {
			return ""
		}
		return "two handlers of a job ran at once, and the first had not lost it"
	}
	if ix.operated(j.id, out, "release", "cancel", "delete") != nil {
		return ""
	}
	switch out.what {
	case released:
		// A hard stop leaves its handler behind. No worker does that otherwise.
		if p := ix.procs[a.start().Proc]; p == nil || p.termed <= out.at+clockError || p.gone <= out.at+ix.settle() {
			return ""
		}
		return "a job was released while its handler ran, and its process was not about to end"
	case ended, removed:
		// The handler goes on after its own commit; then only a retry lets another
		// one start.
		return ""
	case returned:
		return "a job was handed back as not started while its handler ran"
	}
	return "the outcome of a handler was stored before it had ended"
}

// forgot says that a failover has taken something that happened to the job from
// the first claim to the second.
func (ix *index) forgot(j *job, a, b *claim) bool {
	return slices.ContainsFunc(j.lost, func(c *change) bool { return c.at >= a.given.at && c.at <= b.given.at })
}
