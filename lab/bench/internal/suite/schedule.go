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
		Name: "schedule", About: "how late scheduled jobs start, with one process and with eight", Quick: true,
		Peers: []string{"floor"},
		Run:   scheduleSuite,
	})
}

const eightRow = "fencepost, eight processes"

func scheduleSuite(ctx context.Context, b *Bench) error {
	entrants := b.wakers()
	entrants = append(entrants, b.chosen(entrant{eightRow, "fencepost", wire.Options{Keep: true}})...)
	entrants = append(entrants, b.others()...)
	names := make([]string, len(entrants))
	for i, e := range entrants {
		names[i] = e.name
	}
	// Due long after they have been enqueued, however slowly that goes.
	p := wire.Produce{N: b.Size(500), Clients: 4, Delay: 3 * time.Second}
	p.DelayTo = p.Delay + time.Duration(p.N)*20*time.Millisecond
	r := make(latencies)
	err := b.Alternate(ctx, names, func(name string, round int) error {
		e := entrants[slices.Index(names, name)]
		p.Seed = uint64(round) // the same for all
		l, settings, err := b.schedule(ctx, e, p)
		if err != nil {
			return err
		}
		b.recordLatency("schedule", e, settings, round, l)
		r[name] = append(r[name], l)
		return nil
	})
	if err != nil {
		return err
	}
	// Both limits are about the same thing, so they do not get higher with the
	// slowest hundredth of the claims by hand.
	claim := figures.Median(r.each(wakeFloorRow, 50))
	if claim == 0 {
		return nil // the floor was not chosen
	}
	what := fmt.Sprintf("from the time that a job is due to the start of its handler: %d jobs of 200 B, due at random times within %v, done jobs kept; every commit durable",
		p.N, p.DelayTo-p.Delay)
	for _, t := range []struct {
		target, row, how string
	}{
		{"schedule", ownRow, "one process; "},
		{"schedule_eight", eightRow, "eight processes; "},
	} {
		b.reportMeasured(figures.AtMost(t.target+"_p50", r.each(t.row, 50), 1.5*claim+1, "ms",
			fmt.Sprintf("1.5 × the median of a timer and one durable claim by hand (%.3g ms) + 1 ms", claim), t.how+what))
		b.reportMeasured(figures.AtMost(t.target+"_p99", r.each(t.row, 99), 3*claim+8, "ms",
			fmt.Sprintf("3 × the median of a timer and one durable claim by hand (%.3g ms) + 8 ms", claim), t.how+what))
	}
	return nil
}

func (b *Bench) schedule(ctx context.Context, e entrant, p wire.Produce) (l latency, settings string, err error) {
	workers := 1
	if e.name == eightRow {
		workers = 8
	}
	c, err := b.couple(ctx, e, workers, wire.Work{})
	if err != nil {
		return l, "", err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.ready(ctx); err != nil {
		return l, "", err
	}
	if err := b.Host.Settle(ctx); err != nil {
		return l, "", err
	}
	if err := c.produce(ctx, p); err != nil {
		return l, "", err
	}
	// One that was due when its call returned was not scheduled any more.
	unix := time.Now().UnixNano() - wire.Now()
	for n := c.warm; n < len(c.produced.Returned); n++ {
		if c.produced.Returned[n]+unix > c.produced.Due[n] {
			return l, "", fmt.Errorf("job %d was due before it was enqueued: the machine is too slow for this", n)
		}
	}
	if err := c.stop(ctx); err != nil {
		return l, "", err
	}
	l, err = c.lateness()
	return l, c.settings(), err
}
