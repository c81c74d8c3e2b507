package check

import "github.com/fencepost-go/fencepost/lab/torture/internal/history"

// unsaid: what a worker sends about a claim is what the claim's handler has
// returned: a failure that is stored as done is a job lost, whatever its fence
// says.
func unsaid(ix *index, f *finding) {
	for _, cl := range ix.claimList {
		s := cl.start()
		if s == nil {
			continue
		}
		for _, w := range cl.writes {
			if w.Op != history.Finish || w.Proc != s.Proc {
				continue
			}
			f.part("outcomes compared with what handlers returned", 1)
			if why := ix.misquoted(cl, w); why != "" {
				said := steps(ix.event(s, cl.id, cl.fence), ix.call(w.call, cl.id, cl.fence))
				if cl.end != nil {
					said = append(said, ix.event(cl.end, cl.id, cl.fence))
				}
				f.violated(why, said...)
			}
		}
	}
}

// misquoted says what is wrong with the outcome; "": nothing.
func (ix *index) misquoted(cl *claim, w *write) string {
	p := ix.procs[w.Proc]
	stopping := p.termed <= w.At+clockError || p.gone <= w.At+ix.settle()
	switch end := cl.end; {
	case w.verb == "release" && (stopping || end == nil || end.At > w.At):
		return "" // a hard stop leaves handlers behind, or has broken them off: see overlaps
	case end == nil || end.At > w.At:
		return "an outcome was sent of a handler that had not returned"
	case w.verb == "cancelled" && ix.wasCancelled(cl.id, w.At):
		return "" // whatever its handler says
	case w.verb != end.Verb:
		return "another outcome was sent than the handler had returned"
	case w.ref.Delay != end.Delay:
		return "another delay was sent than the handler had asked for"
	}
	return ""
}

// wasCancelled says that an operator may have cancelled the job by then.
func (ix *index) wasCancelled(id, at int64) bool {
	for _, v := range ix.verbs[id] {
		if v.verb == "cancel" && v.At <= at {
			return true
		}
	}
	return false
}
