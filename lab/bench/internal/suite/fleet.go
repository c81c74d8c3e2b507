package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "fleet", About: "a backlog worked by 1, 4 and 16 processes on one database",
		Run: fleetSuite,
	})
}

// fleetSizes are numbers of processes.
var fleetSizes = []int{1, 4, 16}

// fleetLook is how often all are asked how far they are: rarely enough that
// asking sixteen costs nothing to speak of.
const fleetLook = 50 * time.Millisecond

func fleetSuite(ctx context.Context, b *Bench) error {
	if !slices.Contains(b.Peers, "fencepost") {
		return nil
	}
	n := b.Size(200_000)
	sizes := make(map[string]int)
	var names []string
	for _, size := range fleetSizes {
		name := fmt.Sprintf("processes: %d", size)
		sizes[name] = size
		names = append(names, name)
	}
	rounds := make([]map[string]float64, b.Rounds)
	if err := b.Alternate(ctx, names, func(name string, round int) error {
		how := drain{
			peer: "fencepost", o: wire.Options{Best: true, Keep: true},
			p: wire.Produce{N: n, Bytes: 200, Way: "copy", Batch: 10_000}, limit: drainLimit,
		}
		d, err := b.fleet(ctx, how, sizes[name])
		if err != nil {
			return err
		}
		b.Logf("  %s, round %d: %.0f jobs/s (%d in %.1f s)", name, round+1, d.rate, d.jobs, d.took.Seconds())
		b.Record(figures.Sample{Subject: "fleet", Who: "fencepost", Row: name, Best: true, Settings: d.settings, Round: round, Figure: "jobs/s", Value: d.rate})
		if rounds[round] == nil {
			rounds[round] = make(map[string]float64)
		}
		rounds[round][name] = d.rate
		return nil
	}); err != nil {
		return err
	}
	slowest, shares := slowestOf(names, rounds)
	b.Report(figures.AtLeast("fleet", shares, 0.9, "×", fmt.Sprintf("the best of %v processes in the same round", fleetSizes),
		fmt.Sprintf("jobs/s of all together where they are slowest, %s; %d no-op jobs of 200 B preloaded, 1000 slots each, done jobs kept; every commit durable", slowest, n)))
	return nil
}

// slowestOf says which has, by its median, the smallest share of the best rate
// of a round, and its shares. Not the smallest of each round: of three that are
// equal one is always a little slower.
func slowestOf(names []string, rounds []map[string]float64) (slowest string, shares []float64) {
	for _, name := range names {
		var own []float64
		for _, rates := range rounds {
			own = append(own, rates[name]/slices.Max(slices.Collect(maps.Values(rates))))
		}
		if slowest == "" || figures.Median(own) < figures.Median(shares) {
			slowest, shares = name, own
		}
	}
	return slowest, shares
}

// fleet is a drain by several processes.
func (b *Bench) fleet(ctx context.Context, how drain, size int) (d drained, err error) {
	dsn, drop, err := b.Host.Fresh(ctx)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	how.o.DSN = dsn
	if _, err := b.load(ctx, how); err != nil {
		return d, err
	}
	ledger, err := openLedger(ctx, how.peer, dsn)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, ledger.close()) }()
	if err := ledger.tidy(ctx); err != nil {
		return d, err
	}
	var crew []*wire.Child
	defer func() {
		for _, child := range crew {
			err = errors.Join(err, child.Close())
		}
	}()
	for range size {
		child, err := b.Start(ctx, how.peer, how.o)
		if err != nil {
			return d, err
		}
		crew = append(crew, child)
	}
	d.settings = crew[0].Described.Settings
	if err := b.Host.Settle(ctx); err != nil {
		return d, err
	}

	began := wire.Now()
	if err := each(crew, func(child *wire.Child) error { return child.Call(ctx, wire.DoWork, how.w, nil) }); err != nil {
		return d, err
	}
	end := began + int64(how.limit)
	if err := handled(ctx, crew, how.p.N, end); err != nil {
		return d, err
	}
	stored, left, err := ledger.emptied(ctx, end)
	if err != nil {
		return d, err
	}
	first := int64(0)
	for _, child := range crew {
		var worked wire.Worked
		if err := child.Call(ctx, wire.DoStop, nil, &worked); err != nil {
			return d, err
		}
		d.handled += worked.Done
		if worked.First > 0 && (first == 0 || worked.First < first) {
			first = worked.First
		}
	}
	d.jobs = how.p.N - left
	d.span(began, first, stored)
	return d, nil
}

// each does something with all children at once.
func each(crew []*wire.Child, do func(*wire.Child) error) error {
	errs := make(chan error)
	for _, child := range crew {
		go func() { errs <- do(child) }()
	}
	var all error
	for range crew {
		all = errors.Join(all, <-errs)
	}
	return all
}

// handled waits until so many handlers of all children together have returned,
// or until the given time of wire.Now.
func handled(ctx context.Context, crew []*wire.Child, n int, limit int64) error {
	for wire.Now() < limit {
		done := 0
		for _, child := range crew {
			var worked wire.Worked
			if err := child.Call(ctx, wire.DoAwait, wire.Await{}, &worked); err != nil {
				return err
			}
			done += worked.Done
		}
		if done >= n {
			return nil
		}
		until(wire.Now() + int64(fleetLook))
	}
	return nil
}
