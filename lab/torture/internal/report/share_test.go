package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

func TestJobsThatTakeLongerAreNoShortfall(t *testing.T) {
	// At the end of what is looked at, some are in their handlers, and some wait
	// for a time of their own.
	f, _ := measured(t, func(_ *load, p *play) {
		for i := range int64(30) {
			id := 100_000 + i
			ready := p.enqueue(begin+36*sec, id, script.Deaf, 0)
			p.claim(begin+36*sec+5*ms, id, script.Deaf, "worker-1.1", ready)
		}
		for i := range int64(30) {
			id := 200_000 + i
			running := p.claim(begin+36*sec+5*ms, id, script.Snooze, "worker-1.1", p.enqueue(begin+36*sec, id, script.Snooze, 0))
			p.event(begin+36*sec+10*ms, "worker-1.1", history.Event{Op: history.End, Ref: history.Ref{Job: id, Fence: running.Fence}})
			later := running
			later.Status, later.Fence, later.RunAt = "ready", running.Fence+1, at(begin+50*sec)
			p.line(begin+36*sec+11*ms, "UPDATE", id, script.Snooze, running, later)
		}
	})
	// Beside them long ones of the load itself: 10 a second, for 2 s.
	if f.LeftOut < 60 || f.LeftOut > 90 || !f.OK() {
		t.Errorf("%d left out, share %v, missed %v", f.LeftOut, *f.Share, f.Missed)
	}
	near(t, "share", f.Share, 1, 0)
}

func TestJobsOfAProcessThatAJobHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		died int64 // before the end of what is looked at, which is at 38 s
		ok   bool
		// The answer to its claim was under way: only the database knows who has the jobs.
		untold bool
	}{
		"a moment ago":                   {2 * sec, true, false},
		"for far too long":               {7 * sec, false, false},
		"by the harness":                 {2 * sec, false, false},
		"it is still there":              {-1 * sec, false, false},
		"with a claim under way":         {2 * sec, true, true},
		"so, for far too long":           {7 * sec, false, true},
		"so, and it is still there also": {-1 * sec, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := measured(t, func(_ *load, p *play) {
				died := begin + 38*sec - c.died
				claimed := min(died, begin+37*sec) - 100*ms
				p.claim(claimed, 99_999, script.Killer, "worker-9.1", p.enqueue(claimed-5*ms, 99_999, script.Killer, 0))
				for i := range int64(30) {
					id := 100_000 + i
					ready := p.enqueue(claimed-5*ms, id, script.Short, 0)
					if c.untold {
						p.event(claimed, "worker-9.1", history.Event{Op: history.Claim, Phase: history.Call, Worker: "host:9"})
						p.line(claimed, "UPDATE", id, script.Short, ready, witness.State{Status: "running", Fence: 2_000_000 + i, Attempts: 1, Worker: "host:9"})
						continue
					}
					running := p.claim(claimed, id, script.Short, "worker-9.1", ready)
					p.call(claimed, claimed+ms, "worker-9.1", history.OK, history.Event{Op: history.Claim, Refs: []history.Ref{{Job: id, Fence: running.Fence}}})
				}
				if name == "by the harness" {
					p.event(died-ms, "harness", history.Event{Op: history.Kill, Target: "worker-9.1"})
				}
				p.event(died, "harness", history.Event{Op: history.Exit, Target: "worker-9.1"})
			})
			if f.OK() != c.ok {
				t.Errorf("share %v, left out %d, missed %v", *f.Share, f.LeftOut, f.Missed)
			}
		})
	}
}

func TestAnOperatorBringsJobsBack(t *testing.T) {
	f, figures := measured(t, func(_ *load, p *play) {
		for i := range int64(30) { // done at 30 s, again at 50 s
			id := 100_000 + i
			ready := p.enqueue(begin+30*sec, id, script.Short, 0)
			p.finish(begin+30*sec+20*ms, id, script.Short, "worker-1.1", p.claim(begin+30*sec+10*ms, id, script.Short, "worker-1.1", ready))
			p.line(begin+50*sec, "INSERT", id, script.Short, witness.State{}, ready)
			p.finish(begin+50*sec+20*ms, id, script.Short, "worker-1.1", p.claim(begin+50*sec+10*ms, id, script.Short, "worker-1.1", ready))
		}
	})
	near(t, "share", f.Share, 1, 0)
	// Each was enqueued once, and completed twice.
	if b := figures.Bins[60]; b.Enqueued != 160 || b.Completed != 160 {
		t.Errorf("%+v", b)
	}
	if b := figures.Bins[100]; b.Enqueued != 100 || b.Completed != 160 {
		t.Errorf("%+v", b)
	}
	if figures.Load.Completed != 6030 {
		t.Errorf("%+v", figures.Load)
	}
}

