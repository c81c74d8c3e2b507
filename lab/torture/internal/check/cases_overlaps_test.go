package check

import (
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// overlapCases are about whose a job is.
var overlapCases = []acase{
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
		w.idle(w1)
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
	{"8: a pause of 0.6 of a lease, and the process does not run before the lease is over", nil, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.wait(2 * time.Second)
		w.harness(history.Pause, w1)
		w.wait(3600 * time.Millisecond)
		w.harness(history.Resume, w1)
		w.wait(500 * time.Millisecond)
		w.reap(id)
		w.done(w1, id, fence)
		w.wait(100 * time.Millisecond)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"8: half of a lease is left after a pause, and the process does nothing", []int{8}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.harness(history.Pause, w1)
		w.wait(3100 * time.Millisecond)
		w.harness(history.Resume, w1)
		w.wait(3 * time.Second)
		w.reap(id)
		w.wait(100 * time.Millisecond)
		w.done(w1, id, fence)
		w.done(w2, id, w.claim(w2, id))
	}},

	// Jobs that are taken early from a live worker.
	{"8: taken early in silence", nil, func(w *world) { takenEarly(w, func() { w.cut(w1, history.Silent) }) }},
	{"8: taken early after a crash of the server", nil, func(w *world) { takenEarly(w, func() { w.fault("several/crash-restart")() }) }},
	{"8: taken early, frozen when its sessions ended", nil, func(w *world) {
		takenEarly(w, func() {
			w.harness(history.Pause, w1)
			w.fault("terminate-keeper")()
			w.harness(history.Resume, w1)
		})
	}},
	{"8: taken early, with a network that is late", []int{8}, func(w *world) { takenEarly(w, func() { w.cut(w1, history.Late) }) }},
	{"8: taken early after a fault that ends no session", []int{8}, func(w *world) { takenEarly(w, func() { w.fault("ddl-lock")() }) }},
	{"8: taken early after sessions have ended", []int{8}, func(w *world) { takenEarly(w, func() { w.fault("terminate-keeper")() }) }},

	// Leases that run out.
	{"8: a lease runs out just after a network was late", nil, func(w *world) { ranOut(w, testLimits.Lease-time.Second) }},
	{"8: a lease runs out long after a network was late", []int{8}, func(w *world) { ranOut(w, testLimits.Lease+time.Second) }},

	// Jobs that are released.
	{"8: a process ends by itself and leaves a handler behind", nil, func(w *world) {
		releases(w)
		w.event(w1, history.Event{Op: history.Bye, Error: "left behind"})
	}},
	{"8: a worker that does not end releases what runs", []int{8}, func(w *world) {
		releases(w)
		w.wait(4 * time.Second)
	}},

	{"8: a failover took something else of the job, before", []int{8}, func(w *world) {
		id := w.enqueue("a")
		saved, lines := w.save()
		w.outcome(w1, id, w.claim(w1, id), "retry", 0)
		over := w.fault("failover")
		w.failover(saved, lines)
		over()
		w.wait(time.Second)
		fence := w.claim(w1, id)
		w.finish(w1, id, fence, "release", 0)
		w.done(w2, id, w.claim(w2, id))
		w.wait(4 * time.Second)
	}},
}

// takenEarly: something happens, and then a worker loses a job whose lease is
// not over.
func takenEarly(w *world, after func()) {
	id := w.enqueue("a")
	fence := w.claim(w1, id)
	after()
	w.wait(4 * time.Second)
	w.reap(id)
	w.harness(history.Mend, w1)
	w.wait(100 * time.Millisecond)
	again := w.claim(w2, id)
	w.done(w1, id, fence)
	w.done(w2, id, again)
}

// ranOut: a lease runs out, so long after the network of its holder was late.
func ranOut(w *world, after time.Duration) {
	w.cut(w1, history.Late)
	id := w.enqueue("a")
	var fence int64
	if after < testLimits.Lease {
		fence = w.claim(w1, id)
		w.wait(testLimits.Lease - after)
		w.harness(history.Mend, w1)
		w.wait(after)
	} else {
		w.harness(history.Mend, w1)
		w.wait(after - testLimits.Lease)
		fence = w.claim(w1, id)
		w.wait(testLimits.Lease)
	}
	w.reap(id)
	w.wait(100 * time.Millisecond)
	w.done(w1, id, fence)
	w.done(w2, id, w.claim(w2, id))
}

// releases: a worker hands a job back whose handler runs.
func releases(w *world) {
	id := w.enqueue("a")
	fence := w.claim(w1, id)
	w.finish(w1, id, fence, "release", 0)
	w.done(w2, id, w.claim(w2, id))
}
