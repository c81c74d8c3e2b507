package check

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// fenceCases are about who may write.
var fenceCases = []acase{
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
		w.stopFor(w1, id, fence, "retry", time.Hour)
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
	{"5: progress with an old fence is refused", nil, func(w *world) {
		frozen(w, func(w *world, proc string, id, fence int64) { w.progress(proc, id, fence, history.OK) })
	}},
	{"5: progress with an old fence is accepted", []int{5, 16}, func(w *world) {
		w.progressFence = true
		frozen(w, func(w *world, proc string, id, fence int64) { w.progress(proc, id, fence, history.OK) })
	}},
	{"5: progress of a job that has ended is accepted", []int{5, 16}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.done(w1, id, fence)
		w.wait(20 * time.Millisecond)
		e := history.Event{Op: history.Progress, Ref: history.Ref{Job: id, Fence: fence}}
		w.call(w1, e, func() (history.Phase, history.Event) { return history.OK, e })
	}},
	{"5: a handler sees the progress of another job", []int{5}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.event(w1, history.Event{Op: history.Amiss, Note: "progress of another job", Ref: history.Ref{Job: id, Fence: fence}})
		w.done(w1, id, fence)
	}},
	{"5: a worker is told of a cancellation instead", nil, func(w *world) {
		w.silent = true
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.operate("cancel", id)
		w.event(w1, history.Event{Op: history.Cancelled, Ref: history.Ref{Job: id, Fence: fence}})
		w.done(w1, id, fence)
		w.wait(2 * time.Second)
	}},
	{"5: a worker cannot know whether its first try was stored", nil, func(w *world) {
		w.silent = true
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.stopFor(w1, id, fence, "retry", time.Hour)
		w.finishAs(w1, id, fence, "retry", time.Hour, history.Unknown, true)
		w.finish(w1, id, fence, "retry", time.Hour)
		w.wait(2 * time.Second)
	}},
	{"5: a worker dies before it can say that it was told", nil, func(w *world) {
		w.silent = true
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.operate("cancel", id)
		w.done(w1, id, fence)
		w.wait(900 * time.Millisecond)
		w.kill(w1)
		w.wait(2 * time.Second)
	}},
	{"5: an outcome is refused, and nobody tells the worker", []int{5}, func(w *world) {
		w.silent = true
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.operate("cancel", id)
		w.done(w1, id, fence)
		w.wait(1100 * time.Millisecond)
	}},
}

// Who writes late counts as frozen only if it has lost the job by that.
func TestFrozenWritesAreCounted(t *testing.T) {
	pause := func(w *world, d time.Duration) {
		w.harness(history.Pause, w1)
		w.wait(d)
		w.harness(history.Resume, w1)
	}
	for name, c := range map[string]struct {
		part string
		play func(*world)
	}{
		"by its freeze": {"by frozen processes", func(w *world) { frozen(w, (*world).done) }},
		"by an operator's release, frozen": {"by others", func(w *world) {
			id := w.enqueue("a")
			fence := w.claim(w1, id)
			w.harness(history.Pause, w1)
			w.wait(time.Second)
			w.operate("release", id)
			w.harness(history.Resume, w1)
			w.wait(time.Second)
			w.done(w1, id, fence)
		}},
		"by a reap, long after it was frozen": {"by others", func(w *world) {
			id := w.enqueue("a")
			fence := w.claim(w1, id)
			pause(w, time.Second)
			w.wait(testLimits.Lease)
			w.reap(id)
			w.wait(2 * time.Second)
			w.done(w1, id, fence)
		}},
		"by a reap, before it was frozen": {"by others", func(w *world) {
			id := w.enqueue("a")
			fence := w.claim(w1, id)
			w.wait(testLimits.Lease)
			w.reap(id)
			pause(w, time.Second)
			w.done(w1, id, fence)
		}},
	} {
		w := newWorld()
		w.crew()
		c.play(w)
		parts := Check(w.input())[4].Parts
		if !slices.Contains(parts, Part{c.part, 1}) {
			t.Errorf("%s: %v, want one %s", name, parts, c.part)
		}
	}
}
