package check

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// state is a job as the model knows it.
type state struct {
	phase         string // "": not there yet; ready, running, ended; gone: without a trace
	fence         int64
	attempts, max int
	status        string // of an ended one
}

// op is one operation on a job, and what it was answered.
type op struct {
	verb    string
	fence   int64 // of the claim; 0: an operator knows none
	attempt int   // of a claim
	max     int   // of an insert
	bin     bool  // a done job leaves no trace
	// maybe: nobody knows whether it happened. If it did not, that is the same as
	// if it came last of all.
	maybe  bool
	answer string // accepted, refused; for an operator done, left
	status string // of the job at the end

	steps func() []Step // what it is in the record
}

// apply is what the operation does to a job, if it can be done.
func (o *op) apply(s state) (state, bool) {
	holds := s.phase == "running" && s.fence == o.fence
	live := s.phase == "ready" || s.phase == "running"
	end := func(status string, by int64) (state, bool) {
		s.phase, s.status, s.fence = "ended", status, s.fence+by
		return s, true
	}
	back := func() (state, bool) {
		s.phase, s.fence = "ready", s.fence+1
		return s, true
	}
	switch o.verb {
	case "insert":
		return state{phase: "ready", max: o.max}, s.phase == ""
	case "claim":
		ok := s.phase == "ready" && o.fence > s.fence && (o.attempt == 0 || o.attempt == s.attempts+1)
		s.phase, s.fence, s.attempts = "running", o.fence, s.attempts+1
		return s, ok
	case "reap":
		if !holds {
			return s, false
		}
		if s.attempts >= s.max {
			return end("dead", 1)
		}
		return back()
	case "progress":
		return s, holds
	case "done", "complete", "dead", "cancelled":
		if !holds {
			return s, false
		}
		status := o.verb
		if status == "complete" {
			status = "done"
		}
		if status == "done" && o.bin {
			s.phase = "gone"
			return s, true
		}
		return end(status, 0)
	case "retry", "release":
		if !holds {
			return s, false
		}
		if s.attempts >= s.max {
			return end("dead", 0)
		}
		return back()
	case "snooze", "return":
		s.attempts--
		if !holds {
			return s, false
		}
		return back()
	case "operator cancel":
		if !live {
			return s, false
		}
		return end("cancelled", 1)
	case "operator release":
		if s.phase != "running" {
			return s, false
		}
		s.max = max(s.max, s.attempts+1)
		return back()
	case "operator retry":
		if s.phase != "ended" {
			return s, false
		}
		s.max, s.status = max(s.max, s.attempts+1), ""
		return back()
	case "operator delete":
		ok := live || s.phase == "ended"
		if live { // nobody has ended it under his fence
			s.fence = 0
		}
		s.phase = "gone"
		return s, ok
	}
	return s, false
}

// step is one operation with its answer.
func (o *op) step(s state) (bool, state) {
	after, done := o.apply(s)
	switch {
	case o.maybe && done:
		return true, after
	case o.maybe:
		return true, s
	}
	// Ended under this very fence: to say so again is right, and so is that
	// nobody has taken it.
	own := (s.phase == "ended" || s.phase == "gone") && s.fence == o.fence
	switch o.verb {
	case "final":
		switch s.phase {
		case "", "gone":
			return o.status == "", s
		case "ended":
			return o.status == s.status, s
		}
		return o.status == s.phase, s
	case "extend", "check":
		holds := s.phase == "running" && s.fence == o.fence || own && s.phase == "ended"
		return (o.answer == accepted) == holds || own && s.phase == "gone", s
	}
	switch o.answer {
	case "left", refused:
		if o.verb == "complete" && own && s.phase == "ended" {
			return s.status != "done", s
		}
		return !done && !(own && s.phase == "ended"), s
	case accepted:
		if own && o.verb != "progress" && o.verb != "claim" {
			return o.verb != "complete" || s.phase == "gone" || s.status == "done", s
		}
	}
	return done, after
}

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, input, _ any) (bool, any) {
		ok, after := input.(*op).step(s.(state))
		return ok, after
	},
}

// Undecided is the part of the finding that counts the jobs whose histories
// were too much to search in the time.
const Undecided = "not decided in time"

// linear: what each job's clients were told fits one order of all operations on
// it, each between its call and its return. Reaps, and claims whose answer was
// lost, are taken from the witness.
func linear(ix *index, f *finding) {
	var jobs []*job
	for _, j := range ix.jobs {
		if len(j.lost) > 0 || j.others {
			f.part("left out: a failover took part of their history", 1)
			continue
		}
		jobs = append(jobs, j)
	}
	deadline := time.Now().Add(ix.Limits.Patience)
	results := make([]porcupine.CheckResult, len(jobs))
	histories := make([][]porcupine.Operation, len(jobs))
	work := make(chan int)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := range work {
				histories[i] = ix.operations(jobs[i])
				results[i] = porcupine.Unknown
				if left := time.Until(deadline); left > 0 {
					results[i] = porcupine.CheckOperationsTimeout(model, histories[i], min(left, 2*time.Second))
				}
			}
		})
	}
	for i := range jobs {
		work <- i
	}
	close(work)
	group.Wait()
	for i, j := range jobs {
		switch results[i] {
		case porcupine.Ok:
			f.Checked++
			f.part("operations", len(histories[i]))
		case porcupine.Unknown:
			f.part(Undecided, 1)
		default:
			f.Checked++
			f.violated(fmt.Sprintf("no order of the operations on job %d explains what was answered", j.id), shortest(histories[i])...)
		}
	}
}

