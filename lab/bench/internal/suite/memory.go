package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/host"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "memory", About: "the memory of an idle worker, and whether it grows with the jobs",
		Run: memorySuite,
	})
}

const mib = 1 << 20

// heapSteps is how often the heap is looked at.
const heapSteps = 10

func memorySuite(ctx context.Context, b *Bench) error {
	entrants := b.chosen(entrant{ownRow, "fencepost", wire.Options{Keep: true}})
	entrants = append(entrants, b.others()...)
	names := make([]string, len(entrants))
	for i, e := range entrants {
		names[i] = e.name
	}
	n := b.Size(1_000_000)
	var idle, growth []float64
	err := b.Alternate(ctx, names, func(name string, round int) error {
		e := entrants[slices.Index(names, name)]
		rss, settings, err := b.idleMemory(ctx, e)
		if err != nil {
			return err
		}
		b.Logf("  memory, %s, round %d: %.3g MiB resident when idle", name, round+1, rss/mib)
		b.Record(e.sample("memory", settings, round, "idle RSS, MiB", rss/mib))
		if name != ownRow {
			return nil
		}
		idle = append(idle, rss/mib)
		heaps, settings, err := b.heaps(ctx, n)
		if err != nil {
			return err
		}
		e.o = wire.Options{Best: true} // as heaps has it
		for i, heap := range heaps {
			b.Record(e.sample("memory_growth", settings, round, fmt.Sprintf("heap after %d jobs, MiB", (i+1)*n/heapSteps), heap/mib))
		}
		growth = append(growth, grown(heaps)/mib)
		b.Logf("  memory, %s, round %d: the heap has grown by %.3g MiB; it was %.3g", name, round+1, grown(heaps)/mib, mibs(heaps))
		return nil
	})
	if err != nil {
		return err
	}
	b.reportMeasured(figures.AtMost("memory_idle", idle, 25, "MiB", "an absolute limit",
		"resident memory of a process at its defaults that works one queue and has nothing to do; the program holds other queues too"))
	b.reportMeasured(figures.AtMost("memory_growth", growth, heapNoise, "MiB", "none, but for what two looks differ by",
		fmt.Sprintf("live heap after collections, from the median of the first %d looks after the first to that of the last %d: %d no-op jobs of 200 B, a look after each %d; 1000 slots, claims of 500, done jobs deleted",
			heapLooks, heapLooks, n, n/heapSteps)))
	return nil
}

// heapNoise is how many MiB the live heap of a process may differ between two
// looks that nothing is behind: what pools have kept, how full maps were made.
// Eight bytes that each of 600,000 jobs leaves behind would be 4.6 MiB.
const heapNoise = 0.1

const heapLooks = 3

// grown is how much larger the heap is at the end than at the beginning. The
// first look is left out: by then it has not seen a full load twice.
func grown(heaps []float64) float64 {
	return figures.Median(heaps[len(heaps)-heapLooks:]) - figures.Median(heaps[1:1+heapLooks])
}

func mibs(bytes []float64) (m []float64) {
	for _, n := range bytes {
		m = append(m, n/mib)
	}
	return m
}

// idleMemory is the resident memory, in bytes, of a process that has worked
// some jobs and waits for others.
func (b *Bench) idleMemory(ctx context.Context, e entrant) (bytes float64, settings string, err error) {
	c, err := b.couple(ctx, e, 1, wire.Work{})
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.ready(ctx); err != nil {
		return 0, "", err
	}
	time.Sleep(time.Duration(b.Size(30)) * time.Second)
	rss, err := host.ProcessRSS(c.workers[0].PID())
	return float64(rss), c.settings(), err
}

// heaps are the live heap of a worker, in bytes, after each tenth of the jobs.
func (b *Bench) heaps(ctx context.Context, n int) (heaps []float64, settings string, err error) {
	o := wire.Options{Best: true}
	dsn, drop, err := b.Host.Fresh(ctx)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, drop()) }()
	o.DSN = dsn
	producer, err := b.Start(ctx, "fencepost", o)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, producer.Close()) }()
	worker, err := b.Start(ctx, "fencepost", o)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, worker.Close()) }()
	if err := worker.Call(ctx, wire.DoWork, wire.Work{}, nil); err != nil {
		return nil, "", err
	}
	for step := range heapSteps {
		size := n / heapSteps
		p := wire.Produce{N: size, First: step * size, Bytes: 200, Way: "copy", Batch: 10_000}
		if err := producer.Call(ctx, wire.DoProduce, p, nil); err != nil {
			return nil, "", err
		}
		var worked wire.Worked
		if err := worker.Call(ctx, wire.DoAwait, wire.Await{N: (step + 1) * size, Seconds: 5 * 60}, &worked); err != nil {
			return nil, "", err
		}
		if worked.Done < (step+1)*size {
			return nil, "", fmt.Errorf("%d of %d jobs were done in 5 minutes", worked.Done, (step+1)*size)
		}
		time.Sleep(time.Second) // the last outcomes are stored
		var u wire.Usage
		for range 2 { // what pools keep goes with the second collection
			if err := worker.Call(ctx, wire.DoUsage, nil, &u); err != nil {
				return nil, "", err
			}
		}
		heaps = append(heaps, float64(u.Heap))
	}
	return heaps, worker.Described.Settings, nil
}
