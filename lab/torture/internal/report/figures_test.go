package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

func TestWhoEnqueues(t *testing.T) {
	var p play
	enqueue := func(ns int64, proc, via string, phase history.Phase, ids ...int64) {
		e := history.Event{Op: history.Enqueue, Via: via}
		for _, id := range ids {
			e.Refs = append(e.Refs, history.Ref{Token: token(id)})
			if phase == history.OK {
				p.enqueueLine(ns+ms, id, script.Short)
			}
		}
		p.call(ns, ns+2*ms, proc, phase, e)
	}
	enqueue(begin-10*sec, "harness", "go", history.OK, 1, 2, 3) // to measure what the machine can do
	enqueue(begin+sec, "producer-1.1", "sql", history.OK, 4, 5)
	enqueue(begin+sec, "producer-2.1", "go", history.Failed, 6)
	enqueue(begin+sec, "producer-2.1", "go", history.Unknown, 7)
	enqueue(begin+2*sec, "worker-1.1", "parent", history.OK, 8)
	enqueue(begin+2*sec, "worker-1.1", "parent", history.Failed, 9)
	r := p.record()
	r.Begin, r.End = begin, begin+10*sec
	l := Measure(r).Load
	l.Calm, l.Seconds = 0, 0
	want := Load{Offered: 4, Acknowledged: 2, NotCommitted: 1, Unknown: 1, Children: 1}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Error(diff)
	}
}

// What comes while a promise holds, for its queue, until it is ended or runs out.
func TestSilentJobs(t *testing.T) {
	var p play
	promise := func(ns int64, proc, queue string, length int64) {
		e := history.Event{Op: history.Promise, Ref: history.Ref{Queue: queue}}
		if length > 0 {
			e.DB = (ns + length + offset) / 1000
		}
		p.event(ns, proc, e)
	}
	enqueue := func(ns int64, queue string) {
		p.enqueueLine(ns, ns, script.Short)
		p.lines[len(p.lines)-1].Queue = queue
	}
	promise(begin+sec, "worker-1.1", "main", 2*sec)
	promise(begin+2*sec, "worker-1.1", "main", 2*sec) // renewed
	promise(begin+3*sec, "worker-1.1", "main", 0)
	promise(begin+5*sec, "worker-2.1", "main", 2*sec) // and dies
	promise(begin+5*sec, "worker-1.1", "side", 2*sec)
	for _, half := range []int64{1, 3, 5, 7, 9, 11, 13, 15} {
		enqueue(begin+half*sec/2, "main")
		enqueue(begin+half*sec/2, "bin")
	}
	if got, want := Measure(p.record()).Load.Silent, 4; got != want { // at 1.5, 2.5, 5.5 and 6.5 s
		t.Errorf("%d jobs came in silence, not %d", got, want)
	}
}

func TestEnqueueingThatABellPrevents(t *testing.T) {
	for text, want := range map[string]int{
		"commit: ERROR: too many notifications in the NOTIFY queue (SQLSTATE 54000)": 1,
		"jobs: ERROR: something is too large (SQLSTATE 54000)":                       1,
		"commit: too many notifications in the NOTIFY queue":                         1,
		"begin: FATAL: sorry, too many clients already (SQLSTATE 53300)":             0,
		"": 0,
	} {
		var p play
		for _, proc := range []string{"producer-1.1", "worker-1.1"} {
			p.call(begin, begin+ms, proc, history.Failed, history.Event{Op: history.Enqueue, Refs: []history.Ref{{Token: "t"}}, Error: text})
		}
		// Others may well be refused.
		p.call(begin, begin+ms, "operator-1.1", history.Failed, history.Event{Op: history.Operate, Error: text})
		if got := Measure(p.record()).Bells; len(got) != 2*want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// A transaction that had rung before the queue became full fails at its commit,
// which nothing can help; one that began later must not ring.
func TestABellThatWasRungBefore(t *testing.T) {
	for after, want := range map[int64]int{-ms: 0, 500 * ms: 0, 2 * sec: 1} {
		var p play
		at := begin + 10*sec
		p.call(at, at+20*sec, "harness", history.OK, history.Event{Op: history.Fault, Ref: history.Ref{Verb: "several/notify-full"}})
		p.call(at+after, at+3*sec, "producer-1.1", history.Failed, history.Event{
			Op: history.Enqueue, Refs: []history.Ref{{Token: "t"}},
			Error: "commit: ERROR: too many notifications in the NOTIFY queue (SQLSTATE 54000)",
		})
		if got := Measure(p.record()).Bells; len(got) != want {
			t.Errorf("%d ms after the fault began: %q", after/ms, got)
		}
	}
}
