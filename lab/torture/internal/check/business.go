package check

import "github.com/fencepost-go/fencepost/lab/torture/internal/history"

// business: a job and its business row come in one transaction, and so do a
// completion and its effect.
func business(ix *index, f *finding) {
	orders := make(map[string]*FinalOrder, len(ix.Orders))
	for i := range ix.Orders {
		o := &ix.Orders[i]
		orders[o.Token] = o
		f.Checked++
		there := false
		for _, j := range ix.byToken[o.Token] {
			there = there || len(j.changes) > 0
		}
		if !there {
			f.violated("a business row is there whose job never was", ix.row("order %s by %s", o.Token, o.Via))
		}
	}
	for _, j := range ix.jobs {
		if j.token == "" || len(j.changes) == 0 || j.changes[0].what != inserted {
			continue
		}
		f.Checked++
		switch o := orders[j.token]; {
		case o == nil:
			f.violated("a job is there without its business row", ix.change(j.changes[0]), ix.row("no order %s", j.token))
		case o.XID != j.changes[0].line.XID:
			f.violated("a job and its business row came in two transactions",
				ix.change(j.changes[0]), ix.row("order %s came in transaction %d, the job in %d", o.Token, o.XID, j.changes[0].line.XID))
		}
	}
	for i := range ix.Events {
		e := &ix.Events[i]
		if e.Op != history.Seen {
			continue
		}
		f.Checked++
		cl := ix.claims[claimName{e.Job, e.Fence}]
		if e.Result == "no row" && !(cl != nil && cl.job != nil && len(cl.job.changes) == 0) {
			f.violated("a handler did not see the business row of its job", ix.event(e, e.Job))
		}
	}
	effects(ix, f)
}

func effects(ix *index, f *finding) {
	there := make(map[claimName]int, len(ix.Effects))
	for _, e := range ix.Effects {
		f.Checked++
		n := claimName{e.Job, e.Fence}
		there[n]++
		cl := ix.claims[n]
		if cl == nil || cl.out == nil || !cl.out.completed() || cl.job.token != e.Token {
			s := []Step{ix.row("effect of %s, job %d, fence %d", e.Token, e.Job, e.Fence)}
			if cl != nil && cl.out != nil {
				s = append(s, ix.change(cl.out))
			}
			f.violated("an effect is there whose completion is not", s...)
		}
		if there[n] > 1 {
			f.violated("an effect is there twice", ix.row("effect of %s, job %d, fence %d", e.Token, e.Job, e.Fence))
		}
	}
	for _, cl := range ix.claimList {
		for _, w := range cl.writes {
			if w.Op != history.Complete || w.result != accepted {
				continue
			}
			f.Checked++
			// What has gone with a former primary has taken its effect with it.
			if there[claimName{cl.id, cl.fence}] == 0 && cl.lostOut == nil {
				f.violated("a completion was committed, and its effect is not there",
					steps(ix.call(w.call, cl.id, cl.fence), ix.row("no effect of job %d, fence %d", cl.id, cl.fence))...)
			}
		}
	}
}

// completed says that the job was done under its own fence.
func (c *change) completed() bool {
	return c.what == ended && c.after.Status == "done" || c.what == removed
}
