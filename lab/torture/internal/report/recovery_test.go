package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// begin is when the load of these tests begins, so that nothing depends on zero.
const begin = 1000 * sec

// measured runs a load of 60 s with a fault from 20 to 22 s.
func measured(t *testing.T, change func(*load, *play)) (Fault, Figures) {
	t.Helper()
	var p play
	l := load{from: begin, to: begin + 60*sec, rate: 100, capacity: 400}
	p.fault(begin+20*sec, begin+22*sec, "stall")
	if change != nil {
		change(&l, &p)
	}
	p.run(l)
	f := Measure(p.record())
	if len(f.Faults) == 0 {
		t.Fatal("no fault")
	}
	return f.Faults[0], f
}

func near(t *testing.T, what string, got *float64, want, by float64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s: nothing, want %v", what, want)
	} else if math.Abs(*got-want) > by {
		t.Errorf("%s: %v, want %v ± %v", what, *got, want, by)
	}
}

func TestAFaultThatNobodyNotices(t *testing.T) {
	f, figures := measured(t, nil)
	near(t, "dip", f.Dip, 1, 0.05)
	near(t, "back to normal", f.Normal, 0, 0)
	near(t, "backlog back", f.BacklogBack, 0, 0)
	near(t, "share", f.Share, 1, 0)
	if f.Offered != 1000 || f.NotEnqueued != 0 || !f.OK() {
		t.Errorf("%d offered, missed %v", f.Offered, f.Missed)
	}
	l := figures.Load
	if l.Offered != 6000 || l.Acknowledged != 6000 || l.Completed != 6000 || l.Started != 6000 || math.Abs(l.Calm-100) > 0.5 {
		t.Errorf("%+v", l)
	}
	near(t, "p50", l.CalmP50, 0.002, 0.0005)
}

func TestAStandstillAndItsEnd(t *testing.T) {
	// Nothing is claimed for 4 s; then 400 jobs wait, and 300 more can be done each
	// second than come in.
	f, figures := measured(t, func(l *load, _ *play) { l.down = []span{{begin + 20*sec, begin + 24*sec}} })
	// The long jobs that run already end meanwhile: 10 a second, for 3 s.
	if f.Before < 95 || f.Lowest > 10 {
		t.Errorf("before %v, lowest %v", f.Before, f.Lowest)
	}
	near(t, "dip", f.Dip, 0.1, 0.01)
	near(t, "backlog back", f.BacklogBack, 3.3, 0.3)
	near(t, "peak", &f.Peak, 395, 30)
	near(t, "share", f.Share, 1, 0)
	if f.Normal == nil || *f.Normal < *f.BacklogBack || *f.Normal > 5 {
		t.Errorf("back to normal after %v", f.Normal)
	}
	if !f.OK() {
		t.Error(f.Missed)
	}
	bin := figures.Bins[2*21] // from 21 s to 21.5 s
	near(t, "backlog in the middle", &bin.Backlog, 125, 2)
	near(t, "p50 in the middle", bin.P50, 2.75+0.31, 0.1)
	if bin.Completed != 10 || bin.Enqueued != 100 {
		t.Errorf("%+v", bin)
	}
}

