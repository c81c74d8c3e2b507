package check

import "github.com/fencepost-go/fencepost/lab/torture/internal/history"

// paused: nothing is claimed of a queue by a call that begins when its pause is
// known to be committed, until somebody resumes it.
func paused(ix *index, f *finding) {
	var pauses []span
	var queue string
	for _, c := range ix.calls {
		switch {
		case c.Op != history.Operate || c.Queue == "":
		case c.Verb == "pause" && c.phase() == history.OK:
			queue, pauses = c.Queue, append(pauses, span{c.ret.At, never})
		case c.Verb == "resume" && len(pauses) > 0:
			pauses[len(pauses)-1].to = min(pauses[len(pauses)-1].to, c.At)
		}
	}
	for _, p := range pauses {
		if ix.troubled(rough, p.from-slowCommit, p.to) {
			continue // a failover may have lost it
		}
		f.Checked++
		for _, w := range ix.crew {
			for _, c := range w.claims {
				if c.Queue == queue && c.At >= p.from && c.phase() == history.OK && c.ret.At < p.to && len(c.ret.Refs) > 0 {
					f.violated("jobs were claimed of a queue that was paused",
						append(ix.call(c), Step{ix.at(p.from), "operator", "queue " + queue + " is paused"})...)
				}
			}
		}
	}
}
