package suite

import (
	"context"
	"fmt"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "cost", About: "commits, WAL and allocations of a job, from enqueue to done", Quick: true,
		Run: costSuite,
	})
}

// enqueuedBytes, workedBytes and commits are shares of one job.
func (d drained) enqueuedBytes() float64 { return perJob(float64(d.enqueued.Plain()), d.jobs) }
func (d drained) workedBytes() float64   { return perJob(float64(d.worked.Plain()), d.jobs) }
func (d drained) commits() float64       { return perJob(float64(d.worked.Commits), d.jobs) }

// walKiB is the log of a whole life.
func (d drained) walKiB() float64 { return (d.enqueuedBytes() + d.workedBytes()) / 1024 }

func costSuite(ctx context.Context, b *Bench) error {
	const kept, deleted = "claims of 500, kept", "claims of 500, deleted"
	n := b.Size(50_000)
	r, err := b.drainAll(ctx, "cost", b.chosen(
		entrant{kept, "fencepost", wire.Options{Best: true, Keep: true, Slots: 500, Batch: 500}},
		entrant{deleted, "fencepost", wire.Options{Best: true, Slots: 500, Batch: 500}},
	), drain{
		// As a service enqueues: each job by itself, in a commit of its own.
		p:   wire.Produce{N: n, Bytes: 200, Way: "one", Clients: 16},
		wal: true,
	})
	if err != nil {
		return err
	}
	for name := range r {
		for _, d := range r[name] {
			if d.jobs < n { // an enqueue would be shared among fewer jobs than it made
				return fmt.Errorf("%s: %d of %d jobs were done in time", name, d.jobs, n)
			}
		}
	}
	most := func(target string, rounds []float64, limit float64, unit, what string) {
		b.reportMeasured(figures.AtMost(target, rounds, limit, unit, "an absolute limit", fmt.Sprintf("%s; %d no-op jobs of 200 B, claims of 500", what, n)))
	}
	wal := "all that the log grew by, without full-page images, a job; each job enqueued in a commit of its own"
	most("commits", r.each(kept, drained.commits), 0.004, "", "commits that changed something, a job, while a backlog is worked; done jobs kept")
	most("wal", r.each(kept, drained.walKiB), 1.3, "KiB", wal+"; done jobs kept")
	most("wal_delete", r.each(deleted, drained.walKiB), 0.9, "KiB", wal+"; done jobs deleted")
	most("allocs", r.each(kept, func(d drained) float64 { return d.allocs }), 12, "objects", "allocated in the worker, a job; its payload decoded; done jobs kept")
	most("allocs_bytes", r.each(kept, func(d drained) float64 { return d.bytes / 1000 }), 1.3, "kB", "allocated in the worker, a job; its payload decoded; done jobs kept")
	return nil
}