func TestTargetsThatAreMissed(t *testing.T) {
	missed := func(f Fault, what string) bool {
		return slices.ContainsFunc(f.Missed, func(m string) bool { return strings.Contains(m, what) })
	}
	t.Run("nothing is claimed any more", func(t *testing.T) {
		f, _ := measured(t, func(l *load, _ *play) { l.down = []span{{begin + 20*sec, begin + 59*sec}} })
		if !missed(f, "backlog") || !missed(f, "completed") || f.Normal != nil || f.BacklogBack != nil {
			t.Errorf("%+v", f)
		}
		near(t, "share", f.Share, 0, 0)
	})
	t.Run("the backlog takes 12 s", func(t *testing.T) {
		// 14 s after the base: at 1000 a second it is gone 1.5 s later, so that all
		// that was offered is completed in time but for what came last.
		f, _ := measured(t, func(l *load, _ *play) {
			l.capacity = 2000
			l.down = []span{{begin + 20*sec, begin + 34*sec}}
		})
		if !missed(f, "backlog") || missed(f, "completed") {
			t.Errorf("%+v", f.Missed)
		}
		near(t, "backlog back", f.BacklogBack, 12.7, 0.5)
	})
	t.Run("two in a hundred are stuck", func(t *testing.T) {
		f, _ := measured(t, func(_ *load, p *play) {
			for i := range int64(21) {
				p.enqueue(begin+28*sec+i*sec/4, 100_000+i, script.Short, 0)
			}
		})
		if !missed(f, "completed") {
			t.Errorf("%+v", f)
		}
		near(t, "share", f.Share, 980./1001, 0.0005) // 20 long ones are at work
	})
	t.Run("two in a hundred are stuck that are not short", func(t *testing.T) {
		f, _ := measured(t, func(_ *load, p *play) {
			for i := range int64(21) {
				p.enqueue(begin+28*sec+i*sec/4, 100_000+i, script.Long, 0)
			}
		})
		if !missed(f, "completed") {
			t.Errorf("%+v", f)
		}
	})
	t.Run("two in a hundred are claimed and not run", func(t *testing.T) {
		f, _ := measured(t, func(_ *load, p *play) {
			for i := range int64(21) {
				id := 100_000 + i
				p.claim(begin+28*sec+i*sec/4+5*ms, id, script.Long, "worker-1.1", p.enqueue(begin+28*sec+i*sec/4, id, script.Long, 0))
			}
			p.events = slices.DeleteFunc(p.events, func(e history.Event) bool { return e.Op == history.Start && e.Job >= 100_000 })
		})
		if !missed(f, "completed") {
			t.Errorf("%+v", f)
		}
	})
	t.Run("two in a hundred have run and are not stored", func(t *testing.T) {
		f, _ := measured(t, func(_ *load, p *play) {
			for i := range int64(21) {
				id, ns := 100_000+i, begin+28*sec+i*sec/4
				running := p.claim(ns+5*ms, id, script.Long, "worker-1.1", p.enqueue(ns, id, script.Long, 0))
				p.event(ns+sec, "worker-1.1", history.Event{Op: history.End, Ref: history.Ref{Job: id, Fence: running.Fence}})
			}
		})
		if !missed(f, "completed") {
			t.Errorf("%+v", f)
		}
	})
	t.Run("producers stay away", func(t *testing.T) {
		f, _ := measured(t, func(l *load, _ *play) { l.closed = []span{{begin + 26*sec, begin + 32*sec}} })
		if !missed(f, "500 could not be enqueued") {
			t.Errorf("%+v", f.Missed)
		}
		near(t, "share", f.Share, 0.5, 0.02)
	})
	t.Run("the fault failed", func(t *testing.T) {
		f, _ := measured(t, func(_ *load, p *play) {
			p.events[1].Phase, p.events[1].Error = history.Failed, "no tmpfs"
		})
		if f.OK() || f.Error != "no tmpfs" {
			t.Errorf("%+v", f)
		}
	})
	t.Run("the fault did not end", func(t *testing.T) {
		f, _ := measured(t, func(_ *load, p *play) { p.events = p.events[:1] })
		if f.OK() || f.NotJudged == "" {
			t.Errorf("%+v", f)
		}
	})
}

func TestRecoveryCountsFromWhenAServerIsReady(t *testing.T) {
	down := []span{{begin + 20*sec, begin + 30*sec}}
	f, _ := measured(t, func(l *load, p *play) {
		for _, w := range []string{"worker-8.1", "worker-9.1"} {
			p.event(begin, w, history.Event{Op: history.Hello})
		}
		// A later life has its first answer when it begins.
		p.event(begin+34*sec, "worker-9.2", history.Event{Op: history.Hello})
		p.call(begin+35*sec, begin+35*sec+ms, "worker-9.2", history.OK, history.Event{Op: history.Claim})
		l.down, l.closed = down, []span{{begin + 22*sec, begin + 30*sec}}
		p.event(begin+30*sec, "harness", history.Event{Op: history.Ready})
		p.call(begin+29*sec, begin+30*sec+400*ms, "worker-8.1", history.OK, history.Event{Op: history.Claim})
		p.call(begin+30*sec, begin+30*sec+700*ms, "worker-9.1", history.OK, history.Event{Op: history.Claim})
		p.call(begin+30*sec, begin+31*sec, "worker-9.1", history.OK, history.Event{Op: history.Claim})
	})
	if f.End != 22 || f.Base != 30 || !f.OK() {
		t.Errorf("%+v", f)
	}
	near(t, "reconnect", f.Reconnect, 0.7, 0)
	near(t, "backlog back", f.BacklogBack, 0.5, 0.5)
}

