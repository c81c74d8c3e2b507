package check

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// load is how many handlers of one queue a process runs, over time: each step
// holds from its time until the next.
type load struct {
	times   []int64
	running []int
	handler []*claim // whose start or end the step is
}

type handled struct {
	from, to int64
	claim    *claim
}

func newLoad(handlers []handled) *load {
	type edge struct {
		at    int64
		by    int
		claim *claim
	}
	var edges []edge
	for _, h := range handlers {
		edges = append(edges, edge{h.from, 1, h.claim}, edge{max(h.to, h.from), -1, h.claim})
	}
	// One that ends makes room for one that starts at the same time.
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	l := &load{}
	n := 0
	for _, e := range edges {
		n += e.by
		l.times, l.running, l.handler = append(l.times, e.at), append(l.running, n), append(l.handler, e.claim)
	}
	return l
}

// most is the greatest number in that time.
func (l *load) most(from, to int64) (most int) {
	if l == nil {
		return 0
	}
	i := sort.Search(len(l.times), func(i int) bool { return l.times[i] > from })
	if i > 0 {
		most = l.running[i-1]
	}
	for ; i < len(l.times) && l.times[i] <= to; i++ {
		most = max(most, l.running[i])
	}
	return most
}

func (ix *index) measureLoads() {
	handlers := make(map[*process]map[string][]handled)
	for _, cl := range ix.claimList {
		for _, s := range cl.starts {
			p := ix.procs[s.Proc]
			queue := s.Queue
			if queue == "" && cl.job != nil {
				queue = cl.job.queue
			}
			if handlers[p] == nil {
				handlers[p] = make(map[string][]handled)
			}
			handlers[p][queue] = append(handlers[p][queue], handled{s.At, cl.over(ix), cl})
		}
	}
	for p, queues := range handlers {
		p.busy = make(map[string]*load)
		for queue, h := range queues {
			p.busy[queue] = newLoad(h)
		}
	}
}

// able says that the process could take a job in all of that time: it was there,
// ran, was connected, and was not about to stop. settle is how long before it
// had to be all of that.
func (p *process) able(from, to, settle int64) bool {
	return p.born+settle <= from && p.gone > to && p.termed > to &&
		!meets(p.pauses, from-settle, to) && !meets(p.cuts, from-settle, to)
}

// asked is the newest that the process has asked of the queue by the end of that
// time, and until when it had no slot left over: until its last claim came back,
// and if that brought all that it had asked for, it had to ask again. 0: all the
// time, its claims came back short, or it asked for nothing.
func (p *process) asked(queue string, from, to int64) (newest *call, until int64) {
	asks := p.asks[queue]
	i := sort.Search(len(asks), func(i int) bool { return asks[i].At > to })
	if i > 0 {
		newest = asks[i-1]
	}
	for i--; i >= 0; i-- {
		c := asks[i]
		switch {
		case c.ret == nil:
			return newest, never
		case c.ret.At <= from:
			return newest, 0
		case c.ret.At > to, c.phase() == history.OK && len(c.ret.Refs) >= c.Asked:
			return newest, c.ret.At
		}
	}
	return newest, 0
}

// free returns a worker that in that time had a slot for a job of the queue for
// so long, with the newest that it had asked for and when so long was over; nil:
// there was none. What comes after a full claim is looked at only where no fault
// excuses it.
func (ix *index) free(queue string, in span, bound time.Duration, excused func(fault) bool) (*process, *call, int64) {
	for _, p := range ix.crew {
		for from := in.from; from < in.to; {
			to := add(from, bound.Nanoseconds())
			if to > in.to || from > in.from && ix.met(from-ix.settle(), to, excused) {
				break
			}
			newest, until := p.asked(queue, from, to)
			if until > from {
				from = until // it asked for all that it could, and got it
				continue
			}
			free := p.able(from, to, ix.settle()) && p.busy[queue].most(from, to) < ix.Limits.Slots[queue]
			if free && !meets(ix.pauses[queue], from, to) {
				return p, newest, to
			}
			break
		}
	}
	return nil, nil, 0
}
