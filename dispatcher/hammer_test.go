package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
)

// hammer is a worker on real goroutines with a store that fails in every way
// now and then. Nothing polls: a queue is woken only when a job of it becomes
// ready, so a wake-up that is lost leaves jobs behind.
type hammer struct {
	*table
	store   *store
	queues  []dispatcher.Queue
	running map[string]*atomic.Int32
	claims  sync.Map // claim.Lease → *atomic.Int32, how often a handler was started for it
	tooMany atomic.Int32
	handled atomic.Int32
}

func newHammer() *hammer {
	h := &hammer{
		table:   newTable(time.Minute),
		queues:  []dispatcher.Queue{{Name: "one", Slots: 1}, {Name: "few", Slots: 7}, {Name: "many", Slots: 60}},
		running: make(map[string]*atomic.Int32),
	}
	for _, q := range h.queues {
		h.running[q.Name] = new(atomic.Int32)
	}
	h.store = &store{
		table: h.table,
		onTrip: func(dispatcher.Trip) error { // time for another beside it
			for range rand.IntN(200) {
				runtime.Gosched()
			}
			return nil
		},
		onFinish: func(_ context.Context, outcomes []claim.Outcome) error {
			switch rand.IntN(300) { // each failure costs a pause
			case 0:
				return claim.ErrTryAgain
			case 1:
				h.finish(outcomes)
				return fmt.Errorf("stored, but not heard: %w", claim.ErrUnknown)
			case 2:
				h.rob(outcomes[rand.IntN(len(outcomes))].ID)
			}
			return nil
		},
		onClaim: func(context.Context, dispatcher.Want) error {
			if rand.IntN(300) == 0 {
				return errors.New("claim failed")
			}
			return nil
		},
		afterClaim: func(c *claim.Claimed) {
			if n := len(c.Rows); n > 0 && rand.IntN(20) == 0 { // more than was asked for
				c.Rows = append(c.Rows, h.claim(dispatcher.Want{Queue: c.Rows[0].Queue, Limit: 3}).Rows...)
			}
		},
	}
	return h
}

// rob makes the job somebody else's, who gets it done.
func (h *hammer) rob(id int64) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	if j := h.jobs[id]; j.ended == "" {
		h.fence++
		j.row.Fence, j.until, j.ended = h.fence, time.Time{}, claim.Done
		h.end()
	}
}

func (h *hammer) handle(ctx context.Context, row claim.Row) error {
	h.handled.Add(1)
	times, _ := h.claims.LoadOrStore(row.Lease(), new(atomic.Int32))
	times.(*atomic.Int32).Add(1)

	running := h.running[row.Queue]
	defer running.Add(-1)
	now := running.Add(1)
	for _, q := range h.queues {
		if q.Name == row.Queue && int(now) > q.Slots {
			h.tooMany.Add(1)
		}
	}
	for range rand.IntN(20) {
		runtime.Gosched()
	}
	switch rand.IntN(10) {
	case 0:
		return errors.New("failed")
	case 1:
		panic("panicked")
	case 2:
		runtime.Goexit()
	case 3:
		return dispatcher.Cancel(nil)
	case 4:
		return dispatcher.Dead(errors.New("dead"))
	case 5:
		return dispatcher.RetryAfter(0, nil)
	case 6:
		return dispatcher.Snooze(0)
	}
	return ctx.Err()
}

// work starts a worker that is woken by whatever becomes ready.
func (h *hammer) work(t *testing.T) *worker {
	var w *worker
	started := make(chan struct{})
	h.ring = func(queue string) { <-started; w.Wake(queue) }
	w = start(t, h.store, dispatcher.Config{
		Queues: h.queues, Handle: h.handle, Logger: discard, SoftStop: time.Minute,
		Delay: func(int, error) time.Duration { return 0 },
	})
	close(started)
	return w
}

// check says what must hold at the end, whatever has happened.
func (h *hammer) check(t *testing.T) {
	t.Helper()
	if n := h.tooMany.Load(); n > 0 {
		t.Errorf("%d times more handlers than slots", n)
	}
	h.claims.Range(func(lease, times any) bool {
		if n := times.(*atomic.Int32).Load(); n != 1 {
			t.Errorf("%+v was run %d times", lease, n)
		}
		return true
	})
	if _, twice := h.store.beside(); len(twice) > 0 {
		t.Errorf("in two trips at once: %v", twice)
	}
	// What was on its way in both trips of the last pair has no third that closes it.
	unclosed := slices.DeleteFunc(h.unclosed(), func(number int64) bool { return h.store.split[number] })
	if len(unclosed) > 0 {
		t.Errorf("claims %v are open, and nothing of them runs", unclosed)
	}
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	ended := make(map[claim.Lease]int)
	for _, o := range h.log {
		ended[o.Lease]++
	}
	for lease, n := range ended {
		if n != 1 {
			t.Errorf("%+v has %d outcomes", lease, n)
		}
	}
	for id, j := range h.jobs {
		if !j.until.IsZero() {
			t.Errorf("job %d is still claimed", id)
		}
	}
}

func TestHammer(t *testing.T) {
	t.Parallel()
	h := newHammer()
	w := h.work(t)
	const producers, each = 16, 200
	for p := range producers {
		go func() {
			for i := range each {
				queue := h.queues[(p+i)%len(h.queues)].Name
				h.insert(queue, "k", 1)
				w.Wake(queue)
			}
		}()
	}
	for {
		select {
		case <-h.progress:
		case <-time.After(60 * time.Second):
			t.Fatalf("no job has ended for a minute; %d of %d have", h.ends(), producers*each)
		}
		if h.ends() == producers*each {
			break
		}
	}
	w.mustStop()
	h.check(t)
	beside, _ := h.store.beside()
	t.Logf("%d jobs, %d handlers run, %d claims, %d trips beside others", producers*each, h.handled.Load(), h.table.claimed(), beside)
}

func TestHammerStops(t *testing.T) {
	t.Parallel()
	for range 15 {
		h := newHammer()
		for _, q := range h.queues {
			h.insert(q.Name, "k", 500)
		}
		w := h.work(t)
		for range rand.IntN(100) {
			<-h.progress
		}
		go w.WakeAll()
		w.mustStop()
		h.check(t)
	}
}
