package check

import (
	"fmt"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// endCases are about how jobs end, how often they are tried, and what stops leave.
var endCases = []acase{
	// 6
	{"6: an operator brings a dead job back", nil, func(w *world) {
		id := w.enqueue("a")
		w.outcome(w1, id, w.claim(w1, id), "dead", 0)
		w.operate("retry", id)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"6: a job comes back by itself", []int{6, 15, 16}, func(w *world) {
		id := w.enqueue("a")
		w.done(w1, id, w.claim(w1, id))
		w.begin()
		w.operated("retry", id)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"6: an ended job changes", []int{6, 16}, func(w *world) {
		id := w.enqueue("a")
		w.done(w1, id, w.claim(w1, id))
		w.begin()
		before := w.db.ended[id]
		after := before
		after.Status = "dead"
		w.db.ended[id] = after
		w.write("finished", "UPDATE", &before, &after)
	}},
	{"6: a job moves without a way", []int{6}, func(w *world) {
		id := w.enqueue("a")
		w.begin()
		w.update(id, func(r *row) { r.Fence++ })
		w.done(w1, id, w.claim(w1, id))
	}},
	{"6: a job is taken without a way, from a process that is cut off", []int{6, 7, 16}, func(w *world) {
		id := w.enqueue("a")
		w.outcome(w1, id, w.claim(w1, id), "retry", 0)
		fence := w.claim(w1, id)
		w.cut(w1, history.Broken)
		w.wait(4 * time.Second)
		w.begin()
		w.update(id, func(r *row) {
			w.back(r, "retry", time.Hour)
			r.Attempts -= 2
		})
		w.harness(history.Mend, w1)
		w.done(w1, id, fence)
	}},

	// 7
	{"7: a job is handed back unstarted, and snoozes, and has three attempts all the same", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claimOnly(w1, id)
		w.finish(w1, id, fence, "return", 0)
		for range 3 {
			w.outcome(w1, id, w.claim(w1, id), "snooze", 0)
		}
		for range 3 {
			w.outcome(w1, id, w.claim(w1, id), "retry", 0)
		}
	}},
	{"7: an operator grants one attempt more", nil, func(w *world) {
		id := w.enqueue("a")
		for range 3 {
			w.outcome(w1, id, w.claim(w1, id), "retry", 0)
		}
		w.operate("retry", id)
		w.outcome(w1, id, w.claim(w1, id), "retry", 0)
	}},
	{"7: attempts are counted when they fail", []int{7}, func(w *world) {
		w.claimCounts = true
		id := w.enqueue("a")
		w.done(w1, id, w.claim(w1, id))
	}},
	{"7: the attempt of a handler that had started is refunded", []int{7}, func(w *world) {
		id := w.enqueue("a")
		w.outcome(w1, id, w.claim(w1, id), "return", 0)
		w.done(w1, id, w.claim(w1, id))
	}},

	// 12
	{"12: all slots are in use", nil, func(w *world) {
		for i := range 4 {
			w.claim(w1, w.enqueue(fmt.Sprint(i)))
		}
		for i := range int64(4) {
			w.done(w1, i+1, w.db.live[i+1].Fence)
		}
	}},
	{"12: a process runs more handlers than it has slots", []int{12}, func(w *world) {
		for i := range 5 {
			w.claim(w1, w.enqueue(fmt.Sprint(i)))
		}
		for i := range int64(5) {
			w.done(w1, i+1, w.db.live[i+1].Fence)
		}
	}},
	{"12: a claim brings more than was asked for", []int{12}, func(w *world) {
		a, b := w.enqueue("a"), w.enqueue("b")
		e := history.Event{Op: history.Claim, Worker: "w:" + w1, Asked: 1}
		w.call(w1, e, func() (history.Phase, history.Event) {
			w.begin()
			ret := e
			for _, id := range []int64{a, b} {
				ret.Refs = append(ret.Refs, history.Ref{Job: id, Fence: w.take("w:"+w1, id)})
			}
			return history.OK, ret
		})
		for _, id := range []int64{a, b} {
			w.start(w1, id, w.db.live[id].Fence)
			w.done(w1, id, w.db.live[id].Fence)
		}
	}},

	// 13
	{"13: an enqueue of which nobody knows, and a job that waits", nil, func(w *world) {
		w.enqueueAs("a", script.Main, time.Hour, history.Unknown, true)
		w.enqueueAs("b", script.Main, time.Hour, history.Unknown, false)
		w.enqueueAs("c", script.Main, time.Hour, history.OK, true)
	}},
	{"13: a job is stuck in running", []int{13}, func(w *world) { w.claim(w1, w.enqueue("a")) }},
	{"13: a job that nobody has enqueued", []int{13}, func(w *world) {
		w.begin()
		w.insert("a", script.Short, script.Main, time.Hour, 3)
	}},

	// 14
	{"14: a clean stop", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.harness(history.Term, w1)
		w.done(w1, id, fence)
		w.event(w1, history.Event{Op: history.Bye})
		w.harness(history.Exit, w1)
		w.harness(history.Clean, w1)
	}},
	{"14: a stop that says what it leaves", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.harness(history.Term, w1)
		w.finish(w1, id, fence, "release", 0)
		w.event(w1, history.Event{Op: history.Bye, Error: "left behind"})
		w.event("harness", history.Event{Op: history.Clean, Target: w1, Error: "exit status 1", Ref: history.Ref{Result: "1 connections"}})
		w.done(w2, id, w.claim(w2, id))
	}},
	{"14: a job ends its process while that stops", nil, func(w *world) {
		id := w.enqueue("a")
		r := w.db.live[id]
		r.kind = script.Exit
		w.db.live[id] = r
		w.claim(w1, id)
		w.harness(history.Term, w1)
		w.event("harness", history.Event{Op: history.Exit, Target: w1, Error: "exit status 3"})
		w.event("harness", history.Event{Op: history.Clean, Target: w1, Error: "exit status 3"})
		w.wait(testLimits.Lease)
		w.reap(id)
		w.wait(100 * time.Millisecond)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"14: a server that is gone takes no outcomes, and the process says so", nil, func(w *world) {
		over := w.fault("crash-restart")
		stopsWith(w, "left behind at the end of the stop: outcomes not stored")
		over()
	}},
	{"14: outcomes are left behind, and the server was there", []int{14}, func(w *world) {
		stopsWith(w, "left behind at the end of the stop: outcomes not stored")
	}},
	{"14: a stop ends with an error", []int{14}, func(w *world) { stopsWith(w, "fencepost run: poller: ended by itself") }},
	{"14: a connection is left", []int{14}, func(w *world) {
		w.event("harness", history.Event{Op: history.Clean, Target: w1, Ref: history.Ref{Result: "1 connections"}})
	}},
	{"14: a handler and a lease are left", []int{13, 14}, func(w *world) {
		w.claim(w1, w.enqueue("a"))
		w.harness(history.Term, w1)
		w.event(w1, history.Event{Op: history.Bye})
	}},
}

// stopsWith: a process that was told to stop ends with an error, though all of
// its handlers have ended.
func stopsWith(w *world, why string) {
	id := w.enqueue("a")
	w.done(w1, id, w.claim(w1, id))
	w.harness(history.Term, w1)
	w.wait(4 * time.Second)
	w.event(w1, history.Event{Op: history.Bye, Error: why})
	w.event("harness", history.Event{Op: history.Exit, Target: w1, Error: "exit status 1"})
	w.event("harness", history.Event{Op: history.Clean, Target: w1, Error: "exit status 1"})
}
