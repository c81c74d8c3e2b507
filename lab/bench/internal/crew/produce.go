package crew

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// produce enqueues as it is asked to.
func produce(ctx context.Context, q Queue, p wire.Produce) (wire.Produced, error) {
	if p.Rate > 0 {
		return openLoop(ctx, q, p)
	}
	return closedLoop(ctx, q, p)
}

// closedLoop enqueues as fast as it goes.
func closedLoop(ctx context.Context, q Queue, p wire.Produce) (wire.Produced, error) {
	clients := max(p.Clients, 1)
	size := 1
	if p.Way != "one" {
		size = max(p.Batch, 1)
	}
	// Made beforehand: it is the queue that is measured.
	delays := rand.New(rand.NewPCG(p.Seed, 2))
	out := newProduced(p)
	var batches [][]Job
	for at := 0; at < p.N; at += size {
		batch := make([]Job, 0, size)
		for i := at; i < min(at+size, p.N); i++ {
			batch = append(batch, jobOf(p, i, delays, out))
		}
		batches = append(batches, batch)
	}
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, clients)
	began := time.Now()
	for c := range clients {
		group.Go(func() {
			for errs[c] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(batches) {
					return
				}
				errs[c] = send(ctx, q, p.Way, batches[i])
				now := wire.Now()
				for n := range batches[i] {
					if out.Returned != nil {
						out.Returned[i*size+n] = now
					}
				}
			}
		})
	}
	group.Wait()
	out.Seconds = time.Since(began).Seconds()
	return *out, errors.Join(errs...)
}

func send(ctx context.Context, q Queue, way string, jobs []Job) error {
	switch way {
	case "one", "":
		for _, j := range jobs {
			if err := q.One(ctx, j); err != nil {
				return err
			}
		}
		return nil
	case "many":
		return q.Many(ctx, jobs)
	case "copy":
		return q.Copy(ctx, jobs)
	}
	return fmt.Errorf("unknown way %q", way)
}

// openLoop enqueues at the times that the rate says, whatever the queue makes
// of them: a call that is late makes no other later.
func openLoop(ctx context.Context, q Queue, p wire.Produce) (wire.Produced, error) {
	gaps := rand.New(rand.NewPCG(p.Seed, 1))
	delays := rand.New(rand.NewPCG(p.Seed, 2))
	out := newProduced(p)
	clients := make(chan struct{}, max(p.Clients, 1))
	var group sync.WaitGroup
	var mu sync.Mutex
	var failed error
	began := time.Now()
	at := wire.Now() + int64(10*time.Millisecond)
	for i := range p.N {
		switch {
		case i == 0:
		case p.Gap > 0 && i%2 == 1:
			at += int64(between(gaps, p.Gap, p.GapTo))
		default:
			at += int64(gaps.ExpFloat64() / p.Rate * float64(time.Second))
		}
		job := jobOf(p, i, delays, out)
		until(at)
		if err := ctx.Err(); err != nil {
			failed = err
			break
		}
		out.Scheduled[i] = at
		clients <- struct{}{}
		group.Go(func() {
			defer func() { <-clients }()
			err := q.One(ctx, job)
			out.Returned[i] = wire.Now()
			if err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	out.Seconds = time.Since(began).Seconds()
	return *out, failed
}

// until sleeps until the time of wire.Now.
func until(at int64) {
	if d := at - wire.Now(); d > 0 {
		time.Sleep(time.Duration(d))
	}
}

func newProduced(p wire.Produce) *wire.Produced {
	out := &wire.Produced{}
	if p.Log || p.Rate > 0 || p.Delay > 0 || p.DelayTo > 0 {
		out.Scheduled, out.Returned = make([]int64, p.N), make([]int64, p.N)
	}
	if p.Delay > 0 || p.DelayTo > 0 {
		out.Due = make([]int64, p.N)
	}
	return out
}

// jobOf makes the job with the given place among those asked for.
func jobOf(p wire.Produce, i int, delays *rand.Rand, out *wire.Produced) Job {
	job := Job{N: p.First + i, Payload: payload(p.First+i, p.Bytes), Queue: p.Queue}
	if out.Due != nil {
		due := time.Now().Add(between(delays, p.Delay, p.DelayTo)).Truncate(time.Microsecond)
		job.RunAt, out.Due[i] = due, due.UnixNano()
	}
	return job
}

// payload is one whose JSON has the given size, if that is enough for n.
func payload(n, bytes int) Payload {
	bare := len(`{"n":,"pad":""}`) + len(strconv.Itoa(n))
	return Payload{N: n, Pad: pad[:min(max(bytes-bare, 0), len(pad))]}
}

func between(r *rand.Rand, from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(r.Int64N(int64(to-from)+1))
}

var pad = strings.Repeat("x", 1<<16)
