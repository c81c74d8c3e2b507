package check

import (
	"cmp"
	"slices"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// staleWrites: what is written under a fence that has moved changes nothing,
// and who writes it is told.
func staleWrites(ix *index, f *finding) {
	for _, cl := range ix.claimList {
		for _, w := range cl.writes {
			staleWrite(ix, f, cl, w)
		}
	}
	for _, j := range ix.jobs {
		for _, changes := range [][]*change{j.changes, j.lost} {
			explained(ix, f, j, changes)
		}
	}
	fencedWrites(ix, f)
	told(ix, f)
	for i := range ix.Events {
		if e := &ix.Events[i]; e.Op == history.Amiss {
			f.violated("a handler saw what must never be: "+e.Note, ix.event(e))
		}
	}
}

func staleWrite(ix *index, f *finding, cl *claim, w *write) {
	if w.verb == "effect" || cl.out == nil {
		return // what is not the queue's, or whose fence has not moved where it counts
	}
	// Whoever locks the row after it has moved finds it moved. Who only reads
	// may not see it before the commit.
	moved := cl.out.at
	if w.verb == "extend" || w.verb == "check" {
		moved = cl.out.by
	}
	if w.At-clockError <= moved {
		return
	}
	if w.result == "" || w.result == busy {
		f.part("not answered", 1)
		return
	}
	f.Checked++
	switch {
	case w.Op == history.Replay:
		f.part("by the zombie", 1)
	case ix.frozenOut(cl, w):
		f.part("by frozen processes", 1)
	default:
		f.part("by others", 1)
	}
	if w.result == accepted && !ix.said(cl, w) {
		f.violated("a write with an old fence was accepted", steps(ix.change(cl.out), ix.call(w.call, cl.id, cl.fence))...)
	}
}

// frozenOut says that the process has lost the claim by being frozen, and writes
// about it after it woke up: it had it before, and it was taken from it then or
// soon after. What an operator does is no doing of the freeze.
func (ix *index) frozenOut(cl *claim, w *write) bool {
	return cl.out.taken() && slices.ContainsFunc(ix.procs[w.Proc].pauses, func(p span) bool {
		return cl.given != nil && cl.given.at <= p.to &&
			p.meets(cl.out.at-ix.settle(), cl.out.at) && p.to <= add(w.At, clockError)
	})
}

// said says that the answer only repeats what is so: the claim was ended under
// its own fence, and there is a trace of it, or there is none of the job, and its
// holder takes it for completed.
func (ix *index) said(cl *claim, w *write) bool {
	switch {
	case w.verb == string(history.Progress):
		return false // which is never a repetition
	case cl.remembered(w):
		return true
	case cl.out.what != ended:
		return false
	}
	gone := cl.out.next
	traced := gone == nil || gone.at+clockError >= w.At
	return traced && (w.Op != history.Complete && w.verb != "complete" || cl.out.after.Status == "done")
}

// remembered says that the job had gone without a trace when the write was
// answered, and that the handler of its process had called CompleteTx. Then its
// client takes the job for completed by it, and cannot know better, whether the
// transaction was rolled back or not.
func (cl *claim) remembered(w *write) bool {
	return cl.job != nil &&
		slices.ContainsFunc(cl.writes, func(o *write) bool {
			return o.Op == history.Complete && o.Proc == w.Proc && o.result != refused
		}) &&
		slices.ContainsFunc(cl.job.changes, func(c *change) bool {
			return (c.what == removed || c.what == forgotten) && c.at <= add(w.until(), clockError)
		})
}

// explained: what was written under a fence was written by somebody who showed
// it. Without that, a write with an old fence may pass for another's.
func explained(ix *index, f *finding, j *job, changes []*change) {
	for _, c := range changes {
		cl := ix.claims[claimName{j.id, c.before.Fence}]
		switch c.what {
		case extended:
			if cl == nil || !slices.ContainsFunc(cl.writes, func(w *write) bool { return w.verb == "extend" && w.could(c.at) }) {
				f.violated("a lease was extended, and nobody who had the fence asked for it", ix.suspects(j, c)...)
			}
		case failed, snoozed, returned, ended:
			if cl.outcome(c) == nil {
				f.violated("an outcome was stored, and nobody who had the fence sent it", ix.suspects(j, c)...)
			}
		case released:
			if cl.outcome(c) == nil && ix.operated(j.id, c, "release") == nil {
				f.violated("a job was released, and nobody who had the fence or was an operator asked for it", ix.change(c))
			}
		default:
			continue
		}
		f.part("changes with their cause", 1)
	}
	// One outcome for each fence.
	for _, cl := range j.claims {
		if cl.out == nil || cl.out.what == ended || cl.out.what == removed || len(j.lost) > 0 {
			continue // ended under its own fence: to say so again is right
		}
		var stored []*write
		for _, w := range cl.writes {
			if w.result == accepted && w.outcome() {
				stored = append(stored, w)
			}
		}
		if len(stored) > 1 {
			f.violated("two outcomes under one fence were accepted", steps(ix.change(cl.out), ix.call(stored[0].call, cl.id, cl.fence), ix.call(stored[1].call, cl.id, cl.fence))...)
		}
	}
}

// suspects is the change, and who wrote about the job at that time under another
// fence.
func (ix *index) suspects(j *job, c *change) []Step {
	s := []Step{ix.change(c)}
	for _, cl := range j.claims {
		for _, w := range cl.writes {
			if cl.fence != c.before.Fence && w.could(c.at) && w.result != refused && (w.outcome() || w.verb == "extend") {
				s = append(s, ix.call(w.call, cl.id, cl.fence)...)
			}
		}
	}
	return s
}

// fencedWrites: of the writes to business rows that show a fence none is
// accepted after one with a larger fence.
func fencedWrites(ix *index, f *finding) {
	byToken := make(map[string][]*write)
	for _, cl := range ix.claimList {
		for _, w := range cl.writes {
			if w.verb != "effect" || w.result != accepted {
				continue
			}
			token := w.ref.Token
			if token == "" && cl.job != nil {
				token = cl.job.token
			}
			byToken[token] = append(byToken[token], w)
		}
	}
	for token, writes := range byToken {
		if slices.ContainsFunc(ix.byToken[token], func(j *job) bool { return len(j.lost) > 0 }) {
			continue // the row may have gone back, too
		}
		slices.SortStableFunc(writes, func(a, b *write) int { return cmp.Compare(a.At, b.At) })
		for i, w := range writes {
			f.part("writes to business rows", 1)
			for _, before := range writes[:i] {
				if before.ref.Fence > w.ref.Fence && before.ret.At < w.At && !ix.rewound(before.ret.At, w.At) {
					f.violated("a write to a business row with an old fence was accepted",
						steps(ix.call(before.call, before.ref.Job), ix.call(w.call, w.ref.Job))...)
					break
				}
			}
		}
	}
	for _, o := range ix.Orders {
		for _, w := range byToken[o.Token] {
			if w.ref.Fence > o.Fence && !ix.rewound(w.ret.At, never) {
				f.violated("a business row has an older fence than one that was written",
					steps(ix.call(w.call, w.ref.Job), ix.row("order %s has fence %d", o.Token, o.Fence))...)
				break
			}
		}
	}
}

// rewound says that in between a failover may have taken back what is no job's
// change: it lost something that was committed about the first time or before.
func (ix *index) rewound(from, to int64) bool {
	for _, l := range ix.Lost {
		if at := l.At.UnixNano() - ix.Offset; at >= from-2e9 && at <= to {
			return true
		}
	}
	return false
}