func TestFaultsCloseTogether(t *testing.T) {
	t.Run("the next one ends the look", func(t *testing.T) {
		f, _ := measured(t, func(_ *load, p *play) { p.fault(begin+31*sec, begin+32*sec, "next") })
		if f.NotJudged != "" || f.Offered != 300 { // from 27 to 30 s
			t.Errorf("%+v", f)
		}
	})
	t.Run("too soon", func(t *testing.T) {
		f, figures := measured(t, func(_ *load, p *play) { p.fault(begin+28*sec, begin+29*sec, "next") })
		if f.NotJudged != tooSoon || f.Share != nil || !f.OK() {
			t.Errorf("%+v", f)
		}
		if figures.Faults[1].NotJudged != "" {
			t.Errorf("%+v", figures.Faults[1])
		}
	})
	t.Run("released in another order", func(t *testing.T) {
		f, _ := measured(t, func(_ *load, p *play) { p.fault(begin+21*sec, begin+40*sec, "longer") })
		if !strings.Contains(f.NotJudged, "longer") {
			t.Errorf("%+v", f)
		}
	})
	t.Run("the backlog is another's", func(t *testing.T) {
		f, figures := measured(t, func(l *load, p *play) {
			p.fault(begin+21*sec, begin+44*sec, "standstill")
			l.to, l.down = begin+80*sec, []span{{begin + 20*sec, begin + 44*sec}}
		})
		if !f.OK() || f.BacklogBack == nil || *f.BacklogBack < 20 {
			t.Errorf("%+v", f)
		}
		if !figures.Faults[1].OK() { // which has 8 s for 2400 jobs
			t.Errorf("%+v", figures.Faults[1])
		}
	})
	t.Run("under one that lasts", func(t *testing.T) {
		var p play
		p.fault(begin+5*sec, begin+50*sec, "snapshot")
		p.fault(begin+20*sec, begin+22*sec, "stall")
		p.run(load{from: begin, to: begin + 70*sec, rate: 100, capacity: 400})
		f := Measure(p.record()).Faults
		if f[0].NotJudged != "" || f[1].NotJudged != "" || f[1].Offered != 1000 {
			t.Errorf("%+v", f)
		}
	})
}

func TestAJobIsCountedFromItsCommit(t *testing.T) {
	// Its transaction is open for 8 s, its completion for 5.
	var p play
	p.call(begin, begin+8*sec, "producer-1.1", history.OK, history.Event{Op: history.Enqueue, Refs: []history.Ref{{Token: token(1)}}})
	ready := p.enqueueLine(begin+ms, 1, script.SlowTx)
	running := p.claim(begin+8*sec+100*ms, 1, script.SlowTx, "worker-1.1", ready)
	p.call(begin+9*sec, begin+14*sec, "worker-1.1", history.OK, history.Event{Op: history.Complete, Ref: history.Ref{Job: 1, Fence: running.Fence}})
	p.line(begin+9*sec, "DELETE", 1, script.SlowTx, running, ready)
	p.lines[len(p.lines)-1].After.Status = ""
	r := p.record()
	r.End = begin + 20*sec
	f := Measure(r)
	if len(f.Bins) != 40 {
		t.Fatalf("%d bins", len(f.Bins))
	}
	for i, b := range f.Bins {
		if enqueued, completed := i == 16, i == 28; (b.Enqueued > 0) != enqueued || (b.Completed > 0) != completed {
			t.Errorf("%+v", b)
		}
	}
	near(t, "latency", f.Bins[16].P50, 0.101, 0.001)
}

