package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// fairShare is in how many claims others have got jobs when one that claims at all
// has asked for some too. Not how many jobs: after a bell processes take turns,
// and who is first may take all.
const fairShare = 50

// longestTrip is after what time a call that brings nothing should have been
// given up, in ns.
const longestTrip = 15e9

// idlers: a worker with free slots goes on to claim after each trouble, while
// others do. The load of one that does not is carried by the others, so that no
// job tells that it needs a restart.
func idlers(ix *index, f *finding) {
	long := (ix.Limits.Poll*11/10 + ix.Limits.Slack + comeBack).Nanoseconds()
	for _, p := range ix.crew {
		from := p.born
		for _, c := range append(p.claims[:len(p.claims):len(p.claims)], nil) {
			to := min(p.gone, p.termed, ix.last)
			if c != nil {
				to = min(to, c.At)
			}
			for _, s := range ix.unexcused(p, from, to) {
				if s.to-s.from < long {
					continue
				}
				f.part("times in which a worker did not claim", 1)
				if queue, n := ix.passedOver(p, s); n >= fairShare {
					f.violated("a worker claims no more, though it has free slots and others claim",
						Step{ix.at(s.from), p.name, "lives, runs, is connected, and has free slots in queue " + queue},
						Step{ix.at(s.to), p.name, "has not asked for a job for " + time.Duration(s.to-s.from).Round(time.Millisecond).String()})
				}
			}
			if c == nil {
				break
			}
			from = c.At + longestTrip
			if c.ret != nil {
				from = c.ret.At
			}
		}
	}
}

// unexcused are the parts of a time in which the process could claim.
func (ix *index) unexcused(p *process, from, to int64) (parts []span) {
	var excuses []span
	for _, f := range ix.faults {
		if f.trouble >= late {
			excuses = append(excuses, f.span)
		}
	}
	excuses = append(excuses, p.pauses...)
	excuses = append(excuses, p.cuts...)
	slices.SortFunc(excuses, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, e := range excuses {
		if !e.meets(from, to) {
			continue
		}
		if e.from > from {
			parts = append(parts, span{from, e.from})
		}
		from = max(from, add(e.to, ix.settle()))
	}
	if from < to {
		parts = append(parts, span{from, to})
	}
	return parts
}

// passedOver is in how many claims others have got jobs meanwhile, of a queue of
// which the process had a free slot all the time.
func (ix *index) passedOver(p *process, s span) (queue string, most int) {
	for name, slots := range ix.Limits.Slots {
		if p.busy[name].most(s.from, s.to) >= slots {
			continue
		}
		n := 0
		for _, o := range ix.crew {
			for _, c := range o.claims {
				if o != p && c.Queue == name && c.phase() == history.OK && len(c.ret.Refs) > 0 && c.At >= s.from && c.ret.At <= s.to {
					n++
				}
			}
		}
		if n > most {
			queue, most = name, n
		}
	}
	return queue, most
}