func TestShortJobsAreNeverAtWork(t *testing.T) {
	f, _ := measured(t, func(_ *load, p *play) {
		for i := range int64(30) {
			id := 100_000 + i
			p.claim(begin+36*sec+5*ms, id, script.Short, "worker-1.1", p.enqueue(begin+36*sec, id, script.Short, 0))
		}
	})
	if f.OK() {
		t.Errorf("share %v", *f.Share)
	}
}

// What is looked at is offered from 27 to 37 s and completed until 38 s: 1000
// jobs, of which thirty are too many.

func TestHowJobsEnd(t *testing.T) {
	const few, many = 3, 20
	for name, c := range map[string]struct {
		kind    string
		status  string // "": without a trace
		max     int
		operate func(p *play, at int64, id int64) // what an operator does a moment before
		left    bool                              // out
		ok      bool
	}{
		"done":                              {script.Short, "done", many, nil, false, true},
		"done without a trace":              {script.Short, "", many, nil, false, true},
		"dead":                              {script.Short, "dead", many, nil, false, false},
		"dead by its own word":              {script.Hopeless, "dead", many, nil, false, true},
		"dead after all its few attempts":   {script.Fail, "dead", few, nil, false, true},
		"dead after many":                   {script.Fail, "dead", many, nil, false, false},
		"dead with all its processes":       {script.Killer, "dead", few, nil, false, true},
		"dead, as no operator makes jobs":   {script.Short, "dead", many, operates("cancel", history.OK, "done"), false, false},
		"cancelled by itself":               {script.Off, "cancelled", many, nil, false, true},
		"cancelled by nobody":               {script.Short, "cancelled", many, nil, false, false},
		"cancelled by an operator":          {script.Short, "cancelled", many, operates("cancel", history.OK, "done"), true, true},
		"perhaps by an operator":            {script.Short, "cancelled", many, operates("cancel", history.Unknown, ""), true, true},
		"not by an operator, who came late": {script.Short, "cancelled", many, operates("cancel", history.OK, "left"), false, false},
		"nor by one who could not":          {script.Short, "cancelled", many, operates("cancel", history.Failed, ""), false, false},
		"deleted by an operator":            {script.Short, "", many, operates("delete", history.OK, "done"), true, true},
		"done before an operator looked":    {script.Short, "", many, operates("delete", history.OK, "left"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, figures := measured(t, func(l *load, p *play) {
				l.from, l.to = begin+15*sec, begin+42*sec // no more than what matters here
				for i := range int64(30) {
					id, ns := 100_000+i, begin+30*sec+i*100*ms
					ready := p.enqueue(ns, id, c.kind, 0)
					p.lines[len(p.lines)-1].Max = c.max
					running := p.claim(ns+10*ms, id, c.kind, "worker-1.1", ready)
					if c.operate != nil {
						c.operate(p, ns+20*ms, id)
					}
					p.leave(ns+30*ms, id, c.kind, running, c.status)
				}
			})
			offered, left := 1030, 0
			if c.left {
				left = 30
			}
			if f.Offered != offered || f.LeftOut-left > 20 || f.LeftOut < left || f.OK() != c.ok {
				t.Errorf("%d offered, %d left out, share %v, missed %q", f.Offered, f.LeftOut, *f.Share, f.Missed)
			}
			if amiss := c.status == "dead" && !c.ok; amiss != (len(figures.Dead) == 30) || !amiss && len(figures.Dead) > 0 {
				t.Errorf("%d dead: %q", len(figures.Dead), figures.Dead)
			}
		})
	}
}

