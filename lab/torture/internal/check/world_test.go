package check

import (
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// world is a queue in memory, and those who use it. It keeps the record that
// Check judges. It does everything right, unless a guard is taken away.
type world struct {
	now    int64 // ns, by the histories' clock
	events []history.Event
	lines  []witness.Line
	lost   []witness.Line
	seen   []Sample
	db     database
	n      int64
	without
}

// without says which guards are missing.
type without struct {
	finishFence, extendFence, completeFence bool
	progressFence                           bool
	claimCounts, clockFence                 bool
	silent                                  bool // workers are not told that they are refused
}

const offset = int64(1_800_000_000_000_000_000)

var testLimits = Limits{
	Lease: 6 * time.Second, Poll: 8 * time.Second,
	Wake:  2 * time.Second,
	Slots: map[string]int{script.Main: 4, script.Side: 2, script.Bin: 2},
}

func newWorld() *world {
	w := &world{now: 1e12, db: database{live: make(map[int64]row), ended: make(map[int64]row)}}
	w.event("harness", history.Event{Op: history.Hello, Ref: history.Ref{}})
	return w
}

func (w *world) input() Input {
	in := Input{
		Events: w.events, Lines: w.lines, Lost: w.lost,
		Orders: w.db.orders, Effects: w.db.effects, Samples: w.seen, Offset: offset, Limits: testLimits,
	}
	for _, rows := range []map[int64]row{w.db.live, w.db.ended} {
		for _, r := range rows {
			in.Final = append(in.Final, FinalJob{
				ID: r.id, Token: r.token, Kind: r.kind, Queue: r.queue, Status: r.Status, Fence: r.Fence,
				Attempts: r.Attempts, Max: r.max, CreatedAt: r.created,
			})
		}
	}
	slices.SortFunc(in.Final, func(a, b FinalJob) int { return int(a.ID - b.ID) })
	return in
}

func (w *world) wait(d time.Duration) { w.now += d.Nanoseconds() }

func (w *world) dbNow() time.Time { return time.Unix(0, w.now+offset).Truncate(time.Microsecond) }

func (w *world) event(proc string, e history.Event) {
	w.now += 10_000
	e.At, e.Proc = w.now, proc
	w.events = append(w.events, e)
}

// call writes a call, does it, and writes what it returned.
func (w *world) call(proc string, e history.Event, do func() (history.Phase, history.Event)) {
	w.n++
	e.N, e.Phase = w.n, history.Call
	n := w.n
	w.event(proc, e)
	w.wait(time.Millisecond)
	phase, ret := do()
	if phase == "" {
		return // it never returned
	}
	w.wait(time.Millisecond)
	ret.Op, ret.N, ret.Phase = e.Op, n, phase
	w.event(proc, ret)
}

func (w *world) process(name string, role script.Role) {
	w.event(name, history.Event{Op: history.Hello, Note: string(role)})
}

// cut begins a fault of a network.
func (w *world) cut(target, how string) {
	w.event("harness", history.Event{Op: history.Cut, Target: target, Note: how})
}

func (w *world) harness(op history.Op, target string) {
	w.event("harness", history.Event{Op: op, Target: target})
}

// fault begins one and returns how to end it.
func (w *world) fault(name string) (end func()) {
	w.n++
	e := history.Event{Op: history.Fault, N: w.n, Phase: history.Call, Ref: history.Ref{Verb: name}}
	w.event("harness", e)
	return func() {
		e.Phase = history.OK
		w.event("harness", e)
	}
}

// enqueue is a producer's transaction of one job: acknowledged.
func (w *world) enqueue(token string) int64 {
	return w.enqueueAs(token, script.Main, 0, history.OK, true)
}

func (w *world) enqueueAs(token, queue string, delay time.Duration, phase history.Phase, commits bool) (id int64) {
	ref := history.Ref{Token: token, Delay: int64(delay)}
	e := history.Event{Op: history.Enqueue, Refs: []history.Ref{ref}}
	w.call("producer-1.1", e, func() (history.Phase, history.Event) {
		w.begin()
		if commits {
			id = w.insert(token, script.Short, queue, delay, 3)
		}
		return phase, e
	})
	return id
}

// enqueueRef is a transaction of one job that is asked for as ref says, and
// stored otherwise.
func (w *world) enqueueRef(ref history.Ref, queue string, delay time.Duration) (id int64) {
	ref.Delay = int64(delay)
	e := history.Event{Op: history.Enqueue, Refs: []history.Ref{ref}}
	w.call("producer-1.1", e, func() (history.Phase, history.Event) {
		w.begin()
		id = w.insert(ref.Token, script.Short, queue, delay, 3)
		return history.OK, e
	})
	return id
}

// claim has a worker claim one job and start its handler; it returns the fence.
func (w *world) claim(proc string, id int64) (fence int64) {
	fence = w.claimOnly(proc, id)
	w.start(proc, id, fence)
	return fence
}

func (w *world) claimOnly(proc string, id int64) (fence int64) {
	e := history.Event{Op: history.Claim, Worker: "w:" + proc, Asked: 1}
	e.Queue = w.db.live[id].queue
	w.call(proc, e, func() (history.Phase, history.Event) {
		w.begin()
		fence = w.take("w:"+proc, id)
		ret := e
		ret.Refs = []history.Ref{{Job: id, Fence: fence, Attempt: w.db.live[id].Attempts}}
		return history.OK, ret
	})
	return fence
}

func (w *world) start(proc string, id, fence int64) {
	r := w.db.live[id]
	w.event(proc, history.Event{Op: history.Start, Max: r.max, Ref: history.Ref{
		Job: id, Fence: fence, Attempt: r.Attempts, Token: r.token, Queue: r.queue, Kind: r.kind,
	}})
	seen := "no row"
	if slices.ContainsFunc(w.db.orders, func(o FinalOrder) bool { return o.Token == r.token }) {
		seen = "row"
	}
	w.event(proc, history.Event{Op: history.Seen, Ref: history.Ref{Job: id, Fence: fence, Result: seen}})
}

func (w *world) stop(proc string, id, fence int64, verb string) {
	w.stopFor(proc, id, fence, verb, 0)
}

// stopFor ends a handler that asks for a delay.
func (w *world) stopFor(proc string, id, fence int64, verb string, delay time.Duration) {
	w.event(proc, history.Event{Op: history.End, Ref: history.Ref{Job: id, Fence: fence, Verb: verb, Delay: int64(delay)}})
}

// done ends a handler and stores its outcome.
func (w *world) done(proc string, id, fence int64) { w.outcome(proc, id, fence, "done", 0) }

func (w *world) outcome(proc string, id, fence int64, verb string, delay time.Duration) {
	w.stopFor(proc, id, fence, verb, delay)
	w.finish(proc, id, fence, verb, delay)
}

func (w *world) finish(proc string, id, fence int64, verb string, delay time.Duration) {
	w.finishAs(proc, id, fence, verb, delay, history.OK, true)
}

// finishAs is a call that returns as given and may or may not reach the server.
func (w *world) finishAs(proc string, id, fence int64, verb string, delay time.Duration, phase history.Phase, reaches bool) {
	answer := history.Ref{Job: id, Fence: fence, Verb: verb, Delay: int64(delay)}
	w.call(proc, history.Event{Op: history.Finish, Refs: []history.Ref{answer}}, func() (history.Phase, history.Event) {
		if reaches {
			answer.Result = w.store(id, fence, verb, delay)
		}
		if phase != history.OK {
			answer.Result = ""
		}
		return phase, history.Event{Refs: []history.Ref{answer}}
	})
	if verdict(answer.Result) == refused && !w.silent {
		w.event(proc, history.Event{Op: history.Refused, Ref: history.Ref{Job: id, Fence: fence}})
	}
}

// saidStored is an outcome that is acknowledged and changes nothing.
func (w *world) saidStored(proc string, id, fence int64, verb string) {
	ref := history.Ref{Job: id, Fence: fence, Verb: verb}
	w.call(proc, history.Event{Op: history.Finish, Refs: []history.Ref{ref}}, func() (history.Phase, history.Event) {
		ref.Result = "stored"
		return history.OK, history.Event{Refs: []history.Ref{ref}}
	})
}

// saidExtended is an extension that is acknowledged and changes nothing.
func (w *world) saidExtended(proc string, id, fence int64) {
	ref := history.Ref{Job: id, Fence: fence}
	w.call(proc, history.Event{Op: history.Extend, Refs: []history.Ref{ref}}, func() (history.Phase, history.Event) {
		ref.Result = "extended"
		return history.OK, history.Event{Refs: []history.Ref{ref}}
	})
}

func (w *world) extend(proc string, id, fence int64) {
	w.extendOf(proc, history.Event{Op: history.Extend, Refs: []history.Ref{{Job: id, Fence: fence}}}, id, fence)
}

func (w *world) extendOf(proc string, e history.Event, id, fence int64) {
	w.call(proc, e, func() (history.Phase, history.Event) {
		w.begin()
		r, live := w.db.live[id]
		ended, known := w.db.ended[id]
		switch {
		case live && r.Status == "running" && (r.Fence == fence || w.extendFence):
			w.update(id, func(r *row) { r.Lease = w.dbNow().Add(testLimits.Lease) })
			return history.OK, history.Event{}
		case known && ended.Fence == fence:
			return history.OK, history.Event{}
		}
		return history.OK, history.Event{Refs: []history.Ref{{Job: id, Fence: fence, Result: "taken"}}}
	})
}

// complete is a handler's own transaction, with its effect.
func (w *world) complete(proc string, id, fence int64) {
	e := history.Event{Op: history.Complete, Ref: history.Ref{Job: id, Fence: fence}}
	w.call(proc, e, func() (history.Phase, history.Event) {
		w.begin()
		r, live := w.db.live[id]
		if live && r.Status == "running" && (r.Fence == fence || w.completeFence) {
			w.end(id, "done", 0, "")
			w.db.effects = append(w.db.effects, FinalEffect{r.token, id, fence})
			return history.OK, e
		}
		if ended, known := w.db.ended[id]; known && ended.Fence == fence && ended.Status == "done" {
			return history.OK, e // once more, and no effect: its own key sees to that
		}
		return history.Refusal, e
	})
}

// progress has a handler store its progress.
func (w *world) progress(proc string, id, fence int64, phase history.Phase) {
	e := history.Event{Op: history.Progress, Ref: history.Ref{Job: id, Fence: fence}}
	w.call(proc, e, func() (history.Phase, history.Event) {
		w.begin()
		if r, live := w.db.live[id]; !live || r.Fence != fence && !w.progressFence {
			return history.Refusal, e
		}
		w.update(id, func(*row) {})
		return phase, e
	})
}

// found is the progress that a handler has found as it started.
func (w *world) found(proc string, id, fence int64, what string) {
	w.event(proc, history.Event{Op: history.Progress, Ref: history.Ref{Job: id, Fence: fence, Result: what}})
}

// replay has the zombie write.
func (w *world) replay(id, fence int64, verb string) {
	e := history.Event{Op: history.Replay, Ref: history.Ref{Job: id, Fence: fence, Verb: verb}}
	w.call("zombie-1.1", e, func() (history.Phase, history.Event) {
		e.Result = w.store(id, fence, verb, 0)
		return history.OK, e
	})
}

// operate has the operator do something to one job.
func (w *world) operate(verb string, id int64) {
	e := history.Event{Op: history.Operate, Ref: history.Ref{Verb: verb}, Refs: []history.Ref{{Job: id}}}
	w.call("operator-1.1", e, func() (history.Phase, history.Event) {
		w.begin()
		e.Refs = []history.Ref{{Job: id, Result: w.operated(verb, id)}}
		return history.OK, e
	})
}

// crew starts two workers, and lets them settle.
func (w *world) crew() {
	for _, name := range []string{"worker-1.1", "worker-2.1"} {
		w.process(name, script.Worker)
		w.idle(name)
	}
	w.wait(5 * time.Second)
}

// idle is a claim that brings nothing.
func (w *world) idle(proc string) {
	e := history.Event{Op: history.Claim, Worker: "w:" + proc, Asked: 4, Ref: history.Ref{Queue: script.Main}}
	w.call(proc, e, func() (history.Phase, history.Event) { return history.OK, e })
}

func (w *world) kill(proc string) {
	w.harness(history.Kill, proc)
	w.wait(20 * time.Millisecond)
	w.event("harness", history.Event{Op: history.Exit, Target: proc, Error: "signal: killed"})
}
