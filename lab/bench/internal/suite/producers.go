package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "producers", About: "many producers at once and a worker: what the bell costs them", Quick: true,
		Peers: []string{"floor"},
		Run:   producersSuite,
	})
}

// The rows beside ourselves: the bell that rings at each INSERT, and no bell.
const ringRow, muteRow = "fencepost, bells always", "by hand, no trigger"

const producers = 32

// sqlAlways makes the bell of the one queue ring at each INSERT.
const sqlAlways = `
INSERT INTO fencepost.queues (name, bell) VALUES ('default', 'always')
ON CONFLICT (name) DO UPDATE SET bell = excluded.bell`

// produced is what a round of the suite has come to.
type produced struct {
	rate    float64 // commits a second
	waits   int     // seen, of somebody for the lock that a commit with a notification holds
	samples int
}

func producersSuite(ctx context.Context, b *Bench) error {
	// All insert by hand, so that only the trigger and the worker differ.
	entrants := b.chosen(
		entrant{ownRow, "fencepost", wire.Options{Best: true, Keep: true}},
		entrant{muteRow, "floor", wire.Options{Best: true, Keep: true}},
		entrant{ringRow, "fencepost", wire.Options{Best: true, Keep: true}},
	)
	names := make([]string, len(entrants))
	for i, e := range entrants {
		names[i] = e.name
	}
	n := b.Size(40_000)
	r, rates := make(latencies), make(map[string][]float64)
	var waits []float64
	err := b.Alternate(ctx, names, func(name string, round int) error {
		e := entrants[slices.Index(names, name)]
		p, l, settings, err := b.manyProducers(ctx, e, n)
		if err != nil {
			return err
		}
		b.Logf("  producers, %s, round %d: %.0f commits/s, %d waits for Lock/object in %d samples", name, round+1, p.rate, p.waits, p.samples)
		b.recordLatency("producers", e, settings, round, l)
		b.Record(e.sample("producers", settings, round, "commits/s", p.rate))
		b.Record(e.sample("producers", settings, round, "waits", float64(p.waits)))
		b.Record(e.sample("producers", settings, round, "samples", float64(p.samples)))
		r[name], rates[name] = append(r[name], l), append(rates[name], p.rate)
		if name == ownRow {
			waits = append(waits, float64(p.waits))
		}
		return nil
	})
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d connections, %d plain INSERTs of one job of 200 B each, as fast as they go, each in a durable commit, while one process works them, done jobs kept", producers, n)
	b.reportMeasured(figures.AtLeast("producers_32", figures.Ratios(rates[ownRow], rates[muteRow]), 0.8, "×",
		"the same without the trigger, worked by hand with a look each 5 ms", "commits a second: "+what))
	b.reportMeasured(figures.AtLeast("producers_32_ring", figures.Ratios(rates[ownRow], rates[ringRow]), 2, "×",
		"a bell at each INSERT", "commits a second: "+what))
	b.reportMeasured(figures.AtMost("producers_32_locks", waits, 0, "waits", "an absolute limit",
		"waits of type Lock/object in samples of pg_stat_activity, one each 10 ms: "+what))
	b.reportMeasured(figures.AtMost("producers_wake", r.ratios(ownRow, muteRow, 99), 2, "×",
		"the same without the trigger, worked by hand with a look each 5 ms", "p99 from the return of the INSERT to the start of the handler: "+what))
	return nil
}

func (b *Bench) manyProducers(ctx context.Context, e entrant, n int) (p produced, l latency, settings string, err error) {
	byHand := entrant{peer: "floor", o: wire.Options{Best: e.name == muteRow, Keep: true}} // at its best there is no trigger
	c, err := b.mixed(ctx, e, byHand, 1, wire.Work{})
	if err != nil {
		return p, l, "", err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	conn, err := pgx.Connect(ctx, c.dsn)
	if err != nil {
		return p, l, "", err
	}
	defer func() { err = errors.Join(err, conn.Close(context.Background())) }()
	if e.name == ringRow {
		if _, err := conn.Exec(ctx, sqlAlways); err != nil {
			return p, l, "", err
		}
	}
	if err := b.Host.Settle(ctx); err != nil {
		return p, l, "", err
	}
	// What is measured is how it goes on, so not its first moments.
	closed := wire.Produce{N: max(n/10, 1000), Clients: producers}
	if err := c.warmUp(ctx, closed); err != nil {
		return p, l, "", err
	}
	// Once more, with no pause before what counts.
	if err := c.enqueue(ctx, closed); err != nil {
		return p, l, "", err
	}
	c.warm, c.produced.Seconds = len(c.produced.Returned), 0

	sampling, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	var sampled error
	group.Go(func() { p.waits, p.samples, sampled = lockWaits(sampling, conn) })
	closed.N = n
	err = c.enqueue(ctx, closed)
	stop()
	group.Wait()
	if err := errors.Join(err, sampled); err != nil {
		return p, l, "", err
	}
	p.rate = float64(n) / c.produced.Seconds
	if _, err := c.await(ctx); err != nil {
		return p, l, "", err
	}
	if err := c.stop(ctx); err != nil {
		return p, l, "", err
	}
	l, err = c.pickUps(nil)
	return p, l, c.settings(), err
}

// lockWaits counts, until ctx is done, who waits for the lock that a commit
// with a notification in it holds.
func lockWaits(ctx context.Context, conn *pgx.Conn) (waits, samples int, err error) {
	each := time.NewTicker(10 * time.Millisecond)
	defer each.Stop()
	for {
		select {
		case <-each.C:
		case <-ctx.Done():
			return waits, samples, nil
		}
		var n int
		err := conn.QueryRow(context.WithoutCancel(ctx),
			"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'object'").Scan(&n)
		if err != nil {
			return waits, samples, err
		}
		waits, samples = waits+n, samples+1
	}
}
