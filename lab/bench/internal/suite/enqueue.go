package suite

import (
	"context"
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

// enqueuing is one way to enqueue.
type enqueuing struct {
	target  string
	limit   float64
	p       wire.Produce // of one slice
	slices  int
	bell    bool // the floor's table has its trigger
	against string
	what    string
}

func enqueueSuite(ctx context.Context, b *Bench) error {
	bulk := b.Size(100_000)
	for _, e := range []enqueuing{
		{
			target: "enqueue_1", limit: 0.9, slices: 8, bell: true,
			p:       wire.Produce{N: b.Size(500), Bytes: 200, Way: "one", Clients: 1},
			against: "raw INSERT into the same table", what: "1 goroutine, a commit for each job, the trigger in place for both",
		},
		{
			target: "enqueue_16", limit: 0.9, slices: 8, bell: true,
			p:       wire.Produce{N: b.Size(2_500), Bytes: 200, Way: "one", Clients: 16},
			against: "raw INSERT into the same table", what: "16 goroutines and as many connections, a commit for each job, the trigger in place for both",
		},
		{
			target: "enqueue_bulk", limit: 0.75, slices: 4,
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
	rates := make(map[string][]float64)
	for round := range b.Rounds {
		disk, err := b.Host.ProbeCommits(ctx)
		if err != nil {
			return err
		}
		b.Record(figures.Sample{Subject: "disk", Who: e.target, Round: round, Figure: "commits/s", Value: disk})
		seconds, settings, err := e.round(ctx, b, round)
		if err != nil {
			return err
		}
		for _, name := range b.Peers {
			rate := float64(e.p.N*e.slices) / seconds[name]
			rates[name] = append(rates[name], rate)
			b.Record(figures.Sample{Subject: e.target, Who: name, Settings: settings[name], Round: round, Figure: "jobs/s", Value: rate})
			b.Logf("  %s, %s, round %d: %.0f jobs/s", e.target, name, round+1, rate)
		}
	}
	b.reportMeasured(figures.AtLeast(e.target, figures.Ratios(rates["fencepost"], rates["floor"]), e.limit, "×", e.against,
		fmt.Sprintf("%s; %d turns of %d jobs of 200 B; every commit durable", e.what, e.slices, e.p.N)))
	return nil
}

// round returns how long each took for all its slices, and its settings.
func (e enqueuing) round(ctx context.Context, b *Bench, round int) (seconds map[string]float64, settings map[string]string, err error) {
	var undo []func() error
	defer func() {
		for _, u := range slices.Backward(undo) {
			err = join(err, u())
		}
	}()
	children := make(map[string]*wire.Child)
	for _, name := range b.Peers {
		dsn, drop, err := b.Host.Fresh(ctx)
		if err != nil {
			return nil, nil, err
		}
		undo = append(undo, drop)
		child, err := b.Start(ctx, name, wire.Options{
			DSN:  withConnections(dsn, e.p.Clients),
			Best: name != "floor" || !e.bell,
			Keep: true,
		})
		if err != nil {
			return nil, nil, err
		}
		undo = append(undo, child.Close)
		children[name] = child
	}
	seconds, settings = make(map[string]float64), make(map[string]string)
	for name, child := range children {
		settings[name] = child.Described.Settings
		// Connections are made and statements prepared before.
		warm := e.p
		warm.N = 20 * e.p.Clients
		if err := child.Call(ctx, wire.DoProduce, warm, nil); err != nil {
			return nil, nil, err
		}
	}
	if err := b.Host.Settle(ctx); err != nil {
		return nil, nil, err
	}
	for slice := range e.slices {
		for _, name := range turn(b.Peers, round+slice) {
			p := e.p
			p.First = slice * p.N
			var done wire.Produced
			if err := children[name].Call(ctx, wire.DoProduce, p, &done); err != nil {
				return nil, nil, err
			}
			seconds[name] += done.Seconds
		}
	}
	return seconds, settings, nil
}

// turn is the order of the n-th turn: A B, then B A.
func turn(names []string, n int) []string {
	names = slices.Clone(names)
	if n%2 == 1 {
		slices.Reverse(names)
	}
	return names
}

// withConnections lets the pools of the queues in Go be as large as they have
// to be for so many at once. Their own default is four, or the number of
// processors.
func withConnections(dsn string, n int) string { return fmt.Sprintf("%s&pool_max_conns=%d", dsn, n+2) }
