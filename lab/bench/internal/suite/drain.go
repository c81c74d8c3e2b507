package suite

import (
	"context"
	"fmt"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "drain", About: "no-op jobs preloaded, then worked as fast as it goes", Quick: true,
		Peers: []string{"river", "graphile", "floor"},
		Run:   drainSuite,
	})
}

// The rows of the suite. Whom a target compares stand next to each other, so
// that they are measured next to each other.
const (
	bestKept, bestDeleted      = "best, kept", "best, deleted"
	riverBest, graphileBest    = "river, best", "graphile, best"
	own500, own100, floorAt500 = "claims of 500, deleted", "claims of 100, deleted", "by hand, claims of 500, deleted"
	floorKept                  = "by hand, claims of 500, kept" // what the tables allow of drain_keep
)

func drainSuite(ctx context.Context, b *Bench) error {
	best := wire.Options{Best: true}
	kept := wire.Options{Best: true, Keep: true}
	at := func(n int) wire.Options { return wire.Options{Best: true, Slots: n, Batch: n} }
	entrants := []entrant{
		{bestKept, "fencepost", kept},
		{riverBest, "river", kept},
		{floorKept, "floor", wire.Options{Best: true, Keep: true, Slots: 500, Batch: 500}},
		{bestDeleted, "fencepost", best},
		{graphileBest, "graphile", best},
		{own500, "fencepost", at(500)},
		{floorAt500, "floor", at(500)},
		{own100, "fencepost", at(100)},
	}
	if b.Full {
		entrants = append(entrants, []entrant{
			{"pgboss, best", "pgboss", kept},
			{"gue, best", "gue", kept},
			{"defaults", "fencepost", wire.Options{Keep: true}},
			{"river, defaults", "river", wire.Options{Keep: true}},
			{"graphile, defaults", "graphile", wire.Options{Keep: true}},
			{"pgboss, defaults", "pgboss", wire.Options{Keep: true}},
			{"gue, defaults", "gue", wire.Options{Keep: true}},
		}...)
	}
	n := b.Size(200_000)
	// How they are loaded is not measured here: by the fastest way of each.
	r, err := b.drainAll(ctx, "drain", b.chosen(entrants...), drain{p: wire.Produce{N: n, Bytes: 200, Way: "copy", Batch: 10_000}})
	if err != nil {
		return err
	}
	jobs := fmt.Sprintf("%d no-op jobs of 200 B preloaded, until the last outcome is in the tables; every commit durable", n)
	least := func(target string, rounds []float64, limit float64, against, what string) {
		b.reportMeasured(figures.AtLeast(target, rounds, limit, "×", against, what))
	}
	least("drain_keep", r.ratios(bestKept, riverBest, rate), 2.8, "River at its best", jobs+"; done jobs kept")
	least("drain_delete", r.ratios(bestDeleted, graphileBest, rate), 1.6, "Graphile Worker at its best (batched)", jobs+"; done jobs deleted")
	least("drain_floor", r.ratios(own500, floorAt500, rate), 0.9, "a hand-written loop over the same tables",
		jobs+"; claims of 500, done jobs deleted, the same number of connections; the loop decodes each payload and starts a goroutine for each job")
	least("drain_100", r.ratios(own100, own500, rate), 0.6, "itself with claims of 500", jobs+"; done jobs deleted; 100 and 500 slots")

	both := "processor time of the server and of the worker, a job; " + jobs
	b.reportMeasured(figures.AtMost("cpu_per_job", r.ratios(bestKept, riverBest, drained.cpu), 0.35, "×", "River at its best", both+"; done jobs kept"))
	b.reportMeasured(figures.AtMost("cpu_per_job_delete", r.ratios(bestDeleted, graphileBest, drained.cpu), 0.75, "×", "Graphile Worker at its best (batched)", both+"; done jobs deleted"))
	return nil
}