// operates is what an operator does to one job, and what comes of it.
func operates(verb string, phase history.Phase, result string) func(*play, int64, int64) {
	return func(p *play, at int64, id int64) {
		e := history.Event{Op: history.Operate, Ref: history.Ref{Verb: verb}, Refs: []history.Ref{{Job: id}}}
		p.call(at, at+20*ms, "operator-1.1", phase, e)
		back := &p.events[len(p.events)-1]
		if back.Refs = nil; result != "" {
			back.Refs = []history.Ref{{Job: id, Result: result}}
		}
	}
}

func TestWhatCouldNotBeEnqueued(t *testing.T) {
	const producer = "producer-2.1"
	send := func(hold int64, refs int) history.Event {
		e := history.Event{Op: history.Enqueue, Ref: history.Ref{Delay: hold}, Via: "go"}
		for i := range refs {
			e.Refs = append(e.Refs, history.Ref{Token: token(200_000 + int64(i))})
		}
		return e
	}
	// open is a call without a return.
	open := func(p *play, at int64, e history.Event) {
		p.call(at, at, producer, history.OK, e)
		p.events = p.events[:len(p.events)-1]
	}
	for name, c := range map[string]struct {
		play func(*play)
		want int // not enqueued
	}{
		"an enqueue that fails": {func(p *play) {
			p.call(begin+30*sec, begin+31*sec, producer, history.Failed, send(0, 30))
		}, 30},
		"one that fails now and then": {func(p *play) {
			p.call(begin+30*sec, begin+31*sec, producer, history.Failed, send(0, 5))
		}, 5},
		"of which nobody knows, and its jobs are done": {func(p *play) {
			p.call(begin+30*sec, begin+31*sec, producer, history.Unknown, send(0, 30))
			for i := range int64(30) {
				id, ns := 200_000+i, begin+30*sec+20*ms
				p.leave(ns+30*ms, id, script.Short, p.claim(ns+10*ms, id, script.Short, "worker-1.1", p.enqueueLine(ns, id, script.Short)), "done")
			}
		}, 30},
		"before that time": {func(p *play) {
			p.call(begin+26900*ms, begin+27100*ms, producer, history.Failed, send(0, 30))
		}, 0},
		"after it": {func(p *play) {
			p.call(begin+37100*ms, begin+37200*ms, producer, history.Failed, send(0, 30))
		}, 0},
		"rolled back as planned": {func(p *play) {
			e := send(0, 500)
			e.Note = asPlanned
			p.call(begin+30*sec, begin+31*sec, producer, history.Failed, e)
		}, 0},
		"held open by plan": {func(p *play) {
			open(p, begin+33*sec, send(5*sec, 30))
		}, 0},
		"held open by plan, and then not": {func(p *play) {
			p.call(begin+36*sec, begin+41*sec, producer, history.Failed, send(5*sec, 30))
		}, 0},
		"open for longer than that": {func(p *play) {
			open(p, begin+31*sec, send(5*sec, 30))
		}, 30},
		"open by no plan": {func(p *play) {
			p.call(begin+36*sec, begin+39*sec, producer, history.OK, send(0, 30))
		}, 30},
		"held open by plan, and a moment longer": {func(p *play) {
			p.call(begin+36*sec, begin+38010*ms, producer, history.OK, send(1100*ms, 30))
		}, 0},
		"by a handler": {func(p *play) {
			p.call(begin+30*sec, begin+31*sec, "worker-1.1", history.Failed, send(0, 30))
		}, 0},
		"not begun": {func(p *play) {
			p.event(begin+30*sec, producer, history.Event{Op: history.Missed, Asked: 1000})
		}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := measured(t, func(l *load, p *play) {
				l.from, l.to = begin+15*sec, begin+42*sec
				c.play(p)
			})
			if f.NotEnqueued != c.want || f.Offered != 1000+c.want || f.OK() != (c.want < 10) {
				t.Errorf("%d offered, %d not enqueued, share %v, missed %q", f.Offered, f.NotEnqueued, *f.Share, f.Missed)
			}
			if says := slices.ContainsFunc(f.Missed, func(m string) bool { return strings.Contains(m, "could not be enqueued") }); says == f.OK() {
				t.Errorf("%q", f.Missed)
			}
		})
	}
}
