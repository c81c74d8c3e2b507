package suite

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// couple is a queue on a database of its own: a process that enqueues, and one
// or more that work. Its jobs are numbered as they are enqueued.
type couple struct {
	entrant
	dsn      string
	producer *wire.Child
	workers  []*wire.Child

	produced wire.Produced // of all jobs, by number
	warm     int           // that many came first and are not looked at
	worked   []wire.Worked // of each worker, once they have stopped
	stopped  int64         // when that was
	behind   bool          // it has not worked in time what was enqueued
	undo     []func() error
}

// patience is how long one waits for the last jobs.
const patience = 20 * time.Second

// producerConns lets as many enqueue at once as a suite asks for.
const producerConns = 32

// couple makes one whose workers do what w says.
func (b *Bench) couple(ctx context.Context, e entrant, workers int, w wire.Work) (*couple, error) {
	return b.mixed(ctx, e, e, workers, w)
}

// mixed makes one that somebody else enqueues for.
func (b *Bench) mixed(ctx context.Context, e, producer entrant, workers int, w wire.Work) (c *couple, err error) {
	c = &couple{entrant: e}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	var drop func() error
	if c.dsn, drop, err = b.Host.Fresh(ctx); err != nil {
		return c, err
	}
	c.undo = append(c.undo, drop)
	w.Log = true
	for range workers {
		worker, err := b.member(ctx, c, e, c.dsn)
		if err != nil {
			return c, err
		}
		c.workers = append(c.workers, worker)
		if err := worker.Call(ctx, wire.DoWork, w, nil); err != nil {
			return c, err
		}
	}
	c.producer, err = b.member(ctx, c, producer, withConnections(c.dsn, producerConns))
	return c, err
}

// member starts a process of the couple.
func (b *Bench) member(ctx context.Context, c *couple, e entrant, dsn string) (*wire.Child, error) {
	e.o.DSN = dsn
	child, err := b.Start(ctx, e.peer, e.o)
	if err == nil {
		c.undo = append(c.undo, child.Close)
	}
	return child, err
}

// settings are those of its workers, in words.
func (c *couple) settings() string { return c.workers[0].Described.Settings }

// ready lets it have enqueued and worked some jobs before one looks:
// connections are made and statements prepared then.
func (c *couple) ready(ctx context.Context) error {
	return c.warmUp(ctx, wire.Produce{N: 20, Rate: 100, Clients: 4})
}

// warmUp is the same with what is asked for.
func (c *couple) warmUp(ctx context.Context, p wire.Produce) error {
	err := c.produce(ctx, p)
	c.warm, c.produced.Seconds = len(c.produced.Returned), 0
	return err
}

// produce enqueues jobs of 200 B, in a commit each, and waits until they have
// been worked.
func (c *couple) produce(ctx context.Context, p wire.Produce) error {
	if err := c.enqueue(ctx, p); err != nil {
		return err
	}
	all, err := c.await(ctx)
	c.behind = !all
	return err
}

func (c *couple) enqueue(ctx context.Context, p wire.Produce) error {
	p.First, p.Bytes, p.Way, p.Log = len(c.produced.Returned), 200, "one", true
	var out wire.Produced
	if err := c.producer.Call(ctx, wire.DoProduce, p, &out); err != nil {
		return err
	}
	c.produced.Seconds += out.Seconds
	c.produced.Scheduled = append(c.produced.Scheduled, out.Scheduled...)
	c.produced.Returned = append(c.produced.Returned, out.Returned...)
	if out.Due == nil {
		out.Due = make([]int64, p.N)
	}
	c.produced.Due = append(c.produced.Due, out.Due...)
	return nil
}

// await waits until the workers have run what was enqueued, but not for long
// once it is due. It says whether they have.
func (c *couple) await(ctx context.Context) (all bool, err error) {
	if len(c.produced.Due) > 0 {
		time.Sleep(time.Until(time.Unix(0, slices.Max(c.produced.Due))))
	}
	for limit := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		done := 0
		for _, worker := range c.workers {
			var w wire.Worked
			if err := worker.Call(ctx, wire.DoAwait, wire.Await{N: math.MaxInt32}, &w); err != nil { // for no time
				return false, err
			}
			done += w.Done
		}
		if done >= len(c.produced.Returned) || time.Now().After(limit) {
			return done >= len(c.produced.Returned), nil
		}
	}
}

// stop stops the workers, which tell then what they have seen.
func (c *couple) stop(ctx context.Context) error {
	for _, worker := range c.workers {
		var w wire.Worked
		if err := worker.Call(ctx, wire.DoStop, nil, &w); err != nil {
			return err
		}
		c.worked = append(c.worked, w)
	}
	c.stopped = wire.Now()
	return nil
}

// pickUps is how long after the return of its call each job's handler has
// started. counts says which jobs are looked at, by their place; nil: all.
func (c *couple) pickUps(counts func(n int) bool) (latency, error) {
	starts := func(w wire.Worked) map[int]int64 { return w.Starts }
	return c.since(c.produced.Returned, c.stopped, starts, counts)
}

// lateness is how long after it was due each job's handler has started.
func (c *couple) lateness() (latency, error) {
	starts := func(w wire.Worked) map[int]int64 { return w.StartsUnix }
	return c.since(c.produced.Due, time.Now().UnixNano(), starts, nil)
}

func (c *couple) since(from []int64, end int64, starts func(wire.Worked) map[int]int64, counts func(n int) bool) (latency, error) {
	l := newLatency()
	for n := c.warm; n < len(from); n++ {
		if counts != nil && !counts(n-c.warm) {
			continue
		}
		at := end
		if started := earliest(c.worked, n, starts); started > 0 {
			at = started
		} else {
			l.unseen++
		}
		if err := l.add(at - from[n]); err != nil {
			return l, err
		}
	}
	return l, nil
}

// earliest is when the job has started at first; 0: it has not.
func earliest(worked []wire.Worked, n int, starts func(wire.Worked) map[int]int64) (at int64) {
	for _, w := range worked {
		if t := starts(w)[n]; t > 0 && (at == 0 || t < at) {
			at = t
		}
	}
	return at
}

func (c *couple) close() (err error) {
	for _, u := range slices.Backward(c.undo) {
		err = errors.Join(err, u())
	}
	return err
}
