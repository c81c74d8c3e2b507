package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "wake", About: "from the commit of a job until its handler starts, on an idle queue", Quick: true, Rounds: 5,
		Peers: []string{"floor"},
		Run:   wakeSuite,
	})
}

// The rows of the suites on latency.
const ownRow, wakeFloorRow = "fencepost", "by hand"

// wakers are ourselves, at our defaults, and the floor of being woken.
func (b *Bench) wakers() []entrant {
	return b.chosen(
		entrant{ownRow, "fencepost", wire.Options{Keep: true}},
		entrant{wakeFloorRow, "wakefloor", wire.Options{Keep: true}},
	)
}

// others are the peers of the full tables.
func (b *Bench) others() (all []entrant) {
	if !b.Full {
		return nil
	}
	for _, peer := range []string{"river", "graphile", "pgboss", "gue"} {
		all = append(all, b.chosen(
			entrant{peer + ", defaults", peer, wire.Options{Keep: true}},
			entrant{peer + ", best", peer, wire.Options{Best: true, Keep: true}},
		)...)
	}
	return all
}

// waking is an open loop of jobs for which idle workers are woken.
type waking struct {
	subject string
	p       wire.Produce // of a turn
	turns   int
	counts  func(n int) bool // which jobs are looked at, by their place; nil: all
}

func wakeSuite(ctx context.Context, b *Bench) error {
	const turns = 4
	singles := waking{subject: "wake", turns: turns, p: wire.Produce{N: b.Size(2000) / turns, Rate: 200, Clients: 8}}
	pairs := waking{
		subject: "wake_pair", turns: turns, counts: func(n int) bool { return n%2 == 1 },
		p: wire.Produce{N: 2 * b.Size(300/turns), Rate: 5, Gap: 20 * time.Millisecond, GapTo: 90 * time.Millisecond, Clients: 8},
	}
	report := func(r latencies, target string, quantile, limit float64, what string) {
		b.reportMeasured(figures.AtMost(target, r.ratios(ownRow, wakeFloorRow, quantile), limit, "×",
			"one NOTIFY and one durable claim by hand", what+" of 200 B, done jobs kept; every commit durable; one process that enqueues, one that works"))
	}
	r, err := singles.measure(ctx, b)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("from the return of Enqueue to the start of the handler: %d jobs at 200/s at random distances, one commit each,", singles.p.N*turns)
	report(r, "wake_p50", 50, 1.15, what)
	report(r, "wake_p99", 99, 1.5, what)
	if r, err = pairs.measure(ctx, b); err != nil {
		return err
	}
	report(r, "wake_pair", 99, 1.5, fmt.Sprintf("p99 of the second of two jobs 20 to 90 ms apart, then silence, 200 ms on average: %d pairs", pairs.p.N*turns/2))
	return nil
}

// measure lets ourselves and the floor take turns. The others are measured one
// at a time: some of them are busy when there is nothing to do.
func (w waking) measure(ctx context.Context, b *Bench) (latencies, error) {
	groups := [][]entrant{b.wakers()}
	for _, e := range b.others() {
		groups = append(groups, []entrant{e})
	}
	r := make(latencies)
	for round := range b.Rounds {
		for _, group := range groups {
			if err := b.probe(ctx, w.subject, round); err != nil {
				return nil, err
			}
			if err := w.round(ctx, b, group, round, r); err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", w.subject, round+1, err)
			}
		}
	}
	return r, nil
}

// round gives everybody processes and a database of their own and lets them
// take turns, several in a round: the disk's mood changes within seconds.
func (w waking) round(ctx context.Context, b *Bench, group []entrant, round int, r latencies) (err error) {
	var all []*couple
	defer func() {
		for _, c := range all {
			err = errors.Join(err, c.close())
		}
	}()
	for _, e := range group {
		c, err := b.couple(ctx, e, 1, wire.Work{})
		if err != nil {
			return err
		}
		all = append(all, c)
		if err := c.ready(ctx); err != nil {
			return err
		}
	}
	if err := b.Host.Settle(ctx); err != nil {
		return err
	}
	for i := range w.turns {
		for _, c := range turn(all, round+i) {
			if c.behind { // more jobs would say no more of it
				continue
			}
			p := w.p
			p.Seed = uint64(round*w.turns + i) // the same for all
			if err := c.produce(ctx, p); err != nil {
				return err
			}
		}
	}
	for _, c := range all {
		if err := c.stop(ctx); err != nil {
			return err
		}
		l, err := c.pickUps(w.counts)
		if err != nil {
			return err
		}
		b.recordLatency(w.subject, c.entrant, c.settings(), round, l)
		r[c.name] = append(r[c.name], l)
	}
	return nil
}
