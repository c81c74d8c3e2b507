package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "enqueue", About: "jobs enqueued one by one and in bulk, with nobody at work", Quick: true,
		Peers: []string{"floor"},
		Run:   enqueueSuite,
	})
}

// The floor's rows: the tables as they are, and without the trigger that rings.
const byHand, byHandMute = "by hand", "by hand, no trigger"

// enqueuing is one way to enqueue.
type enqueuing struct {
	target  string
	limit   float64
	p       wire.Produce // of one slice
	slices  int
	floor   string // the row that it is held against
	against string
	what    string
}

func enqueueSuite(ctx context.Context, b *Bench) error {
	bulk := b.Size(100_000)
	for _, e := range []enqueuing{
		{
			target: "enqueue_1", limit: 0.9, slices: 8, floor: byHand,
			p:       wire.Produce{N: b.Size(500), Bytes: 200, Way: "one", Clients: 1},
			against: "raw INSERT into the same table", what: "1 goroutine, a commit for each job, the trigger in place for both",
		},
		{
			target: "enqueue_16", limit: 0.9, slices: 8, floor: byHand,
			p:       wire.Produce{N: b.Size(2_500), Bytes: 200, Way: "one", Clients: 16},
			against: "raw INSERT into the same table", what: "16 goroutines and as many connections, a commit for each job, the trigger in place for both",
		},
		{
			target: "enqueue_bulk", limit: 0.75, slices: 4, floor: byHandMute,
			p:       wire.Produce{N: bulk, Bytes: 200, Way: "copy", Batch: bulk, Clients: 1},
			against: "raw COPY into the same table without its trigger", what: "1 goroutine, one call and one commit for all jobs of a turn",
		},
	} {
		if err := e.measure(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", e.target, err)
		}
	}
	return nil
}

// measure gives everybody a process and a database of its own and lets them
// take turns, many in a round: the disk's mood changes within seconds.
func (e enqueuing) measure(ctx context.Context, b *Bench) error {
	entrants := b.chosen(
		entrant{"fencepost", "fencepost", wire.Options{Best: true, Keep: true}},
		entrant{byHand, "floor", wire.Options{Keep: true}},
		entrant{byHandMute, "floor", wire.Options{Best: true, Keep: true}},
		entrant{"river", "river", wire.Options{Best: true, Keep: true}},
		entrant{"graphile", "graphile", wire.Options{Best: true, Keep: true}},
		entrant{"pgboss", "pgboss", wire.Options{Best: true, Keep: true}},
		entrant{"gue", "gue", wire.Options{Best: true, Keep: true}},
	)
	rates := make(map[string][]float64)
	for round := range b.Rounds {
		disk, err := b.Host.ProbeCommits(ctx)
		if err != nil {
			return err
		}
		b.Record(figures.Sample{Subject: "disk", Row: e.target, Round: round, Figure: "commits/s", Value: disk})
		enqueuers, err := e.round(ctx, b, entrants, round)
		if err != nil {
			return err
		}
		for _, q := range enqueuers {
			rate := float64(e.p.N*e.slices) / q.seconds
			rates[q.name] = append(rates[q.name], rate)
			b.Record(q.sample(e.target, q.child.Described.Settings, round, "jobs/s", rate))
			b.Logf("  %s, %s, round %d: %.0f jobs/s", e.target, q.name, round+1, rate)
		}
	}
	b.reportMeasured(figures.AtLeast(e.target, figures.Ratios(rates["fencepost"], rates[e.floor]), e.limit, "×", e.against,
		fmt.Sprintf("%s; %d turns of %d jobs of 200 B; every commit durable", e.what, e.slices, e.p.N)))
	return nil
}

// enqueuer is an entrant in a round.
type enqueuer struct {
	entrant
	child   *wire.Child
	seconds float64 // of all its slices
}

func (e enqueuing) round(ctx context.Context, b *Bench, entrants []entrant, round int) (_ []*enqueuer, err error) {
	var undo []func() error
	defer func() {
		for _, u := range slices.Backward(undo) {
			err = errors.Join(err, u())
		}
	}()
	var all []*enqueuer
	for _, who := range entrants {
		dsn, drop, err := b.Host.Fresh(ctx)
		if err != nil {
			return nil, err
		}
		undo = append(undo, drop)
		who.o.DSN = withConnections(dsn, e.p.Clients)
		child, err := b.Start(ctx, who.peer, who.o)
		if err != nil {
			return nil, err
		}
		undo = append(undo, child.Close)
		// Connections are made and statements prepared before.
		warm := e.p
		warm.N = 20 * e.p.Clients
		if err := child.Call(ctx, wire.DoProduce, warm, nil); err != nil {
			return nil, err
		}
		all = append(all, &enqueuer{entrant: who, child: child})
	}
	if err := b.Host.Settle(ctx); err != nil {
		return nil, err
	}
	for slice := range e.slices {
		for _, q := range turn(all, round+slice) {
			p := e.p
			p.First = slice * p.N
			var done wire.Produced
			if err := q.child.Call(ctx, wire.DoProduce, p, &done); err != nil {
				return nil, err
			}
			q.seconds += done.Seconds
		}
	}
	return all, nil
}

// turn is the order of the n-th turn: A B, then B A.
func turn[T any](all []T, n int) []T {
	all = slices.Clone(all)
	if n%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

// withConnections lets the pools of the queues in Go be as large as they have
// to be for so many at once. Their own default is four, or the number of
// processors.
func withConnections(dsn string, n int) string { return fmt.Sprintf("%s&pool_max_conns=%d", dsn, n+2) }
