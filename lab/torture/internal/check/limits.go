package check

import (
	"fmt"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// limits: no claim brings more than was asked for, and no process runs more
// handlers of a queue than it has slots.
func limits(ix *index, f *finding) {
	for _, p := range ix.crew {
		for _, c := range p.claims {
			if c.phase() != history.OK {
				continue
			}
			f.Checked++
			f.part("claims", 1)
			if len(c.ret.Refs) > c.Asked {
				f.violated(fmt.Sprintf("a claim brought %d jobs, and %d were asked for", len(c.ret.Refs), c.Asked), ix.call(c)...)
			}
		}
		for queue, l := range p.busy {
			slots, limited := ix.Limits.Slots[queue]
			if !limited {
				continue
			}
			f.Checked += len(l.times)
			f.part("starts and ends of handlers", len(l.times))
			for i, n := range l.running {
				if n > slots {
					f.violated(fmt.Sprintf("%d handlers ran at once in %d slots of queue %s", n, slots, queue), ix.crowd(p, queue, l.times[i])...)
					break // one example for each process is enough
				}
			}
		}
	}
}

// crowd is the handlers that ran then.
func (ix *index) crowd(p *process, queue string, at int64) (all []Step) {
	for _, cl := range ix.claimList {
		for _, s := range cl.starts {
			if s.Proc == p.name && s.Queue == queue && s.At <= at && cl.over(ix) > at {
				all = append(all, ix.event(s, cl.id, cl.fence))
			}
		}
	}
	return all
}
