package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

func TestHowAProcessEnds(t *testing.T) {
	const proc = "worker-1.1"
	told := func(op history.Op) func(*play) {
		return func(p *play) { p.event(begin+sec, "harness", history.Event{Op: op, Target: proc}) }
	}
	starts := func(kind string) func(*play) {
		return func(p *play) { p.claim(begin+sec, 1, kind, proc, p.enqueue(begin, 1, kind, 0)) }
	}
	both := func(a, b func(*play)) func(*play) { return func(p *play) { a(p); b(p) } }
	none := func(*play) {}
	planned, byJob := Restarts{Planned: 1, Unplanned: []string{}}, Restarts{ByJob: 1, Unplanned: []string{}}
	unplanned := func(how string) Restarts { return Restarts{Unplanned: []string{proc + ": " + how}} }
	for name, c := range map[string]struct {
		before func(*play)
		how    string
		want   Restarts
	}{
		"by itself":                          {none, "", unplanned("by itself")},
		"with an error":                      {none, "exit status 1", unplanned("exit status 1")},
		"killed":                             {told(history.Kill), "signal: killed", planned},
		"told":                               {told(history.Term), "", planned},
		"told, and stuck in handlers":        {told(history.Term), "exit status 1", planned},
		"told, and too early":                {told(history.Term), "signal: terminated", planned},
		"told, and panics":                   {told(history.Term), "exit status 2", unplanned("exit status 2")},
		"told, and killed by somebody":       {told(history.Term), "signal: killed", unplanned("signal: killed")},
		"told, and breaks down":              {told(history.Term), "signal: segmentation fault (core dumped)", unplanned("signal: segmentation fault (core dumped)")},
		"told, and killed":                   {both(told(history.Term), told(history.Kill)), "signal: killed", planned},
		"killed while it panicked":           {told(history.Kill), "exit status 2", planned},
		"by a job":                           {starts(script.Exit), "exit status 3", byJob},
		"by a job that does it to all":       {starts(script.Killer), "exit status 3", byJob},
		"by a job, after it was told":        {both(starts(script.Exit), told(history.Term)), "exit status 3", planned},
		"by a panic, beside such a job":      {starts(script.Exit), "exit status 2", unplanned("exit status 2")},
		"by itself, beside another job":      {starts(script.Short), "exit status 3", unplanned("exit status 3")},
		"by the kernel, for want of memory":  {none, "signal: killed", unplanned("signal: killed")},
		"by somebody who terminates it, too": {none, "signal: terminated", unplanned("signal: terminated")},
	} {
		t.Run(name, func(t *testing.T) {
			var p play
			p.event(begin-sec, proc, history.Event{Op: history.Hello})
			c.before(&p)
			p.event(begin+2*sec, "harness", history.Event{Op: history.Exit, Target: proc, Error: c.how})
			p.event(begin+3*sec, "worker-1.2", history.Event{Op: history.Hello})
			if diff := cmp.Diff(c.want, restarts(p.record().Events)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRestarts(t *testing.T) {
	var p play
	hello := func(names ...string) {
		for _, name := range names {
			p.event(begin, name, history.Event{Op: history.Hello})
		}
	}
	exit := func(ns int64, name, how string) {
		p.event(ns, "harness", history.Event{Op: history.Exit, Target: name, Error: how})
	}
	hello("worker-1.1", "worker-1.2", "worker-2.1", "worker-2.2", "worker-2.3", "worker-3.9", "worker-3.10", "worker-4.1", "producer-1.1", "zombie-1.1", "zombie-1.2")
	p.event(begin+sec, "harness", history.Event{Op: history.Kill, Target: "worker-1.1"})
	exit(begin+2*sec, "worker-1.1", "signal: killed")
	// The last life is told to end; nobody follows it.
	p.event(begin+sec, "harness", history.Event{Op: history.Term, Target: "worker-1.2"})
	exit(begin+2*sec, "worker-1.2", "")
	// A job ends its process; another such job had come to its end before.
	killer := history.Ref{Job: 1, Fence: 2, Kind: script.Killer}
	p.event(begin+sec, "worker-2.1", history.Event{Op: history.Start, Ref: killer})
	exit(begin+2*sec, "worker-2.1", "exit status 3")
	p.event(begin+sec, "worker-2.2", history.Event{Op: history.Start, Ref: killer})
	p.event(begin+2*sec, "worker-2.2", history.Event{Op: history.End, Ref: killer})
	exit(begin+3*sec, "worker-2.2", "exit status 2")
	exit(begin+3*sec, "worker-3.9", "")
	exit(begin+3*sec, "producer-1.1", "exit status 1")
	// It is no worker.
	p.event(begin+sec, "harness", history.Event{Op: history.Kill, Target: "zombie-1.1"})
	exit(begin+2*sec, "zombie-1.1", "signal: killed")

	want := Restarts{Planned: 1, ByJob: 1, Unplanned: []string{
		"worker-2.2: exit status 2", "worker-3.9: by itself", "producer-1.1: exit status 1",
	}}
	if diff := cmp.Diff(want, Measure(p.record()).Restarts); diff != "" {
		t.Error(diff)
	}
}
