package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

const (
	ms  = int64(time.Millisecond)
	sec = int64(time.Second)
	// offset is the database's time minus the history's in all that is made up.
	offset = int64(1_700_000_000) * sec
)

// play makes up the record of a run.
type play struct {
	events []history.Event
	lines  []witness.Line
	n      int64 // of calls
	fence  int64
}

func (p *play) event(at int64, proc string, e history.Event) {
	e.At, e.Proc = at, proc
	p.events = append(p.events, e)
}

// call writes a call and its return.
func (p *play) call(at, back int64, proc string, phase history.Phase, e history.Event) {
	p.n++
	e.N, e.Phase = p.n, history.Call
	p.event(at, proc, e)
	e.Phase = phase
	p.event(back, proc, e)
}

func (p *play) fault(from, to int64, name string) {
	p.call(from, to, "harness", history.OK, history.Event{Op: history.Fault, Ref: history.Ref{Verb: name}})
}

func at(ns int64) time.Time { return time.Unix(0, ns+offset) }

func (p *play) line(ns int64, op string, id int64, kind string, before, after witness.State) {
	p.lines = append(p.lines, witness.Line{
		At: at(ns), Place: "jobs", Op: op, ID: id, Token: token(id), Kind: kind, Before: before, After: after,
	})
}

func token(id int64) string { return fmt.Sprintf("t%d", id) }

// enqueue makes a job that is due at once, or at due.
func (p *play) enqueue(ns, id int64, kind string, due int64) witness.State {
	p.call(ns, ns+2*ms, "producer-1.1", history.OK, history.Event{Op: history.Enqueue, Refs: []history.Ref{{Token: token(id)}}})
	ready := witness.State{Status: "ready", RunAt: at(max(ns, due))}
	p.line(ns+ms, "INSERT", id, kind, witness.State{}, ready)
	return ready
}

// claim takes a job and starts its handler a millisecond later.
func (p *play) claim(ns, id int64, kind, worker string, ready witness.State) witness.State {
	p.fence++
	running := witness.State{Status: "running", Fence: 1_000_000 + p.fence, Attempts: 1, Worker: worker}
	p.line(ns, "UPDATE", id, kind, ready, running)
	p.event(ns+ms, worker, history.Event{Op: history.Start, Ref: history.Ref{Job: id, Fence: running.Fence, Kind: kind, Token: token(id)}})
	return running
}

// finish ends a handler and stores that the job is done a millisecond later.
func (p *play) finish(ns, id int64, kind, worker string, running witness.State) {
	ref := history.Ref{Job: id, Fence: running.Fence, Verb: "done"}
	p.event(ns, worker, history.Event{Op: history.End, Ref: ref})
	ref.Result = "stored"
	p.call(ns, ns+2*ms, worker, history.OK, history.Event{Op: history.Finish, Refs: []history.Ref{ref}})
	p.line(ns+ms, "DELETE", id, kind, running, witness.State{})
	p.lines = append(p.lines, witness.Line{At: at(ns + ms), Place: "finished", Op: "INSERT", ID: id, After: witness.State{Status: "done", Fence: running.Fence}})
}

// leave has a job leave the queue, in one transaction: as done, dead or
// cancelled, or without a trace.
func (p *play) leave(ns, id int64, kind string, running witness.State, status string) {
	p.n++
	gone := witness.Line{At: at(ns), XID: p.n, Place: "jobs", Op: "DELETE", ID: id, Token: token(id), Kind: kind, Before: running}
	p.lines = append(p.lines, gone)
	if status != "" {
		ended := gone
		ended.Place, ended.Op, ended.Before = "finished", "INSERT", witness.State{}
		ended.After = witness.State{Status: status, Fence: running.Fence, Attempts: running.Attempts}
		p.lines = append(p.lines, ended)
	}
}

// load is a queue that is asked for so many jobs a second and can do no more
// than capacity. Nothing is claimed in the times in which it is down.
type load struct {
	from, to       int64
	rate, capacity int64
	down           []span
	// closed are times in which producers have no answer either.
	closed []span
}

// run makes up the load: short jobs, and each tenth a long one of 3 s.
func (p *play) run(l load) {
	free := l.from
	for i := int64(0); ; i++ {
		ns := l.from + i*sec/l.rate
		if ns >= l.to {
			return
		}
		id := i + 1
		if spans(l.closed).has(ns) {
			p.call(ns, ns+sec, "producer-1.1", history.Failed, history.Event{Op: history.Enqueue, Refs: []history.Ref{{Token: token(id)}}})
			continue
		}
		kind, takes := script.Short, 5*ms
		if i%10 == 9 {
			kind, takes = script.Long, 3*sec
		}
		ready := p.enqueue(ns, id, kind, 0)
		claimed := max(ns+3*ms, free)
		for _, d := range l.down {
			if d.has(claimed) {
				claimed = d.to
			}
		}
		free = claimed + sec/l.capacity
		worker := fmt.Sprintf("worker-%d.1", 1+i%4)
		p.finish(claimed+ms+takes, id, kind, worker, p.claim(claimed, id, kind, worker, ready))
	}
}

// record is what has been made up, in order.
func (p *play) record() Record {
	slices.SortStableFunc(p.events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	slices.SortStableFunc(p.lines, func(a, b witness.Line) int { return a.At.Compare(b.At) })
	for i := range p.lines {
		p.lines[i].Seq = int64(i + 1)
	}
	return Record{
		Events: p.events, Lines: p.lines, Offset: offset,
		About: func(name string) string { return "This is what happens under " + name + "." },
	}
}

// enqueueLine is an enqueue of which only the witness tells.
func (p *play) enqueueLine(ns, id int64, kind string) witness.State {
	ready := witness.State{Status: "ready", RunAt: at(ns)}
	p.line(ns, "INSERT", id, kind, witness.State{}, ready)
	return ready
}
