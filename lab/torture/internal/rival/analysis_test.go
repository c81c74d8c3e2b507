package rival

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// The logs of these tests count in seconds; jobs are numbered.
const sec = int64(time.Second)

func claimed(at int64, app string, job int64, attempt int) change {
	return change{At: at * sec, App: app, Job: job, From: waiting, To: running, Before: attempt - 1, After: attempt}
}

func completed(at int64, app string, job int64, attempt int) change {
	return change{At: at * sec, App: app, Job: job, From: running, To: ended, Before: attempt, After: attempt}
}

func failed(at int64, app string, job int64, attempt int) change {
	c := completed(at, app, job, attempt)
	c.To = waiting
	return c
}

func rescued(at int64, app string, job int64, attempt int) change {
	c := failed(at, app, job, attempt)
	c.Rescue = true
	return c
}

func extended(at int64, app string, job int64, attempt int) change {
	c := completed(at, app, job, attempt)
	c.To = running
	return c
}

// ran is a run of a handler; until 0, it did not return.
func ran(job int64, attempt int, worker string, from, until int64) execution {
	return execution{Job: job, Attempt: attempt, Worker: worker, Start: from * sec, End: until * sec}
}

// figures are those that logs are judged by.
type figures struct {
	Held, Recovered, Stale, Late, Lost, Doubled int
	Median, Max                                 float64
}

