package crew

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// worker is a queue at work, and what its handlers have seen.
type worker struct {
	how    wire.Work
	cancel context.CancelFunc
	ended  chan error // gets the one result of Queue.Work

	done        atomic.Int64
	first, last atomic.Int64
	awaited     atomic.Int64  // how many somebody waits for
	reached     chan struct{} // has room for one: done has grown to that

	mu         sync.Mutex
	windows    []int64
	starts     map[int]int64
	ends       map[int]int64
	startsUnix map[int]int64
	failed     map[int]bool
}

func startWorker(ctx context.Context, q Queue, how wire.Work) (*worker, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{
		how: how, cancel: cancel, ended: make(chan error, 1), reached: make(chan struct{}, 1),
		starts: make(map[int]int64), ends: make(map[int]int64), startsUnix: make(map[int]int64), failed: make(map[int]bool),
	}
	w.awaited.Store(math.MaxInt64)
	ready := make(chan struct{})
	var once sync.Once
	go func() { w.ended <- q.Work(ctx, w.handle, func() { once.Do(func() { close(ready) }) }) }()
	select {
	case <-ready:
		return w, nil
	case err := <-w.ended:
		cancel()
		if err == nil {
			err = errors.New("the worker has ended at once")
		}
		return nil, err
	}
}

// handle is every job's handler.
func (w *worker) handle(ctx context.Context, p Payload) error {
	if w.first.Load() == 0 {
		w.first.CompareAndSwap(0, wire.Now())
	}
	if w.how.Log {
		at, unix := wire.Now(), time.Now().UnixNano()
		w.mu.Lock()
		w.starts[p.N], w.startsUnix[p.N] = at, unix
		w.mu.Unlock()
	}
	if w.how.Sleep > 0 {
		select {
		case <-time.After(w.how.Sleep):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if w.how.FailEvery > 0 && p.N%w.how.FailEvery == 0 && w.failsNow(p.N) {
		return Retry{After: w.how.RetryAfter}
	}
	now := wire.Now()
	raise(&w.last, now) // one that has ended later may have come here before
	n := w.done.Add(1)
	if w.how.Log {
		w.mu.Lock()
		w.ends[p.N] = now
		w.mu.Unlock()
	}
	if w.how.Window > 0 && n%int64(w.how.Window) == 0 {
		w.mu.Lock()
		w.windows = append(w.windows, now)
		w.mu.Unlock()
	}
	if n >= w.awaited.Load() { // to wake somebody at each job would be a part of what it costs
		select {
		case w.reached <- struct{}{}:
		default:
		}
	}
	return nil
}

// raise sets t to at, unless it is later already.
func raise(t *atomic.Int64, at int64) {
	for was := t.Load(); was < at && !t.CompareAndSwap(was, at); was = t.Load() {
	}
}

// failsNow says whether this is the job's first attempt.
func (w *worker) failsNow(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed[n] {
		return false
	}
	w.failed[n] = true
	return true
}

func (w *worker) await(ctx context.Context, a wire.Await) (wire.Worked, error) {
	limit := time.NewTimer(time.Duration(a.Seconds * float64(time.Second)))
	defer limit.Stop()
	w.awaited.Store(int64(a.N))
	defer w.awaited.Store(math.MaxInt64)
	for w.done.Load() < int64(a.N) {
		select {
		case <-w.reached:
		case <-limit.C:
			return w.worked(), nil
		case err := <-w.ended:
			w.ended <- err
			return w.worked(), errors.Join(errors.New("the worker has ended by itself"), err)
		case <-ctx.Done():
			return w.worked(), ctx.Err()
		}
	}
	return w.worked(), nil
}

func (w *worker) stop() (wire.Worked, error) {
	w.cancel()
	err := <-w.ended
	worked := w.worked()
	worked.Starts, worked.Ends, worked.StartsUnix = w.starts, w.ends, w.startsUnix
	return worked, err
}

func (w *worker) worked() wire.Worked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return wire.Worked{
		Done: int(w.done.Load()), First: w.first.Load(), Last: w.last.Load(),
		Windows: append([]int64(nil), w.windows...),
	}
}
