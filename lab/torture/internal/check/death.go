package check

import (
	"slices"
	"strings"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// What is documented of a worker that dies: its jobs run again within noticed,
// of several that die together the last ones up to eachMore later for each.
// After a restart, or when connections were made anew less than unrest ago, the
// grace is longer by moreGrace.
const (
	noticed   = 5 * time.Second
	eachMore  = 2 * time.Second
	together  = 10 * time.Second
	moreGrace = 10 * time.Second
	unrest    = 75 * time.Second
	// firstPause is how long after a death the job of a first attempt waits, with
	// the spread of that.
	firstPause = 600 * time.Millisecond
	// comeBack is how long everybody has, after a trouble, to be as before.
	comeBack = 3 * time.Second
)

func (ix *index) settle() int64 { return comeBack.Nanoseconds() }

// deaths: while another worker lives, the jobs of a dead one are taken from it
// within the documented time, and wait no longer than documented.
func deaths(ix *index, f *finding) {
	left := make(map[*process][]*claim)
	for _, j := range ix.jobs {
		if len(j.lost) > 0 {
			continue
		}
		for _, cl := range j.claims {
			p := ix.workers[cl.given.after.Worker]
			if p != nil && p.gone != never && cl.given.at <= p.gone && (cl.out == nil || cl.out.at > p.gone) {
				left[p] = append(left[p], cl)
			}
		}
	}
	for _, p := range ix.crew {
		for _, cl := range left[p] {
			orphan(ix, f, p, cl)
		}
	}
	longLeases(ix, f)
}

func orphan(ix *index, f *finding, p *process, cl *claim) {
	taken := ix.last
	if cl.out != nil {
		taken = cl.out.at
	}
	deadline, from, judged := ix.takenBy(p, cl, taken)
	switch {
	case !judged:
		f.part("nobody was there to notice", 1)
		return
	case cl.out == nil && deadline >= ix.last:
		return
	case from != p.gone:
		f.part("judged from the end of a trouble on", 1)
	}
	f.Checked++
	died := p.exit
	if died == nil {
		died = p.bye
	}
	s := []Step{ix.change(cl.given), {ix.at(p.gone), p.name, "is gone"}}
	if died != nil {
		s = append(s, ix.event(died))
	}
	switch {
	case cl.out == nil:
		f.violated("a dead worker's job was never taken from it", s...)
	case cl.out.at > deadline:
		f.violated("a dead worker's job was taken from it too late", append(s,
			Step{ix.at(deadline), "documented", "by now it should have been taken"}, ix.change(cl.out))...)
	case cl.out.what == reaped:
		// Counted from the reap.
		pause := min(reapPause(cl.out)*1.2, float64(time.Hour))
		if due := cl.out.after.RunAt.Sub(cl.out.line.At); float64(due) > max(pause, float64(firstPause)) {
			f.violated("a dead worker's job waits longer than documented", append(s, ix.change(cl.out))...)
		}
	}
}

// reapPause is how long a job that was taken from its worker waits, in ns and
// without the spread of that.
func reapPause(c *change) float64 {
	if c.before.Attempts == 1 && strings.HasPrefix(c.line.Error, "worker ") {
		return float64(100 * time.Millisecond)
	}
	return float64(time.Second) * float64(int64(1)<<min(max(c.before.Attempts-1, 0), 12))
}

// longLeases: nobody is given a job for longer than a lease, or a death that
// shows by the lease alone would be noticed too late.
func longLeases(ix *index, f *finding) {
	for _, j := range ix.jobs {
		for _, c := range j.changes {
			if c.what != claimed && c.what != extended {
				continue
			}
			if c.after.Lease.Sub(c.line.At) > ix.Limits.Lease+time.Duration(clockError) && !ix.zombies(j, c) {
				f.violated("a lease is longer than it was to be", ix.change(c))
			}
		}
	}
}

// zombies says that the lease may be one that a zombie has asked for, whose
// leases are longer: after a failover it may hold a claim again.
func (ix *index) zombies(j *job, c *change) bool {
	cl := ix.claims[claimName{j.id, c.after.Fence}]
	return cl != nil && slices.ContainsFunc(cl.writes, func(w *write) bool {
		return w.Op == history.Replay && w.verb == "extend" && w.could(c.at)
	})
}

// others is how many other workers died about then, or could not look: each of
// them may have been the one to look first.
func (ix *index) others(p *process) (n int) {
	from, to := p.gone-together.Nanoseconds(), p.gone+together.Nanoseconds()
	for _, o := range ix.crew {
		if o != p && (o.gone >= from && o.gone <= to || o.gone > from && (meets(o.pauses, from, to) || meets(o.cuts, from, to))) {
			n++
		}
	}
	return n
}

// takenBy returns by when the job should have been taken from the dead worker.
// That counts from its death, or, if there was trouble in which nobody could
// notice it, from the end of that; but no trouble that began after the job was
// taken is a reason to look later.
func (ix *index) takenBy(dead *process, cl *claim, taken int64) (deadline, from int64, ok bool) {
	for _, at := range ix.ends(dead.gone, taken) {
		deadline := at + ix.bound(dead, cl, at).Nanoseconds()
		if taken <= deadline || ix.calmly(dead, at, deadline) {
			return deadline, at, true
		}
	}
	return 0, 0, false
}

// bound is how long the job may take to be taken, if all is well from then on.
func (ix *index) bound(dead *process, cl *claim, at int64) time.Duration {
	if ix.pooled(dead) || dead.termed <= dead.gone { // a stop deletes the row that others look at
		lease := cl.given.after.Lease
		for c := cl.given.next; c != nil && c != cl.out; c = c.next {
			if c.what == extended {
				lease = c.after.Lease
			}
		}
		left := time.Duration(max(0, lease.UnixNano()-ix.Offset-dead.gone))
		return left + ix.Limits.Poll*11/10 + eachMore + ix.Limits.Slack
	}
	bound := noticed + time.Duration(ix.others(dead))*eachMore + ix.Limits.Slack
	if ix.restless(at, bound) {
		bound += moreGrace
	}
	if ix.met(at, at+bound.Nanoseconds(), func(f fault) bool { return f.trouble == deaf }) {
		bound += ix.Limits.Poll * 11 / 10 // it is a bell that makes the others look
	}
	return bound
}

// ends are the death and the ends of all that went on between then and the
// taking and could keep others from noticing, in order.
func (ix *index) ends(gone, taken int64) []int64 {
	all := []int64{gone}
	end := func(s span, settle int64) {
		if to := add(s.to, settle); s.from <= taken && to > gone && to <= taken {
			all = append(all, to)
		}
	}
	for _, f := range ix.faults {
		if f.cutsOff() {
			end(f.span, 1)
		}
	}
	for _, p := range ix.crew {
		end(span{p.born, p.born}, ix.settle())
		for _, s := range slices.Concat(p.pauses, p.cuts) {
			end(s, ix.settle()+1)
		}
	}
	slices.Sort(all)
	return all
}

// calmly says that in all of that time the server was there for everybody, and
// some other worker could look.
func (ix *index) calmly(dead *process, from, to int64) bool {
	return !ix.met(from, to, fault.cutsOff) && slices.ContainsFunc(ix.crew, func(p *process) bool {
		return p != dead && p.able(from, to, ix.settle())
	})
}

// restless says that those who look may have made their connection anew not long
// before.
func (ix *index) restless(at int64, bound time.Duration) bool {
	from, to := at-unrest.Nanoseconds(), at+bound.Nanoseconds()
	return ix.met(from, to, fault.cutsOff) ||
		slices.ContainsFunc(ix.crew, func(p *process) bool { return meets(p.apart, from, to) })
}
