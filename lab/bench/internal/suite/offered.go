package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "offered", About: "jobs come at a fixed rate for five minutes while somebody holds an old snapshot",
		Run: offeredSuite,
	})
}

const (
	offeredRate    = 800 // jobs/s
	offeredSeconds = 300
	// So many enqueue at once that a slow commit does not lower the rate.
	offeredClients = 32
	// What may still be on its way when the last job has been enqueued.
	offeredGrace = time.Second
)

// offered is what became of the jobs of a round.
type offered struct {
	settings  string
	rate      float64 // jobs/s that were really enqueued
	completed float64 // share of what should have been enqueued by the end, that was done by then
	backlog   float64 // jobs that were left offeredGrace later
}

func offeredSuite(ctx context.Context, b *Bench) error {
	n := b.Size(offeredRate * offeredSeconds)
	entrants := b.chosen(
		entrant{"fencepost", "fencepost", wire.Options{Best: true, Keep: true, Slots: heldClaims, Batch: heldClaims}},
		entrant{"river", "river", wire.Options{Best: true, Keep: true, Slots: heldClaims, Batch: heldClaims}},
		entrant{"graphile", "graphile", wire.Options{Best: true, Batch: heldClaims}},
	)
	var completed, backlog, rates []float64
	for round := range b.Rounds {
		for _, e := range turn(entrants, round) {
			o, err := b.offer(ctx, e, n, round)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", e.name, round+1, err)
			}
			record := func(figure string, value float64) {
				b.Record(e.sample("offered", o.settings, round, figure, value))
			}
			record("offered, jobs/s", o.rate)
			record("completed", o.completed)
			record("backlog", o.backlog)
			b.Logf("  %s, round %d: %.0f jobs/s offered, %.4f completed of what was to be, %.0f left at the end", e.name, round+1, o.rate, o.completed, o.backlog)
			if e.peer == "fencepost" {
				completed, backlog, rates = append(completed, o.completed), append(backlog, o.backlog), append(rates, o.rate)
			}
		}
	}
	what := fmt.Sprintf("%d no-op jobs of 200 B, each in a commit of its own, %d/s asked for and %.0f/s enqueued; REPEATABLE READ held from before the first; %d slots, done jobs kept; every commit durable",
		n, offeredRate, figures.Median(rates), heldClaims)
	b.reportMeasured(figures.AtLeast("held_offered", completed, 0.99, "", "what the rate offers", "completed when the last one had been enqueued; "+what))
	b.reportMeasured(figures.AtMost("held_offered_backlog", backlog, 0, "jobs", "an absolute limit", fmt.Sprintf("left %v after the last one had been enqueued; ", offeredGrace)+what))
	return nil
}

// offer lets one process enqueue and another one work.
func (b *Bench) offer(ctx context.Context, e entrant, n, round int) (o offered, err error) {
	dsn, drop, err := b.Host.Fresh(ctx)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	e.o.DSN = dsn
	worker, err := b.Start(ctx, e.peer, e.o)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, worker.Close()) }()
	o.settings = worker.Described.Settings
	e.o.DSN = withConnections(dsn, offeredClients)
	producer, err := b.Start(ctx, e.peer, e.o)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, producer.Close()) }()
	ledger, err := openLedger(ctx, e.peer, dsn)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, ledger.close()) }()
	if err := b.Host.Settle(ctx); err != nil {
		return o, err
	}
	held, err := holdSnapshot(ctx, dsn)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, held.release()) }()

	if err := worker.Call(ctx, wire.DoWork, wire.Work{}, nil); err != nil {
		return o, err
	}
	var produced wire.Produced
	if err := producer.Call(ctx, wire.DoProduce, wire.Produce{
		N: n, Bytes: 200, Way: "one", Clients: offeredClients, Rate: offeredRate, Seed: uint64(round),
	}, &produced); err != nil {
		return o, err
	}
	left, err := ledger.left(ctx)
	if err != nil {
		return o, err
	}
	until(wire.Now() + int64(offeredGrace))
	later, err := ledger.left(ctx)
	if err != nil {
		return o, err
	}
	o.rate = float64(n) / produced.Seconds
	o.completed, o.backlog = float64(n-left)/due(produced), float64(later)
	return o, nil
}

// due is how many jobs should have been enqueued when the last call returned.
// Where enqueueing does not keep up with the rate they are more than there
// were, so that a slow producer does not make up for a slow worker.
func due(p wire.Produced) float64 {
	n := len(p.Scheduled)
	late := time.Duration(slices.Max(p.Returned) - p.Scheduled[n-1])
	return float64(n) + offeredRate*late.Seconds()
}