func (r record) figures() figures {
	var row Row
	r.fill(&row)
	return figures{row.Held, row.Recovered, row.StaleAccepted, r.late(), row.Lost, row.Doubled, row.MedianSeconds, row.MaxSeconds}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	// A worker freezes with a job, which is given to another, and wakes up while
	// that one works on it.
	froze := frozen("frozen", 11*sec)
	froze.Until = 25 * sec
	taken := []change{
		claimed(10, "frozen", 1, 1), extended(11, "frozen", 1, 1),
		rescued(20, "other", 1, 1), claimed(21, "third", 1, 2),
	}
	twice := []execution{ran(1, 1, "frozen", 10, 25), ran(1, 2, "third", 21, 30)}
	// A server goes away from 10 to 20.
	crashed := fault{Victims: []string{"a", "b"}, At: 10 * sec, Until: 20 * sec, Count: 20 * sec}

	for name, test := range map[string]struct {
		record record
		want   figures
	}{
		"nothing": {},
		"a late outcome is refused": {
			record{Faults: []fault{froze}, Changes: append(taken[:4:4], completed(30, "third", 1, 2)), Runs: twice},
			figures{Held: 1, Recovered: 1, Late: 1, Doubled: 1, Median: 10, Max: 10},
		},
		"a late completion is accepted": {
			record{Faults: []fault{froze}, Changes: append(taken[:4:4], completed(26, "frozen", 1, 2)), Runs: twice},
			figures{Held: 1, Recovered: 1, Stale: 1, Late: 1, Doubled: 1, Median: 10, Max: 10},
		},
		"a late failure is accepted": {
			record{Faults: []fault{froze}, Changes: append(taken[:4:4], failed(26, "frozen", 1, 2)), Runs: twice},
			figures{Held: 1, Recovered: 1, Stale: 1, Late: 1, Doubled: 1, Median: 10, Max: 10},
		},
		"a late completion is accepted in the process that has the job again": {
			record{
				Faults:  []fault{froze},
				Changes: []change{claimed(10, "frozen", 1, 1), rescued(20, "other", 1, 1), claimed(26, "frozen", 1, 2), completed(28, "frozen", 1, 2)},
				Runs:    []execution{ran(1, 1, "frozen", 10, 27), ran(1, 2, "frozen", 26, 30)},
			},
			figures{Held: 1, Recovered: 1, Stale: 1, Late: 1, Doubled: 1, Median: 15, Max: 15},
		},
		"it wakes up before anybody has taken its job": {
			record{
				Faults: []fault{froze}, Changes: []change{claimed(10, "frozen", 1, 1), completed(26, "frozen", 1, 1)},
				Runs: []execution{ran(1, 1, "frozen", 10, 25)},
			},
			figures{Held: 1, Recovered: 1, Median: 15, Max: 15},
		},
		"what ran before the fault is no recovery": {
			record{
				Faults:  []fault{killed("dead", 10*sec)},
				Changes: []change{claimed(1, "other", 1, 1), failed(2, "other", 1, 1), claimed(9, "dead", 1, 2)},
				Runs:    []execution{ran(1, 1, "other", 1, 2), ran(1, 2, "dead", 9, 0)},
			},
			figures{Held: 1},
		},
		"one of two acknowledged jobs is lost, and one is there that nobody knows of": {
			record{Acked: []string{"x", "y"}, Ended: map[string]bool{"x": false, "z": true}},
			figures{Lost: 1},
		},
		"of four jobs of a killed worker three run again, the one that it had completed not being one": {
			record{
				Faults: []fault{killed("dead", 10*sec)},
				Changes: []change{
					claimed(1, "dead", 1, 1), completed(2, "dead", 1, 1),
					claimed(8, "dead", 2, 1), claimed(8, "dead", 3, 1), claimed(9, "dead", 4, 1), claimed(11, "dead", 5, 1), claimed(9, "other", 6, 1),
					rescued(13, "other", 2, 1), rescued(13, "other", 3, 1), rescued(17, "other", 4, 1),
					claimed(14, "other", 2, 2), claimed(15, "other", 3, 2), claimed(18, "other", 4, 2),
				},
				Runs: []execution{
					ran(1, 1, "dead", 1, 2), ran(2, 1, "dead", 8, 0), ran(3, 1, "dead", 8, 0), ran(4, 1, "dead", 9, 0), ran(6, 1, "other", 9, 0),
					ran(2, 2, "other", 14, 15), ran(3, 2, "other", 15, 16), ran(4, 2, "other", 18, 20),
				},
			},
			figures{Held: 4, Recovered: 3, Median: 5, Max: 8},
		},
		"two live workers run one job": {
			record{Runs: []execution{ran(1, 1, "a", 1, 0), ran(1, 2, "b", 5, 6), ran(2, 1, "a", 1, 5), ran(2, 2, "b", 5, 6)}},
			figures{Doubled: 1},
		},
		"a crash: the clock starts when the server is back and the handler has returned": {
			record{
				Faults: []fault{crashed},
				Changes: []change{
					claimed(1, "a", 1, 1), claimed(2, "a", 2, 1), claimed(3, "b", 3, 1), claimed(4, "b", 4, 1),
					completed(9, "b", 4, 1), // before the crash
					completed(21, "a", 1, 1), completed(30, "a", 2, 1),
					claimed(25, "b", 5, 1), // after it
					completed(26, "b", 5, 1),
				},
				Runs: []execution{
					ran(1, 1, "a", 1, 15), ran(2, 1, "a", 2, 28), ran(3, 1, "b", 3, 15), ran(4, 1, "b", 4, 8), ran(5, 1, "b", 25, 26),
				},
			},
			figures{Held: 3, Recovered: 2, Median: 1.5, Max: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, test.record.figures()); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

// What counts is that another process has begun a job, not that an outcome was
// on its way.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	f := frozen("frozen", 10*sec)
	r := record{
		Changes: []change{
			claimed(5, "frozen", 1, 1), completed(10, "frozen", 1, 1), claimed(9, "frozen", 2, 1), claimed(9, "frozen", 3, 1), claimed(12, "other", 4, 1),
			rescued(15, "other", 3, 1),
		},
		Runs: []execution{ran(1, 1, "frozen", 5, 9), ran(2, 1, "frozen", 9, 0), ran(3, 1, "frozen", 9, 0), ran(4, 1, "other", 12, 13)},
	}
	if started, held := r.elsewhere(f); started != 0 || held != 2 {
		t.Errorf("%d of %d started elsewhere, want 0 of 2", started, held)
	}
	r.Runs = append(r.Runs, ran(3, 2, "other", 20, 0))
	if started, held := r.elsewhere(f); started != 1 || held != 2 {
		t.Errorf("%d of %d started elsewhere, want 1 of 2", started, held)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for want, of := range map[time.Duration][]time.Duration{0: nil, 3: {3}, 4: {9, 4, 1}, 6: {8, 4, 100, 1}} {
		if got := median(of); got != want {
			t.Errorf("median of %v: %v", of, got)
		}
	}
}

func TestRunsPairStartsWithReturns(t *testing.T) {
	t.Parallel()
	event := func(at int64, op history.Op, proc string, n, job int64) history.Event {
		return history.Event{At: at, Op: op, Proc: proc, N: n, Ref: history.Ref{Job: job, Attempt: 1}}
	}
	got, refused := runs([]history.Event{
		event(1, history.Start, "a", 1, 7), event(2, history.Start, "b", 1, 8), event(3, history.End, "b", 1, 8),
		event(4, history.Start, "a", 2, 9), event(5, history.End, "a", 1, 7), event(6, history.Refused, "a", 0, 7),
	})
	want := []execution{
		{Job: 7, Attempt: 1, Worker: "a", Start: 1, End: 5},
		{Job: 8, Attempt: 1, Worker: "b", Start: 2, End: 3},
		{Job: 9, Attempt: 1, Worker: "a", Start: 4},
	}
	if diff := cmp.Diff(want, got); diff != "" || refused != 1 {
		t.Errorf("%d refused, want 1; runs want (-), got (+):\n%s", refused, diff)
	}
}

// What Fencepost writes when it takes a job from its holder is known by its
// text, which stays with the job: only that of the attempt that ends counts.
func TestFencepostRescues(t *testing.T) {
	t.Parallel()
	line := func(op, before, after string, attempt int, text string) witness.Line {
		return witness.Line{
			Place: "jobs", Op: op, ID: 1, Error: text,
			Before: witness.State{Status: before, Attempts: attempt}, After: witness.State{Status: after, Attempts: attempt},
		}
	}
	const died, over = "worker w died in attempt 1 of 20", "lease of worker w ran out in attempt 1 of 20"
	for i, test := range []struct {
		line   witness.Line
		rescue bool
		to     state
	}{
		{line("UPDATE", "running", "ready", 1, died), true, waiting},
		{line("UPDATE", "running", "ready", 1, over), true, waiting},
		{line("UPDATE", "running", "ready", 2, over), false, waiting}, // handed back
		{line("UPDATE", "running", "ready", 1, "it failed"), false, waiting},
		{line("DELETE", "running", "", 1, over), false, ended},
		{line("UPDATE", "ready", "running", 1, over), false, running},
		{line("UPDATE", "running", "running", 1, over), false, running},
	} {
		c, ok := fencepostChange(test.line)
		if !ok || c.Rescue != test.rescue || c.To != test.to {
			t.Errorf("line %d: %+v, %v; want rescue %v, to %v", i, c, ok, test.rescue, test.to)
		}
	}
	for _, l := range []witness.Line{{Place: "finished", Op: "INSERT"}, {Place: "jobs", Op: "INSERT"}} {
		if c, ok := fencepostChange(l); ok {
			t.Error(fmt.Sprint(l.Place, l.Op), c)
		}
	}
}
