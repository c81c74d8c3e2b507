package check

import (
	"slices"
	"time"
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
}

func orphan(ix *index, f *finding, p *process, cl *claim) {
	byLease := ix.pooled(p) || p.termed <= p.gone // a stop deletes the row that others look at
	bound := noticed + time.Duration(ix.others(p))*eachMore
	if byLease {
		lease := cl.given.after.Lease
		for c := cl.given.next; c != nil && c != cl.out; c = c.next {
			if c.what == extended {
				lease = c.after.Lease
			}
		}
		bound = time.Duration(max(0, lease.UnixNano()-ix.Offset-p.gone)) + ix.Limits.Poll*11/10 + eachMore
	}
	bound += ix.Limits.Slack
	from, ok := ix.quiet(p, p.gone, bound)
	if !ok {
		f.part("nobody was there to notice", 1)
		return
	}
	if !byLease && ix.restless(from, bound) {
		bound += moreGrace
		if from, ok = ix.quiet(p, p.gone, bound); !ok {
			f.part("nobody was there to notice", 1)
			return
		}
	}
	deadline := from + bound.Nanoseconds()
	if cl.out == nil && deadline >= ix.last {
		return
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
		// The pause of a failed attempt, and its spread, are counted from the reap.
		pause := float64(time.Second) * 1.2 * float64(int64(1)<<min(max(cl.out.before.Attempts-1, 0), 12))
		if due := cl.out.after.RunAt.Sub(cl.out.line.At); float64(due) > min(pause, float64(time.Hour)) {
			f.violated("a dead worker's job waits longer than documented", append(s, ix.change(cl.out))...)
		}
	}
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

// quiet returns the first time from which on, for as long as the bound, the
// server was there for everybody and some other worker could look.
func (ix *index) quiet(dead *process, from int64, bound time.Duration) (int64, bool) {
	starts := []int64{from}
	for _, f := range ix.faults {
		if f.trouble >= late {
			starts = append(starts, f.to)
		}
	}
	for _, p := range ix.crew {
		starts = append(starts, p.born+ix.settle())
		for _, spans := range [][]span{p.pauses, p.cuts} {
			for _, s := range spans {
				starts = append(starts, add(s.to, ix.settle()+1))
			}
		}
	}
	slices.Sort(starts)
	for _, at := range starts {
		if at < from || at == never {
			continue
		}
		to := at + bound.Nanoseconds()
		if ix.troubled(rough, at+1, to) || ix.troubled(late, at+1, to) {
			continue
		}
		for _, p := range ix.crew {
			if p != dead && p.able(at, to, ix.settle()) {
				return at, true
			}
		}
	}
	return 0, false
}

// restless says that those who look may have made their connection anew not long
// before.
func (ix *index) restless(at int64, bound time.Duration) bool {
	from, to := at-unrest.Nanoseconds(), at+bound.Nanoseconds()
	if ix.troubled(rough, from, to) || ix.troubled(late, from, to) {
		return true
	}
	return slices.ContainsFunc(ix.crew, func(p *process) bool { return meets(p.cuts, from, to) })
}
