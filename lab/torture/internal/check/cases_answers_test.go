package check

import (
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// answerCases are about what was answered.
var answerCases = []acase{
	// 15
	{"15: a failover takes a completion with it", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		saved, lines := w.save()
		w.done(w1, id, fence)
		over := w.fault("failover")
		w.failover(saved, lines)
		w.wait(testLimits.Lease)
		over()
		w.reap(id)
		w.wait(100 * time.Millisecond)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"15: a failover takes a job whose completion nobody knows of", nil, func(w *world) { gone(w, true) }},
	{"15: a failover takes a job, and its failure is stored", []int{15}, func(w *world) { gone(w, false) }},
	{"15: a completion is acknowledged before it is stored", []int{15, 16}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.stop(w1, id, fence, "done")
		ref := history.Ref{Job: id, Fence: fence, Verb: "done", Result: "stored"}
		w.call(w1, history.Event{Op: history.Finish, Refs: []history.Ref{ref}}, func() (history.Phase, history.Event) {
			return history.OK, history.Event{Refs: []history.Ref{ref}}
		})
		w.kill(w1)
		w.wait(4 * time.Second)
		w.reap(id)
		w.wait(100 * time.Millisecond)
		w.done(w2, id, w.claim(w2, id))
	}},

	// 16
	{"16: a failure of a job that is gone is taken for the completion that its handler rolled back", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.call(w1, history.Event{Op: history.Complete, Ref: history.Ref{Job: id, Fence: fence}},
			func() (history.Phase, history.Event) { return history.Failed, history.Event{} })
		w.operate("delete", id)
		w.stop(w1, id, fence, "retry")
		w.saidStored(w1, id, fence, "retry")
	}},
	{"16: a job that its handler has completed is deleted, and done is said again", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.complete(w1, id, fence)
		w.operate("delete", id)
		w.wait(time.Second)
		w.stop(w1, id, fence, "done")
		w.saidStored(w1, id, fence, "done")
	}},
	{"5: who has rolled back a completion says again that it failed, and another has done the job, which left no trace", nil, func(w *world) {
		id := w.enqueueAs("a", script.Bin, 0, history.OK, true)
		fence := w.claim(w1, id)
		w.call(w1, history.Event{Op: history.Complete, Ref: history.Ref{Job: id, Fence: fence}},
			func() (history.Phase, history.Event) { return history.Failed, history.Event{} })
		w.stopFor(w1, id, fence, "retry", 0)
		w.finishAs(w1, id, fence, "retry", 0, history.Unknown, true)
		next := w.claim(w2, id)
		w.complete(w2, id, next)
		w.stop(w2, id, next, "done")
		w.saidStored(w2, id, next, "done")
		w.wait(time.Second)
		w.saidExtended(w1, id, fence)
		w.saidStored(w1, id, fence, "retry")
	}},
	{"5: who has completed nothing says again that it failed, and is told that it was stored", []int{5, 16}, func(w *world) {
		id := w.enqueueAs("a", script.Bin, 0, history.OK, true)
		fence := w.claim(w1, id)
		w.stopFor(w1, id, fence, "retry", 0)
		w.finishAs(w1, id, fence, "retry", 0, history.Unknown, true)
		w.done(w2, id, w.claim(w2, id))
		w.wait(time.Second)
		w.saidExtended(w1, id, fence)
		w.saidStored(w1, id, fence, "retry")
	}},
	{"16: a job is deleted before it is done, and done is said to be stored", []int{16}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.operate("delete", id)
		w.stop(w1, id, fence, "done")
		w.saidStored(w1, id, fence, "done")
	}},
	{"16: a failure of a job that is gone is stored", []int{16}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.operate("delete", id)
		w.stop(w1, id, fence, "retry")
		w.saidStored(w1, id, fence, "retry")
	}},
	{"16: a reap and a late outcome meet", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.harness(history.Cut, w1)
		w.stop(w1, id, fence, "done")
		w.wait(testLimits.Lease)
		ref := history.Ref{Job: id, Fence: fence, Verb: "done"}
		w.call(w1, history.Event{Op: history.Finish, Refs: []history.Ref{ref}}, func() (history.Phase, history.Event) {
			w.reap(id)
			ref.Result = w.store(id, fence, "done", 0)
			return history.OK, history.Event{Refs: []history.Ref{ref}}
		})
		w.harness(history.Mend, w1)
		w.wait(100 * time.Millisecond)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"16: an outcome is refused though the claim is valid", []int{16}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.stop(w1, id, fence, "done")
		ref := history.Ref{Job: id, Fence: fence, Verb: "done", Result: "lost"}
		w.call(w1, history.Event{Op: history.Finish, Refs: []history.Ref{ref}}, func() (history.Phase, history.Event) {
			return history.OK, history.Event{Refs: []history.Ref{ref}}
		})
		w.finish(w1, id, fence, "done", 0)
	}},
	{"16: a retry was acknowledged, and the job is done", []int{16}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.stop(w1, id, fence, "retry")
		ref := history.Ref{Job: id, Fence: fence, Verb: "retry"}
		w.call(w1, history.Event{Op: history.Finish, Refs: []history.Ref{ref}}, func() (history.Phase, history.Event) {
			ref.Result = w.store(id, fence, "done", 0)
			return history.OK, history.Event{Refs: []history.Ref{ref}}
		})
	}},
	// 17
	{"17: a job that runs is in the row of its claim", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.seen = append(w.seen, Sample{At: w.dbNow(), Running: 1})
		w.done(w1, id, fence)
		w.seen = append(w.seen, Sample{At: w.dbNow()})
	}},
	{"17: nothing says that a job runs", []int{17}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.seen = append(w.seen, Sample{At: w.dbNow(), Running: 1, Unnamed: []Unnamed{{id, fence, w1, w.dbNow().Add(time.Second)}}})
		w.done(w1, id, fence)
	}},
}

// gone: a failover takes a job from its handler, which may have completed it
// just then; and its failure is acknowledged.
func gone(w *world, completes bool) {
	saved, lines := w.save()
	id := w.enqueue("a")
	fence := w.claim(w1, id)
	over := w.fault("failover")
	if completes {
		w.call(w1, history.Event{Op: history.Complete, Ref: history.Ref{Job: id, Fence: fence}},
			func() (history.Phase, history.Event) { return history.Unknown, history.Event{} })
	}
	w.failover(saved, lines)
	over()
	w.stop(w1, id, fence, "retry")
	ref := history.Ref{Job: id, Fence: fence, Verb: "retry", Result: "stored"}
	w.call(w1, history.Event{Op: history.Finish, Refs: []history.Ref{ref}}, func() (history.Phase, history.Event) {
		return history.OK, history.Event{Refs: []history.Ref{ref}}
	})
}
