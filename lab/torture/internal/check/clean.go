package check

import (
	"strings"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// cleanStops: a process that was told to stop, and said that it could, has left
// no handler, connection, lease or open transaction.
func cleanStops(ix *index, f *finding) {
	for i := range ix.Events {
		e := &ix.Events[i]
		if e.Op != history.Clean {
			continue
		}
		if e.Error != "" {
			if ix.mayFail(ix.procs[e.Target], e.Error) {
				f.part("stops that were not clean, and said so", 1)
				continue
			}
			f.Checked++
			f.violated("a process ended with an error when it was told to stop", ix.stop(e)...)
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

// mayFail says that there was a reason for the process to end with that error
// though it had been told to stop: a fault or a job killed it, it had not begun,
// or it has left something behind that it could not but leave: a handler that
// went on, or an outcome for a server that was not there.
func (ix *index) mayFail(p *process, how string) bool {
	switch {
	case p == nil || p.killed || len(p.workers) == 0:
		return true
	case how == "exit status 3":
		return ix.leaves(p, func(s *history.Event) bool { return s.Kind == script.Exit || s.Kind == script.Killer })
	case p.bye == nil || !strings.Contains(p.bye.Error, "left behind"):
		return false
	}
	return ix.leaves(p, func(*history.Event) bool { return true }) ||
		meets(p.cuts, p.termed, p.gone) || ix.met(p.termed, p.gone, fault.cutsOff)
}

// leaves says that a handler of that kind had not ended when the process did, or
// only just.
func (ix *index) leaves(p *process, kind func(*history.Event) bool) bool {
	for _, cl := range ix.claimList {
		if s := cl.start(); s != nil && s.Proc == p.name && kind(s) && (cl.end == nil || cl.end.At > p.gone-ix.settle()) {
			return true
		}
	}
	return false
}

// stop is how a process ended that had been told to.
func (ix *index) stop(clean *history.Event) []Step {
	s := []Step{ix.event(clean)}
	if p := ix.procs[clean.Target]; p != nil && p.bye != nil {
		s = append(s, ix.event(p.bye))
	}
	return s
}