func TestWaits(t *testing.T) {
	for name, c := range map[string]struct {
		play func(*play)
		want []wait
	}{
		"claimed before its producer was told of the commit": {func(p *play) {
			p.call(begin, begin+5*sec, "producer-1.1", history.OK, history.Event{Op: history.Enqueue, Refs: []history.Ref{{Token: token(1)}}})
			p.claim(begin+sec, 1, script.Long, "worker-1.1", p.enqueueLine(begin, 1, script.Long))
		}, []wait{{begin + sec, begin + sec, 1_000_001}}},
		"due later": {func(p *play) {
			p.claim(begin+9*sec, 1, script.Long, "worker-1.1", p.enqueue(begin, 1, script.Long, begin+8*sec))
		}, []wait{{begin + 8*sec, begin + 9*sec, 1_000_001}}},
		"cancelled before it was due": {func(p *play) {
			p.line(begin+sec, "DELETE", 1, script.Long, p.enqueue(begin, 1, script.Long, begin+8*sec), witness.State{})
		}, nil},
		"cancelled after": {func(p *play) {
			p.line(begin+9*sec, "DELETE", 1, script.Long, p.enqueue(begin, 1, script.Long, begin+8*sec), witness.State{})
		}, []wait{{begin + 8*sec, begin + 9*sec, 0}}},
		"never claimed": {func(p *play) {
			p.enqueue(begin, 1, script.Long, 0)
		}, []wait{{begin + 2*ms, never, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			var p play
			c.play(&p)
			m := newMeasure(p.record())
			if got := m.jobs[1].waits; !slices.Equal(got, c.want) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestBackToNormal(t *testing.T) {
	// Before the fault, from 5 to 6 s, the backlog was up to 20. Nothing else is known of
	// the run than its bins.
	const base = 12 // the first bin after the fault
	for name, c := range map[string]struct {
		change func(bins []Bin)
		back   *float64
		normal *float64
	}{
		"at once":                          {func([]Bin) {}, after(0), after(0)},
		"a backlog below that of before":   {func(b []Bin) { b[base].Backlog = 20 }, after(0), after(0)},
		"a backlog above it, for 1 s":      {func(b []Bin) { b[base].Backlog, b[base+1].Backlog = 21, 21 }, after(1), after(1)},
		"a moment of luck in between":      {func(b []Bin) { b[base].Backlog, b[base+2].Backlog = 21, 21 }, after(1.5), after(1.5)},
		"fewer are completed than come in": {func(b []Bin) { b[base].Completed = 50 }, after(0), after(0.5)},
		"none come in": {func(b []Bin) {
			for i := range b[base : base+4] {
				b[base+i].Enqueued, b[base+i].Completed = 0, 0
			}
		}, after(0), after(1.5)}, // 75 in a second is what comes between bursts
		"few come in": {func(b []Bin) {
			for i := range b[base : base+6] {
				b[base+i].Enqueued, b[base+i].Completed = 60, 60
			}
		}, after(0), after(1.5)},
		"a burst is missing": {func(b []Bin) {
			for i := range b[base : base+6] {
				b[base+i].Enqueued, b[base+i].Completed = 80, 80
			}
		}, after(0), after(0)},
		"never": {func(b []Bin) {
			for i := range b[base:] {
				b[base+i].Backlog = 100
			}
		}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bins := make([]Bin, 60)
			for i := range bins {
				bins[i] = Bin{At: float64(i) / 2, Enqueued: 100, Completed: 100}
			}
			bins[4].Backlog = 20
			c.change(bins)
			m := measure{Record: Record{Begin: begin, End: begin + 30*sec}}
			f := Fault{whole: span{begin + 5*sec, begin + 6*sec}, base: begin + 6*sec, next: begin + 30*sec}
			m.dip(&f, nil, bins)
			m.backlog(&f, nil, bins, 100)
			if diff := cmp.Diff([]*float64{c.back, c.normal}, []*float64{f.BacklogBack, f.Normal}); diff != "" {
				t.Error(diff)
			}
			if f.OK() != (c.back != nil) {
				t.Error(f.Missed)
			}
		})
	}
}

func after(s float64) *float64 { return &s }
