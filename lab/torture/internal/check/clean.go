package check

import "github.com/fencepost-go/fencepost/lab/torture/internal/history"

// cleanStops: a process that was told to stop, and said that it could, has left
// no handler, connection, lease or open transaction.
func cleanStops(ix *index, f *finding) {
	for i := range ix.Events {
		e := &ix.Events[i]
		if e.Op != history.Clean {
			continue
		}
		if e.Error != "" {
			f.part("stops that were not clean, and said so", 1)
			continue
		}
		f.Checked++
		if e.Result != "" {
			f.violated("something was left after a clean stop", ix.event(e))
		}
	}
	for _, p := range ix.crew {
		if p.termed == never || p.bye == nil || p.bye.Error != "" || p.killed {
			continue
		}
		f.Checked++
		for _, cl := range ix.claimList {
			if s := cl.start(); s != nil && s.Proc == p.name && cl.end == nil {
				f.violated("a handler was left after a clean stop", ix.event(s, cl.id, cl.fence), ix.event(p.bye))
			}
			// It can hand back only what it knows that it has.
			if cl.given == nil || cl.taken == nil || cl.holder != p || cl.lostOut != nil || len(cl.job.lost) > 0 {
				continue
			}
			if cl.out == nil || cl.out.at > p.bye.At+clockError {
				s := steps(ix.change(cl.given), ix.event(p.bye))
				if cl.out != nil {
					s = append(s, ix.change(cl.out))
				}
				f.violated("a lease was left after a clean stop", s...)
			}
		}
	}
}
