package check

import (
	"cmp"
	"slices"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// clockError is by how much a time of the database may be wrong when it is told
// by the histories' clock, in ns.
const clockError = 5e6

// How long after a change its transaction has ended, if nothing in the record
// tells: usually, and when the server is in trouble.
const (
	usualCommit = 1e9
	slowCommit  = 10e9
)

// key is a job for good. An id alone may be given again after a failover.
type key struct{ id, created int64 }

// job is all that is known of one.
type job struct {
	key
	token, queue, kind string

	changes []*change // of the timeline that is left
	lost    []*change // of one that is not
	claims  []*claim  // by time
	final   *FinalJob
	others  bool // its id was given to another job too
}

// claim is one fence that was given to somebody, with all that was done in its
// name.
type claim struct {
	id, fence int64
	job       *job     // nil: the database knows nothing of it
	given     *change  // the same
	out       *change  // how it ended, in the timeline that is left; nil: it did not
	lostOut   *change  // the same, in one that is not
	again     *change  // it was given a second time
	holder    *process // nil: nobody has said that it had it
	taken     *call    // which said so
	more      []*call  // more who said so
	starts    []*history.Event
	end       *history.Event
	writes    []*write
}

// start is when its handler started, nil if it did not.
func (c *claim) start() *history.Event {
	if len(c.starts) == 0 {
		return nil
	}
	return c.starts[0]
}

// over is when the handler had ended: by itself or with its process.
func (c *claim) over(ix *index) int64 {
	if c.end != nil {
		return c.end.At
	}
	if p := ix.procs[c.start().Proc]; p != nil {
		return p.gone
	}
	return never
}

// enqueued is one try to enqueue a job.
type enqueued struct {
	*call
	ref history.Ref
}

type claimName struct{ id, fence int64 }

// index is the record of a run, joined by job, claim, process and call.
type index struct {
	Input
	began, last int64
	procs       map[string]*process
	workers     map[string]*process // by the id of their client
	crew        []*process          // those that work
	calls       []*call
	faults      []fault
	jobs        []*job // in the order in which they were first seen
	byID        map[int64][]*job
	byToken     map[string][]*job
	claims      map[claimName]*claim
	claimList   []*claim
	enqueues    map[string][]enqueued
	verbs       map[int64][]*write // of operators, by job
	pauses      map[string][]span  // of queues
}

func newIndex(in Input) *index {
	ix := &index{
		Input:    in,
		procs:    processes(in.Events),
		workers:  make(map[string]*process),
		calls:    calls(in.Events),
		byID:     make(map[int64][]*job),
		byToken:  make(map[string][]*job),
		claims:   make(map[claimName]*claim),
		enqueues: make(map[string][]enqueued),
		verbs:    make(map[int64][]*write),
		pauses:   make(map[string][]span),
	}
	if n := len(in.Events); n > 0 {
		ix.began, ix.last = cmp.Or(in.Begin, in.Events[0].At), in.Events[n-1].At
	}
	ix.faults = faults(ix.calls)
	for _, p := range ix.procs {
		for _, id := range p.workers {
			ix.workers[id] = p
		}
		if len(p.workers) > 0 {
			ix.crew = append(ix.crew, p)
		}
	}
	slices.SortFunc(ix.crew, func(a, b *process) int { return cmp.Or(cmp.Compare(a.born, b.born), cmp.Compare(a.name, b.name)) })
	ix.readWitness()
	ix.readHistory()
	ix.readFinal()
	for _, j := range ix.jobs {
		j.others = len(ix.byID[j.id]) > 1
		slices.SortFunc(j.claims, func(a, b *claim) int { return cmp.Compare(a.given.at, b.given.at) })
		chain(ix, j.changes)
		chain(ix, j.lost)
	}
	ix.measureLoads()
	return ix
}

func (ix *index) readWitness() {
	byKey := make(map[key]*job)
	jobOf := func(l witness.Line) *job {
		k := key{l.ID, l.CreatedAt.UnixMicro()}
		j := byKey[k]
		if j == nil {
			j = &job{key: k, token: l.Token, queue: l.Queue, kind: l.Kind}
			byKey[k] = j
			ix.jobs = append(ix.jobs, j)
			ix.byID[l.ID] = append(ix.byID[l.ID], j)
			if l.Token != "" {
				ix.byToken[l.Token] = append(ix.byToken[l.Token], j)
			}
		}
		return j
	}
	for _, l := range ix.Lines {
		j := jobOf(l)
		j.changes = join(j.changes, l)
	}
	for _, l := range ix.Lost {
		j := jobOf(l)
		j.lost = join(j.lost, l)
	}
	for _, j := range ix.jobs {
		for _, c := range j.changes {
			ix.place(j, c)
		}
		for _, c := range j.lost {
			c.lost = true
			ix.place(j, c)
		}
	}
}

// place gives the change its time, and the claim that it begins or ends.
func (ix *index) place(j *job, c *change) {
	c.at = c.line.At.UnixNano() - ix.Offset
	c.by = c.at + usualCommit
	if ix.troubled(rough, c.at-usualCommit, c.at+slowCommit) {
		c.by = c.at + slowCommit
	}
	if c.wayOut() {
		if cl := ix.claims[claimName{j.id, c.before.Fence}]; cl == nil {
		} else if c.lost {
			cl.lostOut = c
		} else if cl.out == nil {
			cl.out = c
		}
	}
	if c.what == claimed {
		cl := ix.claimOf(j.id, c.after.Fence)
		if cl.given != nil {
			cl.again = c
			return
		}
		cl.job, cl.given = j, c
		j.claims = append(j.claims, cl)
	}
}

func (ix *index) claimOf(id, fence int64) *claim {
	n := claimName{id, fence}
	cl := ix.claims[n]
	if cl == nil {
		cl = &claim{id: id, fence: fence}
		ix.claims[n] = cl
		ix.claimList = append(ix.claimList, cl)
	}
	return cl
}

// chain tells each change by when it was committed: the next one of the same
// job had to wait for it.
func chain(ix *index, changes []*change) {
	for i, c := range changes {
		if i+1 < len(changes) {
			c.next = changes[i+1]
			c.by = max(c.at, min(c.by, c.next.at))
		}
	}
}

func (ix *index) readHistory() {
	for _, c := range ix.calls {
		switch c.Op {
		case history.Enqueue:
			for _, ref := range c.Refs {
				ix.enqueues[ref.Token] = append(ix.enqueues[ref.Token], enqueued{c, ref})
				for _, j := range ix.byToken[ref.Token] {
					ix.committed(j, c)
				}
			}
		case history.Claim:
			p := ix.procs[c.Proc]
			p.claims = append(p.claims, c)
			if p.asks == nil {
				p.asks = make(map[string][]*call)
			}
			p.asks[c.Queue] = append(p.asks[c.Queue], c)
			if c.phase() != history.OK {
				continue
			}
			for _, ref := range c.ret.Refs {
				cl := ix.claimOf(ref.Job, ref.Fence)
				if cl.taken != nil {
					cl.more = append(cl.more, c)
					continue
				}
				cl.taken, cl.holder = c, p
				if cl.given != nil {
					cl.given.by = min(cl.given.by, max(c.ret.At, cl.given.at))
				}
			}
		case history.Operate:
			ix.readVerbs(c)
		default:
			for _, w := range c.writes() {
				cl := ix.claimOf(w.ref.Job, w.ref.Fence)
				cl.writes = append(cl.writes, w)
				if w.result == accepted && w.outcome() {
					for _, out := range []*change{cl.out, cl.lostOut} {
						if out != nil && c.could(out.at) {
							out.by = min(out.by, max(c.ret.At, out.at))
						}
					}
				}
			}
		}
	}
	for i := range ix.Events {
		e := &ix.Events[i]
		switch e.Op {
		case history.Start:
			cl := ix.claimOf(e.Job, e.Fence)
			cl.starts = append(cl.starts, e)
		case history.End:
			if cl := ix.claimOf(e.Job, e.Fence); cl.end == nil {
				cl.end = e
			}
		}
	}
}

// committed notes by when the job was there, if that was by this call.
func (ix *index) committed(j *job, c *call) {
	for _, changes := range [][]*change{j.changes, j.lost} {
		if len(changes) > 0 && changes[0].what == inserted && c.could(changes[0].at) {
			changes[0].by = max(changes[0].at, c.until())
		}
	}
}

// readVerbs reads what an operator did, to jobs or to a queue.
func (ix *index) readVerbs(c *call) {
	switch c.Verb {
	case "pause":
		ix.pauses[c.Queue] = append(ix.pauses[c.Queue], span{c.At, never})
	case "resume":
		if p := ix.pauses[c.Queue]; len(p) > 0 && c.phase() == history.OK {
			p[len(p)-1].to = c.ret.At
		}
	}
	for i, ref := range c.Refs {
		w := &write{call: c, ref: ref, verb: cmp.Or(ref.Verb, c.Verb)}
		if c.ret != nil { // next to an error, too, there may be answers
			w.result = answered(c.ret.Refs, i, ref.Job)
		}
		ix.verbs[ref.Job] = append(ix.verbs[ref.Job], w)
	}
}

func (ix *index) readFinal() {
	for i := range ix.Final {
		f := &ix.Final[i]
		for _, j := range ix.byID[f.ID] {
			if j.created == f.CreatedAt.UnixMicro() {
				j.final = f
			}
		}
	}
}

func answered(answers []history.Ref, i int, id int64) string {
	if i < len(answers) && answers[i].Job == id {
		return answers[i].Result
	}
	for _, a := range answers {
		if a.Job == id {
			return a.Result
		}
	}
	return ""
}

// operated returns the operator's call that may have made the change; nil: none.
func (ix *index) operated(id int64, c *change, verbs ...string) *write {
	for _, w := range ix.verbs[id] {
		if slices.Contains(verbs, w.verb) && (w.result == "" || w.result == "done") && w.could(c.at) {
			return w
		}
	}
	return nil
}

// outcome returns the write in the claim's own name that may have made the
// change; nil: none.
func (cl *claim) outcome(c *change) *write {
	if cl == nil {
		return nil
	}
	for _, w := range cl.writes {
		if w.outcome() && w.result != refused && w.result != busy && w.could(c.at) {
			return w
		}
	}
	return nil
}
