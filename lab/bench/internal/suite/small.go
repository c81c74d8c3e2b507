package suite

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "small", About: "a backlog of jobs of 1 ms, ten at once", Quick: true,
		Peers: []string{"river", "graphile"},
		Run:   smallSuite,
	})
}

// The most that ten handlers of 1 ms can do in a second.
const (
	smallSlots = 10
	smallIdeal = smallSlots * 1000
)

func smallSuite(ctx context.Context, b *Bench) error {
	o := wire.Options{Best: true, Keep: true, Slots: smallSlots}
	// What is in the way of the ideal without any queue: a timer is never early.
	alone := sleepAlone(time.Second)
	b.Record(figures.Sample{Subject: "small", Who: "floor", Row: "ten goroutines that sleep 1 ms", Figure: "jobs/s", Value: alone})
	b.Logf("  ten goroutines that sleep for 1 ms, without a queue: %.0f a second", alone)

	n := b.Size(50_000)
	r, err := b.drainAll(ctx, "small", b.chosen(
		entrant{"ten at once", "fencepost", o},
		entrant{"river, ten at once", "river", o},
		entrant{"graphile, ten at once", "graphile", o},
	), drain{
		p: wire.Produce{N: n, Bytes: 200, Way: "copy", Batch: 10_000},
		w: wire.Work{Sleep: time.Millisecond},
	})
	if err != nil {
		return err
	}
	share := func(d drained) float64 { return d.rate / smallIdeal }
	b.reportMeasured(figures.AtLeast("drain_small", r.each("ten at once", share), 0.8, "×", "the ideal of 10,000/s",
		fmt.Sprintf("%d jobs of 1 ms and 200 B preloaded, 10 slots, done jobs kept; every commit durable", n)))
	return nil
}

// sleepAlone says how many sleeps of 1 ms a second ten goroutines get done.
func sleepAlone(lasting time.Duration) float64 {
	var n atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for range smallSlots {
		group.Go(func() {
			for time.Since(began) < lasting {
				<-time.After(time.Millisecond)
				n.Add(1)
			}
		})
	}
	group.Wait()
	return float64(n.Load()) / time.Since(began).Seconds()
}
