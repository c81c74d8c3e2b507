package suite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "held", About: "a backlog worked while somebody holds an old snapshot",
		Peers: []string{"river", "graphile"},
		Run:   heldSuite,
	})
}

const (
	// Small claims: the damage is the number of claims times what each of them
	// has to step over.
	heldClaims = 100
	// A drain is cut into so many windows, of which the last counts.
	heldWindows = 10
	// Without a bound of its own no peer would come to its last window.
	heldLimit = time.Minute
)

// heldCase is a way in which jobs come to be due.
type heldCase struct {
	target, what string
	entrants     []entrant
	how          drain
}

func heldSuite(ctx context.Context, b *Bench) error {
	at := wire.Options{Best: true, Keep: true, Slots: heldClaims, Batch: heldClaims}
	own := entrant{"fencepost", "fencepost", at}
	// Graphile's claims fill a local queue, from which its 24 jobs at once are taken.
	graphile := entrant{"graphile", "graphile", wire.Options{Best: true, Batch: heldClaims}}
	n := b.Size(200_000)
	load := wire.Produce{N: n, Bytes: 200, Way: "copy", Batch: 10_000}
	most, few := load, load
	few.N = n / 20
	few.DelayTo = 3 * time.Second
	most.N, few.First = n-few.N, n-few.N
	for _, c := range []heldCase{
		{
			target: "held_snapshot", what: "each job with a run_at of its own",
			entrants: []entrant{own, {"river", "river", at}, graphile},
			how:      drain{p: load},
		},
		{
			target: "held_snapshot_one", what: "all jobs with one run_at",
			entrants: []entrant{own},
			how:      drain{p: load, arrange: "UPDATE fencepost.jobs SET run_at = (SELECT min(run_at) FROM fencepost.jobs)"},
		},
		{
			target: "held_snapshot_mixed", what: "a tenth retried once, 1 s later, and a twentieth enqueued for up to 3 s later",
			entrants: []entrant{own},
			how:      drain{p: most, late: few, w: wire.Work{FailEvery: 10, RetryAfter: time.Second}},
		},
	} {
		if err := c.measure(ctx, b, n); err != nil {
			return fmt.Errorf("%s: %w", c.target, err)
		}
	}
	return nil
}

// heldRun is one entrant, with the snapshot or without.
type heldRun struct {
	entrant
	held bool
}

func (r heldRun) String() string {
	if r.held {
		return r.name + ", snapshot held"
	}
	return r.name + ", no snapshot"
}

func (c heldCase) measure(ctx context.Context, b *Bench, n int) error {
	var runs []heldRun
	var names []string
	for _, e := range b.chosen(c.entrants...) {
		for _, held := range []bool{false, true} {
			runs = append(runs, heldRun{e, held})
			names = append(names, heldRun{e, held}.String())
		}
	}
	last := make(map[string][]float64)
	if err := b.Alternate(ctx, names, func(name string, round int) error {
		r := runs[slices.Index(names, name)]
		how := c.how
		how.peer, how.o, how.held, how.limit, how.w.Window = r.peer, r.o, r.held, heldLimit, n/heldWindows
		d, err := b.drain(ctx, how)
		if err != nil {
			return err
		}
		if len(d.windows) < heldWindows && r.peer == "fencepost" && !r.held {
			return fmt.Errorf("%d of %d jobs in %v, without a snapshot: there is nothing to compare with", d.jobs, n, heldLimit)
		}
		last[name] = append(last[name], lastWindow(d.windows))
		b.recordHeld(c.target, r, round, d)
		return nil
	}); err != nil {
		return err
	}
	for i := 0; i < len(runs); i += 2 {
		ratio := figures.Ratios(last[names[i+1]], last[names[i]])
		if runs[i].peer != "fencepost" {
			b.Logf("  %s: %.2f × of its rate without the snapshot, in the last tenth", runs[i].name, figures.Median(ratio))
			continue
		}
		b.reportMeasured(figures.AtLeast(c.target, ratio, 0.95, "×", "itself without the snapshot",
			fmt.Sprintf("jobs/s in the last tenth of %d no-op jobs of 200 B, %s, REPEATABLE READ held from before the first claim; claims of %d, done jobs kept; every commit durable",
				n, c.what, heldClaims)))
	}
	return nil
}

const heldFigure = "last tenth, jobs/s"

// lastWindow is the rate in the last tenth; 0 if that was not reached in time.
func lastWindow(windows []float64) float64 {
	if len(windows) < heldWindows {
		return 0
	}
	return windows[heldWindows-1]
}

func (b *Bench) recordHeld(target string, r heldRun, round int, d drained) {
	if round == 0 {
		b.Logf("  %s: %s", r, d.settings)
	}
	subject, e := target, entrant{r.String(), r.peer, r.o}
	if !r.held {
		subject += ", no snapshot" // not to be compared
	}
	for i, rate := range d.windows {
		b.Record(e.sample(subject, d.settings, round, fmt.Sprintf("window %d, jobs/s", i+1), rate))
	}
	b.Record(e.sample(subject, d.settings, round, heldFigure, lastWindow(d.windows)))
	words := "no window full"
	if k := len(d.windows); k > 0 {
		words = fmt.Sprintf("%.0f jobs/s in window 1, %.0f in window %d of %d", d.windows[0], d.windows[k-1], k, heldWindows)
	}
	b.Logf("  %s, %s, round %d: %s", target, r, round+1, words)
	b.recordDrain(subject, e, round, d)
}
