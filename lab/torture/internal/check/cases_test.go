package check

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

const (
	w1 = "worker-1.1"
	w2 = "worker-2.1"
)

// Each case is a short history, and the invariants that it violates: none, or
// the one that it is about and those that cannot but see it too.
var cases = []struct {
	name     string
	violates []int
	play     func(w *world)
}{
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

	// 4
	{"4: after a failover a job is claimed again", nil, func(w *world) { claimedOnBothSides(w) }},
	{"4: a plain counter gives a fence again after a failover", []int{4}, func(w *world) {
		w.clockFence = true
		claimedOnBothSides(w)
	}},
	{"4: a fence goes back", []int{4, 16}, func(w *world) {
		id := w.enqueue("a")
		w.outcome(w1, id, w.claim(w1, id), "retry", 0)
		w.clockFence = true
		r := w.db.live[id]
		r.Fence = 7
		w.db.live[id] = r
		w.done(w1, id, w.claim(w1, id))
	}},
	{"4: a way back leaves the fence", []int{4}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.outcome(w1, id, fence, "retry", time.Hour)
		w.lines[len(w.lines)-1].After.Fence = fence
		r := w.db.live[id]
		r.Fence = fence
		w.db.live[id] = r
	}},
	{"4: two handlers under one fence", []int{4, 7}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.event(w2, history.Event{Op: history.Start, Ref: history.Ref{Job: id, Fence: fence, Attempt: 2, Queue: script.Main}})
		w.done(w1, id, fence)
	}},

	// 5
	{"5: a frozen process writes late, and is refused", nil, func(w *world) { frozen(w, (*world).done) }},
	{"5: its extension is refused", nil, func(w *world) { frozen(w, (*world).extend) }},
	{"5: its completion is refused", nil, func(w *world) { frozen(w, (*world).complete) }},
	{"5: an outcome is sent twice, and stored once", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.stop(w1, id, fence, "done")
		w.finishAs(w1, id, fence, "done", 0, history.Unknown, true)
		w.finish(w1, id, fence, "done", 0)
		w.replay(id, fence, "retry") // ended under this very fence
	}},
	{"5: a retry is sent twice, and lost the second time", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.stop(w1, id, fence, "retry")
		w.finishAs(w1, id, fence, "retry", time.Hour, history.Unknown, true)
		w.finish(w1, id, fence, "retry", time.Hour)
	}},
	{"5: an operator cancels, and the holder is refused", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.operate("cancel", id)
		w.done(w1, id, fence)
		w.replay(id, fence, "done")
	}},
	{"5: the zombie after a failover, where its fence is valid again", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		saved, lines := w.save()
		w.outcome(w1, id, fence, "retry", time.Hour)
		over := w.fault("failover")
		w.failover(saved, lines)
		over()
		w.replay(id, fence, "done")
	}},
	{"5: without the fence of finish", []int{5, 16}, func(w *world) {
		w.finishFence = true
		frozen(w, (*world).done)
	}},
	{"5: without the fence of extend", []int{5, 16}, func(w *world) {
		w.extendFence = true
		frozen(w, (*world).extend)
	}},
	{"5: without the fence of complete", []int{3, 5, 16}, func(w *world) {
		w.completeFence = true
		frozen(w, (*world).complete)
	}},
	{"5: the zombie gets through", []int{5, 16}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.outcome(w1, id, fence, "retry", 0)
		again := w.claim(w2, id)
		w.finishFence = true
		w.replay(id, fence, "done")
		w.finishFence = false
		w.outcome(w2, id, again, "dead", 0)
	}},
	{"5: stored is said of an outcome that came too late", []int{5, 16}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.operate("cancel", id)
		w.wait(20 * time.Millisecond)
		w.stop(w1, id, fence, "retry")
		ref := history.Ref{Job: id, Fence: fence, Verb: "retry", Result: "stored"}
		w.call(w1, history.Event{Op: history.Finish, Refs: []history.Ref{ref}}, func() (history.Phase, history.Event) {
			return history.OK, history.Event{Refs: []history.Ref{ref}}
		})
	}},
	{"5: fenced writes to the business", nil, func(w *world) { effectsOf(w, true) }},
	{"5: a fenced write with an old fence", []int{5}, func(w *world) { effectsOf(w, false) }},

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

	// 8
	{"8: a job goes on elsewhere when the lease of a frozen process is over", nil, func(w *world) { frozen(w, (*world).done) }},
	{"8: a process is cut off, and its job taken before the lease is over", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.harness(history.Cut, w1)
		w.wait(4 * time.Second)
		w.reap(id)
		w.wait(100 * time.Millisecond)
		again := w.claim(w2, id)
		w.harness(history.Mend, w1)
		w.done(w1, id, fence)
		w.done(w2, id, again)
	}},
	{"8: a hard stop leaves a handler behind", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.harness(history.Term, w1)
		w.finish(w1, id, fence, "release", 0)
		w.done(w2, id, w.claim(w2, id))
		w.event(w1, history.Event{Op: history.Bye, Error: "left behind"})
	}},
	{"8: an operator releases a running job", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.operate("release", id)
		again := w.claim(w2, id)
		w.done(w1, id, fence)
		w.done(w2, id, again)
	}},
	{"8: a claim whose answer was lost comes back", nil, func(w *world) {
		id := w.enqueue("a")
		e := history.Event{Op: history.Claim, Worker: "w:" + w1, Asked: 1}
		w.call(w1, e, func() (history.Phase, history.Event) {
			w.begin()
			w.take("w:"+w1, id)
			return history.Unknown, e
		})
		w.wait(testLimits.Lease)
		w.reap(id)
		w.wait(100 * time.Millisecond)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"8: a pause of 0.6 of a lease costs a lease", []int{8}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.wait(2 * time.Second)
		w.harness(history.Pause, w1)
		w.wait(3600 * time.Millisecond)
		w.harness(history.Resume, w1)
		w.wait(500 * time.Millisecond)
		w.reap(id)
		w.wait(100 * time.Millisecond)
		w.done(w1, id, fence)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"8: a frozen process loses a job before its lease is over", []int{8}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.harness(history.Pause, w1)
		w.wait(5 * time.Second)
		w.reap(id)
		w.wait(100 * time.Millisecond)
		again := w.claim(w2, id)
		w.harness(history.Resume, w1)
		w.done(w1, id, fence)
		w.done(w2, id, again)
	}},
	{"8: a reaper goes by the id alone", []int{8}, func(w *world) {
		id := w.enqueue("a")
		w.harness(history.Pause, w1)
		w.harness(history.Resume, w1)
		fence := w.claim(w1, id)
		w.wait(4 * time.Second)
		w.extend(w1, id, fence)
		w.wait(2 * time.Second)
		w.reap(id)
		w.wait(100 * time.Millisecond)
		w.done(w1, id, fence)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"8: a reaper takes what nobody has", []int{8, 16}, func(w *world) {
		id := w.enqueue("a")
		w.reap(id)
		w.db.seq++ // for its text
		w.wait(100 * time.Millisecond)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"8: leases are not extended in a drain", []int{8}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.harness(history.Term, w1)
		w.wait(testLimits.Lease + 100*time.Millisecond)
		w.reap(id)
		w.wait(100 * time.Millisecond)
		again := w.claim(w2, id)
		w.done(w1, id, fence)
		w.event(w1, history.Event{Op: history.Bye})
		w.done(w2, id, again)
	}},
	{"8: two claims share a job", []int{8, 16}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		again := w.claim(w2, id)
		w.done(w1, id, fence)
		w.done(w2, id, again)
	}},

	// 9
	{"9: a delayed job starts on time", nil, func(w *world) {
		id := w.enqueueAs("a", script.Main, time.Second, history.OK, true)
		w.wait(time.Second)
		w.done(w1, id, w.claim(w1, id))
	}},
	{"9: a job starts before it is due", []int{9}, func(w *world) {
		id := w.enqueueAs("a", script.Main, time.Second, history.OK, true)
		w.wait(990 * time.Millisecond)
		w.done(w1, id, w.claim(w1, id))
	}},
	{"9: a retry is due before its delay is over", []int{9}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.stop(w1, id, fence, "retry")
		ref := history.Ref{Job: id, Fence: fence, Verb: "retry", Delay: int64(time.Second)}
		w.call(w1, history.Event{Op: history.Finish, Refs: []history.Ref{ref}}, func() (history.Phase, history.Event) {
			ref.Result = w.store(id, fence, "retry", 980*time.Millisecond)
			return history.OK, history.Event{Refs: []history.Ref{ref}}
		})
		w.wait(time.Second)
		w.done(w1, id, w.claim(w1, id))
	}},
	{"9: a scheduled job is due too early", []int{9}, func(w *world) {
		ref := history.Ref{Token: "a", Delay: int64(time.Second)}
		e := history.Event{Op: history.Enqueue, Refs: []history.Ref{ref}}
		var id int64
		w.call("producer-1.1", e, func() (history.Phase, history.Event) {
			w.begin()
			id = w.insert("a", script.Short, script.Main, 900*time.Millisecond, 3)
			return history.OK, e
		})
		w.wait(time.Second)
		w.done(w1, id, w.claim(w1, id))
	}},

	// 10
	{"10: a dead worker's job comes back", nil, func(w *world) { dies(w, 5900*time.Millisecond) }},
	{"10: of two that die one is noticed later", nil, func(w *world) {
		w.process("worker-3.1", script.Worker)
		w.idle("worker-3.1")
		w.wait(5 * time.Second)
		w.kill("worker-3.1")
		dies(w, 7900*time.Millisecond)
	}},
	{"10: a death while the server is down", nil, func(w *world) {
		over := w.fault("crash-restart")
		id := w.enqueue("a")
		w.claim(w1, id)
		w.kill(w1)
		w.wait(10 * time.Second)
		over()
		w.wait(15 * time.Second)
		w.reap(id)
		w.wait(100 * time.Millisecond)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"10: nobody is there to notice", nil, func(w *world) {
		w.kill(w2)
		dies(w, 20*time.Second)
	}},
	{"10: a death is noticed too late", []int{10}, func(w *world) { dies(w, 6100*time.Millisecond) }},
	{"10: a death is never noticed", []int{10, 13}, func(w *world) {
		id := w.enqueue("a")
		w.claim(w1, id)
		w.kill(w1)
		w.wait(20 * time.Second)
	}},

	// 11
	{"11: without bells a job waits for a poll", nil, func(w *world) { deafFor(w, 9700*time.Millisecond) }},
	{"11: without bells a job waits for more than a poll", []int{11}, func(w *world) { deafFor(w, 9900*time.Millisecond) }},
	{"11: a job waits for a slot", nil, func(w *world) {
		var ids, fences []int64
		for i := range 8 {
			id := w.enqueue(fmt.Sprint(i))
			ids, fences = append(ids, id), append(fences, w.claim([]string{w1, w2}[i%2], id))
		}
		id := w.enqueue("last")
		w.wait(3 * time.Second)
		for i := range ids {
			w.done([]string{w1, w2}[i%2], ids[i], fences[i])
		}
		w.done(w1, id, w.claim(w1, id))
	}},
	{"11: a queue is paused", nil, func(w *world) {
		for _, verb := range []string{"pause", "resume"} {
			e := history.Event{Op: history.Operate, Ref: history.Ref{Verb: verb, Queue: script.Main}}
			w.call("operator-1.1", e, func() (history.Phase, history.Event) { return history.OK, e })
			if verb == "pause" {
				w.enqueue("a")
				w.wait(3 * time.Second)
			}
		}
		w.done(w1, 1, w.claim(w1, 1))
	}},
	{"11: a job waits though bells are heard", []int{11}, func(w *world) {
		id := w.enqueue("a")
		w.wait(2100 * time.Millisecond)
		w.done(w1, id, w.claim(w1, id))
	}},
	{"11: a job is never started", []int{11}, func(w *world) {
		w.enqueue("a")
		w.wait(2100 * time.Millisecond)
		w.idle(w1)
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
	{"14: a connection is left", []int{14}, func(w *world) {
		w.event("harness", history.Event{Op: history.Clean, Target: w1, Ref: history.Ref{Result: "1 connections"}})
	}},
	{"14: a handler and a lease are left", []int{13, 14}, func(w *world) {
		w.claim(w1, w.enqueue("a"))
		w.harness(history.Term, w1)
		w.event(w1, history.Event{Op: history.Bye})
	}},

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
		w.call(w1, history.Event{Op: history.Finish, Refs: []history.Ref{{Job: id, Fence: fence, Verb: "retry"}}},
			func() (history.Phase, history.Event) {
				return history.OK, history.Event{Refs: []history.Ref{{Job: id, Fence: fence, Verb: "retry", Result: "stored"}}}
			})
	}},
	{"16: a failure of a job that is gone is stored", []int{16}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.operate("delete", id)
		w.stop(w1, id, fence, "retry")
		w.call(w1, history.Event{Op: history.Finish, Refs: []history.Ref{{Job: id, Fence: fence, Verb: "retry"}}},
			func() (history.Phase, history.Event) {
				return history.OK, history.Event{Refs: []history.Ref{{Job: id, Fence: fence, Verb: "retry", Result: "stored"}}}
			})
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
}

// claimedOnBothSides: a claim goes with a former primary, and the job is claimed
// again on the new one.
func claimedOnBothSides(w *world) {
	id := w.enqueue("a")
	saved, lines := w.save()
	fence := w.claim(w1, id)
	over := w.fault("failover")
	w.failover(saved, lines)
	over()
	again := w.claim(w2, id)
	if !w.clockFence {
		w.done(w1, id, fence)
	}
	w.done(w2, id, again)
}

// frozen: a process is frozen for more than its lease, loses its job, and writes
// when it wakes up, while another one has it.
func frozen(w *world, write func(*world, string, int64, int64)) {
	id := w.enqueue("a")
	fence := w.claim(w1, id)
	w.wait(time.Second)
	w.harness(history.Pause, w1)
	w.wait(testLimits.Lease)
	w.reap(id)
	w.wait(100 * time.Millisecond)
	again := w.claim(w2, id)
	w.wait(time.Second)
	w.harness(history.Resume, w1)
	write(w, w1, id, fence)
	w.wait(50 * time.Millisecond)
	w.done(w2, id, again)
}

// dies: a worker is killed, and its job taken so much later.
func dies(w *world, after time.Duration) {
	id := w.enqueue("a")
	w.claim(w1, id)
	w.kill(w1)
	w.wait(after - 20*time.Millisecond)
	w.reap(id)
	w.wait(100 * time.Millisecond)
	w.done(w2, id, w.claim(w2, id))
}

// deafFor: bells are lost, and a job waits for so long.
func deafFor(w *world, wait time.Duration) {
	over := w.fault("bells-lost")
	id := w.enqueue("a")
	w.wait(wait)
	w.done(w1, id, w.claim(w1, id))
	over()
}

// effectsOf: two claims of a job write to its business row.
func effectsOf(w *world, inOrder bool) {
	id := w.enqueue("a")
	write := func(proc string, fence int64) {
		e := history.Event{Op: history.Effect, Ref: history.Ref{Job: id, Fence: fence, Token: "a"}}
		w.call(proc, e, func() (history.Phase, history.Event) {
			w.db.orders[0].Fence = max(w.db.orders[0].Fence, fence)
			return history.OK, e
		})
	}
	first := w.claim(w1, id)
	if inOrder {
		write(w1, first)
	}
	w.outcome(w1, id, first, "retry", 0)
	second := w.claim(w2, id)
	write(w2, second)
	if !inOrder {
		write(w1, first)
	}
	w.done(w2, id, second)
}

func TestCases(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.crew()
			c.play(w)
			w.wait(10 * time.Millisecond)
			w.event("harness", history.Event{Op: history.Ready})
			findings := Check(w.input())
			if len(findings) != len(names) {
				t.Fatalf("%d findings, want %d", len(findings), len(names))
			}
			if got := violated(findings); !slices.Equal(got, c.violates) {
				t.Errorf("violates %v, want %v", got, c.violates)
				say(t, findings)
			}
			for _, f := range findings {
				if f.Violations > 0 && (len(f.Examples) == 0 || len(f.Examples[0].Steps) == 0 || f.Examples[0].Says == "") {
					t.Errorf("%d says nothing of why", f.Invariant)
				}
			}
		})
	}
}

