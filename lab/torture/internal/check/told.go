package check

import (
	"slices"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// tellTime is how long a worker has to say that an outcome was refused, in ns.
const tellTime = 1e9

// told: a worker whose outcome was answered as lost or gone has said so through
// its observer: that it was refused, or before that an operator cancelled it.
func told(ix *index, f *finding) {
	type whose struct {
		proc string
		claimName
	}
	said := make(map[whose]bool)
	for i := range ix.Events {
		if e := &ix.Events[i]; e.Op == history.Refused || e.Op == history.Cancelled {
			said[whose{e.Proc, claimName{e.Job, e.Fence}}] = true
		}
	}
	for _, cl := range ix.claimList {
		for i, w := range cl.writes {
			if w.Op != history.Finish || w.result != refused || w.ret.Error != "" || unsure(cl.writes[:i], w.Proc) {
				continue // with an error all of them are sent again
			}
			// One that is about to end may not get so far.
			by := w.ret.At + int64(tellTime)
			if by > ix.last || !ix.procs[w.Proc].able(w.ret.At, by, 0) {
				continue
			}
			f.part("workers that were told", 1)
			if !said[whose{w.Proc, claimName{cl.id, cl.fence}}] {
				f.violated("an outcome came too late, and the worker was not told", ix.call(w.call, cl.id, cl.fence)...)
			}
		}
	}
}

// unsure says that one of the writes may have been an outcome of the process
// that was stored: then lost or gone need not mean that it came too late.
func unsure(earlier []*write, proc string) bool {
	return slices.ContainsFunc(earlier, func(w *write) bool {
		return w.Proc == proc && w.Op == history.Finish && w.result != busy
	})
}