func (ix *index) operations(j *job) (all []porcupine.Operation) {
	put := func(from, to int64, o *op) {
		o.bin = j.queue == script.Bin
		all = append(all, porcupine.Operation{Input: o, Call: from, Return: max(from, to)})
	}
	// What only the witness tells happened between the change and the next one.
	seen := func(c *change, o *op) {
		to := int64(never - 3) // before the look at the tables
		if c.next != nil {
			to = c.next.at + clockError
		}
		o.steps = func() []Step { return []Step{ix.change(c)} }
		put(c.at-clockError, to, o)
	}
	for _, c := range j.changes {
		switch c.what {
		case inserted:
			seen(c, &op{verb: "insert", max: c.line.Max, answer: accepted})
		case reaped, buried:
			seen(c, &op{verb: "reap", fence: c.before.Fence, answer: accepted})
		case claimed:
			cl := ix.claims[claimName{j.id, c.after.Fence}]
			o := &op{verb: "claim", fence: c.after.Fence, attempt: c.after.Attempts, answer: accepted}
			if cl.taken == nil {
				seen(c, o)
			} else {
				o.steps = func() []Step { return ix.call(cl.taken, j.id, cl.fence) }
				put(cl.taken.At, cl.taken.ret.At, o)
			}
		}
	}
	for _, cl := range j.claims {
		for _, w := range cl.writes {
			o := &op{verb: w.verb, fence: cl.fence, answer: w.result}
			switch {
			case w.verb == "effect" || w.result == busy || w.phase() == history.Failed:
				continue
			case w.result != accepted && w.result != refused:
				if !w.outcome() {
					continue
				}
				o.maybe = true
			case w.outcome() && w.verb != "done" && w.verb != "complete" && cl.completes():
				// Of a job without a trace a client cannot tell whether it ended
				// with its handler's own transaction, which it then takes for true.
				o.maybe = true
			case (w.verb == "extend" || w.verb == "check") && w.result == accepted && cl.remembered(w):
				continue // nor whether it has lost its lease
			}
			o.steps = func() []Step { return ix.call(w.call, j.id, cl.fence) }
			put(w.At, w.until(), o)
		}
	}
	for _, w := range ix.verbs[j.id] {
		o := &op{verb: "operator " + w.verb, answer: w.result}
		switch {
		case w.result == busy || w.result == refused || w.phase() == history.Failed:
			continue
		case w.result == "":
			o.maybe = true
		}
		o.steps = func() []Step { return ix.call(w.call, j.id) }
		to := w.until()
		if w.result != "" && w.ret != nil {
			to = w.ret.At
		}
		put(w.At, to, o)
	}
	status := ""
	if j.final != nil {
		status = j.final.Status
	}
	put(never-2, never-1, &op{verb: "final", status: status, steps: func() []Step {
		return []Step{ix.row("job %d is %s", j.id, cmp.Or(status, "not there"))}
	}})
	return all
}

// completes says that the handler of the claim has tried to complete it in its
// own transaction.
func (cl *claim) completes() bool {
	return slices.ContainsFunc(cl.writes, func(w *write) bool { return w.verb == "complete" })
}

// shortest is the shortest beginning of the history that has no order, without
// what changes nothing and is not needed to show that. What had not returned by
// then may have happened or not.
func shortest(ops []porcupine.Operation) (all []Step) {
	illegal := func(part []porcupine.Operation) bool {
		return porcupine.CheckOperationsTimeout(model, part, 100*time.Millisecond) == porcupine.Illegal
	}
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	part := ops
	for i := range ops {
		if p := until(ops, ops[i].Return); illegal(p) {
			part = p
			break
		}
	}
	for i := len(part) - 1; i >= 0; i-- {
		if o := part[i].Input.(*op); o.changes() && (o.answer == accepted || o.answer == "done") && !o.maybe {
			continue
		}
		if less := slices.Delete(slices.Clone(part), i, i+1); illegal(less) {
			part = less
		}
	}
	const most = 8
	for _, o := range part[max(0, len(part)-most):] {
		all = append(all, o.Input.(*op).steps()...)
	}
	return all
}

// until is what was called by then.
func until(ops []porcupine.Operation, then int64) (part []porcupine.Operation) {
	for _, o := range ops {
		if o.Call > then {
			continue
		}
		if o.Return > then {
			pending := *o.Input.(*op)
			pending.maybe = true
			o.Input, o.Return = &pending, never
			if !pending.changes() {
				continue
			}
		}
		part = append(part, o)
	}
	return part
}

// changes says that the operation may change a job.
func (o *op) changes() bool {
	switch o.verb {
	case "extend", "check", "progress", "final":
		return false
	}
	return true
}