// Each invariant has cases that violate it, and one that comes near it.
func TestEachInvariantHasCases(t *testing.T) {
	for n := 1; n <= len(names); n++ {
		bad, good := 0, 0
		for _, c := range cases {
			if slices.Contains(c.violates, n) {
				bad++
			}
			var of int
			if _, err := fmt.Sscanf(c.name, "%d:", &of); err == nil && of == n && c.violates == nil {
				good++
			}
		}
		if bad == 0 || good == 0 {
			t.Errorf("invariant %d: %d cases violate it, %d legal ones are near", n, bad, good)
		}
	}
}

func violated(findings []Finding) (numbers []int) {
	for i, f := range findings {
		if f.Invariant != i+1 {
			panic("not in order")
		}
		if f.Violations > 0 {
			numbers = append(numbers, f.Invariant)
		}
	}
	return numbers
}

func say(t *testing.T, findings []Finding) {
	t.Helper()
	for _, f := range findings {
		if f.Violations == 0 {
			continue
		}
		t.Logf("%d %s: %d of %d", f.Invariant, f.Name, f.Violations, f.Checked)
		for _, e := range f.Examples {
			t.Logf("  %s", e.Says)
			for _, s := range e.Steps {
				t.Logf("    %10.3fs  %-14s %s", s.At.Seconds(), s.Who, s.What)
			}
		}
	}
}
