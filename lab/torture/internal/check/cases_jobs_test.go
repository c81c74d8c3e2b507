package check

import (
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// jobCases are about which jobs there are.
var jobCases = []acase{
	{"a job is done", nil, func(w *world) {
		id := w.enqueue("a")
		w.done(w1, id, w.claim(w1, id))
	}},
	{"a job fails, and is done the second time", nil, func(w *world) {
		id := w.enqueue("a")
		w.outcome(w1, id, w.claim(w1, id), "retry", 200*time.Millisecond)
		w.wait(200 * time.Millisecond)
		w.done(w2, id, w.claim(w2, id))
	}},

	// 1
	{"1: an unknown enqueue did not happen", nil, func(w *world) { w.enqueueAs("a", script.Main, 0, history.Unknown, false) }},
	{"1: an unknown enqueue happened", nil, func(w *world) {
		id := w.enqueueAs("a", script.Main, 0, history.Unknown, true)
		w.done(w1, id, w.claim(w1, id))
	}},
	{"1: a producer is killed in a call", nil, func(w *world) {
		id := w.enqueueAs("a", script.Main, 0, "", true)
		w.done(w1, id, w.claim(w1, id))
	}},
	{"1: an operator deletes a job, and one that has ended", nil, func(w *world) {
		w.operate("delete", w.enqueueAs("a", script.Main, time.Minute, history.OK, true))
		id := w.enqueue("b")
		w.done(w1, id, w.claim(w1, id))
		w.operate("delete", id)
	}},
	{"1: a done job of a queue that keeps none", nil, func(w *world) {
		id := w.enqueueAs("a", script.Bin, 0, history.OK, true)
		w.done(w1, id, w.claim(w1, id))
	}},
	{"1: a failover takes an acknowledged job with it", nil, func(w *world) {
		saved, lines := w.save()
		w.enqueue("a")
		over := w.fault("failover")
		w.failover(saved, lines)
		over()
	}},
	{"1: an acknowledged job was never seen", []int{1, 13}, func(w *world) { w.enqueueAs("a", script.Main, 0, history.OK, false) }},
	{"1: an unknown enqueue happened twice", []int{1, 13}, func(w *world) {
		e := history.Event{Op: history.Enqueue, Refs: []history.Ref{{Token: "a"}}}
		w.call("producer-1.1", e, func() (history.Phase, history.Event) {
			w.begin()
			for range 2 {
				w.insert("a", script.Short, script.Main, time.Hour, 3)
				w.db.orders = w.db.orders[:1]
			}
			return history.Unknown, e
		})
	}},
	{"1: a job vanishes", []int{1, 16}, func(w *world) {
		id := w.enqueueAs("a", script.Main, time.Minute, history.OK, true)
		w.begin()
		r := w.db.live[id]
		delete(w.db.live, id)
		w.write("jobs", "DELETE", &r, nil)
	}},
	{"1: a job is not in the tables, and no line says why", []int{1, 13, 16}, func(w *world) {
		delete(w.db.live, w.enqueueAs("a", script.Main, time.Minute, history.OK, true))
	}},
	{"1: a batch is told its ids", nil, func(w *world) {
		batch(w, func(ids []int64) []int64 { return ids })
	}},
	{"1: a batch by a way that tells no ids", nil, func(w *world) {
		batch(w, func(ids []int64) []int64 { return make([]int64, len(ids)) })
	}},
	{"1: a job is stored as it was asked for", nil, func(w *world) {
		w.enqueueRef(history.Ref{Token: "a", Kind: script.Short, Queue: script.Side, Most: 3, Payload: 7}, script.Side, time.Minute)
	}},
	{"1: a job is stored in another queue", []int{1}, func(w *world) {
		w.enqueueRef(history.Ref{Token: "a", Queue: script.Main}, script.Side, time.Minute)
	}},
	{"1: a job is stored as one of another kind", []int{1}, func(w *world) {
		w.enqueueRef(history.Ref{Token: "a", Kind: script.Long}, script.Main, time.Minute)
	}},
	{"1: a job is stored with more attempts", []int{1}, func(w *world) {
		w.enqueueRef(history.Ref{Token: "a", Most: 2}, script.Main, time.Minute)
	}},
	{"1: a handler gets another payload", []int{1}, func(w *world) {
		id := w.enqueueRef(history.Ref{Token: "a", Payload: 7}, script.Main, 0)
		fence := w.claimOnly(w1, id)
		w.event(w1, history.Event{Op: history.Start, Ref: history.Ref{Job: id, Fence: fence, Attempt: 1, Token: "a", Queue: script.Main, Payload: 8}})
		w.done(w1, id, fence)
	}},
	{"1: a failure is stored as done", []int{1}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.stop(w1, id, fence, "retry")
		w.finish(w1, id, fence, "done", 0)
	}},
	{"1: another delay is sent than a handler has asked for", []int{1}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.stopFor(w1, id, fence, "snooze", time.Second)
		w.finish(w1, id, fence, "snooze", 2*time.Second)
	}},
	{"1: an outcome is sent before its handler has returned", []int{1}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.finish(w1, id, fence, "done", 0)
		w.stop(w1, id, fence, "done")
	}},
	{"1: a handler whose job was cancelled says something else", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.operate("cancel", id)
		w.stop(w1, id, fence, "retry")
		w.finish(w1, id, fence, "cancelled", 0)
	}},
	{"1: a worker that stops breaks a handler off, and releases its job", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.harness(history.Term, w1)
		w.stopFor(w1, id, fence, "retry", time.Second)
		w.finish(w1, id, fence, "release", 0)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"1: ids are swapped inside a batch", []int{1}, func(w *world) {
		batch(w, func(ids []int64) []int64 { return []int64{ids[1], ids[0]} })
	}},
	{"1: a done job leaves no trace in a queue that keeps all", []int{1, 16}, func(w *world) {
		id := w.enqueue("a")
		w.done(w1, id, w.claim(w1, id))
		w.lines = w.lines[:len(w.lines)-1]
		delete(w.db.ended, id)
	}},
	{"1: progress is found again, also when an operator has brought the job back", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.found(w1, id, fence, "")
		w.progress(w1, id, fence, history.OK)
		w.outcome(w1, id, fence, "dead", 0)
		w.operate("retry", id)
		fence = w.claim(w2, id)
		w.found(w2, id, fence, "something")
		w.done(w2, id, fence)
	}},
	{"1: progress of which nobody knows is not there", nil, func(w *world) { forgets(w, history.Unknown) }},
	{"1: progress that was acknowledged is not there", []int{1}, func(w *world) { forgets(w, history.OK) }},
	{"1: a failover takes progress with it", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		saved, lines := w.save()
		w.progress(w1, id, fence, history.OK)
		over := w.fault("failover")
		w.failover(saved, lines)
		over()
		w.outcome(w1, id, fence, "retry", 0)
		fence = w.claim(w2, id)
		w.found(w2, id, fence, "")
		w.done(w2, id, fence)
	}},

	// 2
	{"2: a transaction rolls back", nil, func(w *world) { w.enqueueAs("a", script.Main, 0, history.Failed, false) }},
	{"2: a job whose transaction rolled back runs", []int{2, 13}, func(w *world) {
		id := w.enqueueAs("a", script.Main, 0, history.Failed, true)
		w.done(w1, id, w.claim(w1, id))
	}},
	{"2: a handler runs under a claim that was rolled back", []int{2}, func(w *world) {
		w.start(w1, w.enqueueAs("a", script.Main, time.Minute, history.OK, true), 12345)
	}},

	// 3
	{"3: completion and effect", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.complete(w1, id, fence)
		w.done(w1, id, fence)
	}},
	{"3: a job without its row", []int{3}, func(w *world) {
		w.enqueueAs("a", script.Main, time.Minute, history.OK, true)
		w.db.orders = nil
	}},
	{"3: a row without its job", []int{3}, func(w *world) { w.db.orders = append(w.db.orders, FinalOrder{Token: "a"}) }},
	{"3: job and row in two transactions", []int{3}, func(w *world) {
		w.enqueueAs("a", script.Main, time.Minute, history.OK, true)
		w.db.orders[0].XID--
	}},
	{"3: a handler does not see the row", []int{3}, func(w *world) {
		id := w.enqueue("a")
		orders := w.db.orders
		w.db.orders = nil
		fence := w.claim(w1, id)
		w.db.orders = orders
		w.done(w1, id, fence)
	}},
	{"3: an effect without its completion", []int{3}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.db.effects = append(w.db.effects, FinalEffect{"a", id, fence})
		w.outcome(w1, id, fence, "dead", 0)
	}},
	{"3: a completion without its effect", []int{3}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.complete(w1, id, fence)
		w.db.effects = nil
		w.done(w1, id, fence)
	}},
}

// batch enqueues two jobs, and returns the ids that the function makes of theirs.
func batch(w *world, told func([]int64) []int64) {
	e := history.Event{Op: history.Enqueue, Refs: []history.Ref{{Token: "a", Delay: int64(time.Hour)}, {Token: "b", Delay: int64(time.Hour)}}}
	w.call("producer-1.1", e, func() (history.Phase, history.Event) {
		w.begin()
		a := w.insert("a", script.Short, script.Main, time.Hour, 3)
		b := w.insert("b", script.Short, script.Main, time.Hour, 3)
		ids := told([]int64{a, b})
		return history.OK, history.Event{Refs: []history.Ref{{Token: "a", Job: ids[0]}, {Token: "b", Job: ids[1]}}}
	})
}

// forgets: a handler stores its progress, and the next one finds none.
func forgets(w *world, phase history.Phase) {
	id := w.enqueue("a")
	fence := w.claim(w1, id)
	w.progress(w1, id, fence, phase)
	w.outcome(w1, id, fence, "retry", 0)
	fence = w.claim(w2, id)
	w.found(w2, id, fence, "")
	w.done(w2, id, fence)
}
