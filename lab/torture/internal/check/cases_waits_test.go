package check

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// waitCases are about when things happen.
var waitCases = []acase{
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
		w.stopFor(w1, id, fence, "retry", time.Second)
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

	{"9: a scheduled job is due too late", []int{9}, func(w *world) {
		ref := history.Ref{Token: "a", Delay: int64(time.Second)}
		e := history.Event{Op: history.Enqueue, Refs: []history.Ref{ref}}
		w.call("producer-1.1", e, func() (history.Phase, history.Event) {
			w.begin()
			w.insert("a", script.Short, script.Main, 1100*time.Millisecond, 3)
			return history.OK, e
		})
	}},
	{"9: a job is taken from a dead worker, and due again without a pause", []int{9}, func(w *world) {
		id := w.enqueue("a")
		w.outcome(w1, id, w.claim(w1, id), "retry", 0)
		w.claim(w1, id)
		w.kill(w1)
		w.wait(3 * time.Second)
		w.reapAs(id, "worker %s died in attempt %d of %d", 0)
		w.done(w2, id, w.claim(w2, id))
	}},
	{"9: a queue is paused, and resumed", nil, func(w *world) {
		w.queue("pause")
		w.wait(100 * time.Millisecond)
		w.queue("resume")
		id := w.enqueueAs("a", script.Side, 0, history.OK, true)
		w.done(w1, id, w.claim(w1, id))
	}},
	{"9: a job of a paused queue is claimed", []int{9}, func(w *world) {
		id := w.enqueueAs("a", script.Side, 0, history.OK, true)
		w.queue("pause")
		w.done(w1, id, w.claim(w1, id))
		w.queue("resume")
	}},

	// 10
	{"10: a lease is longer than it was to be", []int{10}, func(w *world) {
		id := w.enqueue("a")
		fence := w.claim(w1, id)
		w.call(w1, history.Event{Op: history.Extend, Refs: []history.Ref{{Job: id, Fence: fence}}}, func() (history.Phase, history.Event) {
			w.begin()
			w.update(id, func(r *row) { r.Lease = w.dbNow().Add(2 * testLimits.Lease) })
			return history.OK, history.Event{}
		})
		w.done(w1, id, fence)
	}},
	{"10: a dead worker's job comes back", nil, func(w *world) { dies(w, 5900*time.Millisecond) }},
	{"10: of two that die one is noticed later", nil, func(w *world) {
		w.process(w3, script.Worker)
		w.idle(w3)
		w.wait(5 * time.Second)
		w.kill(w3)
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
	{"10: a death, with a slow network that does not end connections", []int{10}, func(w *world) {
		over := w.fault("slow-link")
		dies(w, 6100*time.Millisecond)
		over()
	}},
	{"10: a death, and connections are made anew", nil, func(w *world) {
		w.fault("reset")()
		dies(w, 15900*time.Millisecond)
	}},
	{"10: a death, and connections were made anew long before", []int{10}, func(w *world) {
		w.fault("reset")()
		w.wait(76 * time.Second)
		dies(w, 6100*time.Millisecond)
	}},
	{"10: a death in a crash is noticed in time after that", nil, func(w *world) { diesInCrash(w, 15900*time.Millisecond) }},
	{"10: a death in a crash is noticed too late after that", []int{10}, func(w *world) { diesInCrash(w, 16200*time.Millisecond) }},
	{"10: a death while bells are lost", nil, func(w *world) {
		over := w.fault("bells-lost")
		dies(w, 14700*time.Millisecond)
		over()
	}},
	{"10: a death while bells are lost is noticed too late", []int{10}, func(w *world) {
		over := w.fault("bells-lost")
		dies(w, 14900*time.Millisecond)
		over()
	}},
	{"10: a death behind a pooler", nil, func(w *world) {
		over := w.fault("pooler")
		w.process(w3, script.Worker)
		w.idle(w3)
		id := w.enqueue("a")
		w.claim(w3, id)
		w.kill(w3)
		w.wait(17 * time.Second)
		w.reap(id)
		w.wait(100 * time.Millisecond)
		w.done(w2, id, w.claim(w2, id))
		over()
	}},
	{"10: a death long after others were behind a pooler", []int{10}, func(w *world) {
		w.fault("pooler")()
		w.wait(80 * time.Second)
		dies(w, 6100*time.Millisecond)
	}},
	{"10: the first death of a job costs half a second", nil, func(w *world) { diesAgain(w, 600*time.Millisecond, 0) }},
	{"10: the first death of a job costs more", []int{10}, func(w *world) { diesAgain(w, 700*time.Millisecond, 0) }},
	{"10: the second attempt ends with a death", nil, func(w *world) { diesAgain(w, 2400*time.Millisecond, 1) }},

	// 11
	{"11: a worker asks, and others are quicker", nil, func(w *world) { besideOthers(w, true) }},
	{"11: a worker claims no more", []int{11}, func(w *world) { besideOthers(w, false) }},
	{"11: a worker claims no more while it is frozen", nil, func(w *world) {
		w.harness(history.Pause, w1)
		besideOthers(w, false)
		w.harness(history.Resume, w1)
	}},
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
	{"11: a job waits behind others, of which each claim is full", nil, func(w *world) {
		id := w.enqueue("last")
		for i := range 6 {
			w.full(i)
			w.wait(900 * time.Millisecond)
		}
		w.done(w1, id, w.claim(w1, id))
	}},
	{"11: after a full claim nobody asks again", []int{11}, func(w *world) {
		id := w.enqueue("last")
		w.full(1)
		w.wait(1500 * time.Millisecond)
		w.full(2)
		w.wait(2100 * time.Millisecond)
		w.done(w1, id, w.claim(w1, id))
	}},
	{"11: after a full claim nobody polls", []int{11}, func(w *world) {
		over := w.fault("bells-lost")
		id := w.enqueue("last")
		w.full(1)
		w.wait(9500 * time.Millisecond)
		w.full(2)
		w.wait(9900 * time.Millisecond)
		w.done(w1, id, w.claim(w1, id))
		over()
	}},
	{"11: after a full claim bells begin to be lost", nil, func(w *world) {
		id := w.enqueue("last")
		w.full(1)
		w.wait(1500 * time.Millisecond)
		w.full(2)
		w.wait(time.Second)
		over := w.fault("bells-lost")
		w.wait(3 * time.Second)
		w.done(w1, id, w.claim(w1, id))
		over()
	}},
	{"11: one worker's claims are full, the other one's are not", []int{11}, func(w *world) {
		id := w.enqueue("last")
		for i := range 4 {
			other := w.enqueue(fmt.Sprint(i))
			w.done(w1, other, w.claim(w1, other))
			w.idle(w2)
			w.wait(900 * time.Millisecond)
		}
		w.done(w1, id, w.claim(w1, id))
	}},
	{"11: both have asked, and wait for an answer", nil, func(w *world) {
		e := history.Event{Op: history.Claim, Worker: "w:" + w1, Asked: 4, Ref: history.Ref{Queue: script.Main}}
		id := w.enqueue("a")
		w.call(w1, e, func() (history.Phase, history.Event) {
			e := e
			e.Worker = "w:" + w2
			w.call(w2, e, func() (history.Phase, history.Event) {
				w.wait(3 * time.Second)
				return history.OK, e
			})
			return history.OK, e
		})
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
}

// full has each worker do another job, of which it asked for no more.
func (w *world) full(i int) {
	for _, proc := range []string{w1, w2} {
		id := w.enqueue(fmt.Sprint(proc, i))
		w.done(proc, id, w.claim(proc, id))
	}
}

// diesInCrash: a worker dies while the server is down, and its job is taken so
// long after the server is back.
func diesInCrash(w *world, after time.Duration) {
	id := w.enqueue("a")
	w.claim(w1, id)
	over := w.fault("crash-restart")
	w.kill(w1)
	w.wait(2 * time.Second)
	over()
	w.wait(after)
	w.reap(id)
	w.wait(100 * time.Millisecond)
	w.done(w2, id, w.claim(w2, id))
}

// diesAgain: a job has failed so often, then its worker dies, and it waits.
func diesAgain(w *world, pause time.Duration, failed int) {
	id := w.enqueue("a")
	for range failed {
		w.outcome(w1, id, w.claim(w1, id), "retry", 0)
	}
	w.claim(w1, id)
	w.kill(w1)
	w.wait(4 * time.Second)
	w.reapAs(id, "worker %s died in attempt %d of %d", pause)
	w.wait(pause)
	w.done(w2, id, w.claim(w2, id))
}

// What is judged from the end of a trouble on is counted apart, and nothing that
// came after the taking is a reason to wait.
func TestDeathsThatAreJudgedLater(t *testing.T) {
	for name, c := range map[string]struct {
		part string
		play func(*world)
	}{
		"in a crash": {"judged from the end of a trouble on", func(w *world) { diesInCrash(w, 15900*time.Millisecond) }},
		"before one": {"", func(w *world) {
			dies(w, 5*time.Second)
			over := w.fault("crash-restart")
			w.wait(20 * time.Second)
			over()
		}},
		"alone": {"nobody was there to notice", func(w *world) {
			w.kill(w2)
			dies(w, 20*time.Second)
		}},
	} {
		w := newWorld()
		w.crew()
		c.play(w)
		w.idle(w2)
		f := Check(w.input())[9]
		if c.part == "" && (f.Checked != 1 || len(f.Parts) > 0) || c.part != "" && (len(f.Parts) != 1 || f.Parts[0] != Part{c.part, 1}) {
			t.Errorf("%s: checked %d, parts %v, want one of %q", name, f.Checked, f.Parts, c.part)
		}
	}
}

// queue has the operator pause the side queue, or resume it.
func (w *world) queue(verb string) {
	e := history.Event{Op: history.Operate, Ref: history.Ref{Verb: verb, Queue: script.Side}}
	w.call("operator-1.1", e, func() (history.Phase, history.Event) { return history.OK, e })
}

// besideOthers has the second worker do many jobs, while the first one asks for
// some now and then, or not.
func besideOthers(w *world, asks bool) {
	for i := range fairShare + 10 {
		id := w.enqueue(fmt.Sprint("a", i))
		w.done(w2, id, w.claim(w2, id))
		w.wait(400 * time.Millisecond)
		if asks && i%10 == 0 {
			w.idle(w1)
		}
	}
}
