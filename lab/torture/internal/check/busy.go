package check

import (
	"cmp"
	"slices"
	"sort"
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

// free returns a worker that had a slot for a job of the queue in all of that
// time; nil: there was none.
func (ix *index) free(queue string, from, to int64) *process {
	if meets(ix.pauses[queue], from, to) {
		return nil
	}
	for _, p := range ix.crew {
		if slots := ix.Limits.Slots[queue]; p.able(from, to, ix.settle()) && p.busy[queue].most(from, to) < slots {
			return p
		}
	}
	return nil
}
