package dispatcher_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
)

// crowd is a handler that counts who is in it, and lets nobody go while shut.
type crowd struct {
	mu       sync.Mutex
	work     time.Duration
	gate     chan struct{} // nil: open
	in, most int
	begun    map[int64]int64 // the fence of each job under which it was begun last
}

func (c *crowd) handle(ctx context.Context, row claim.Row) error {
	c.mu.Lock()
	c.in++
	c.most = max(c.most, c.in)
	c.begun[row.ID] = row.Fence
	gate, work := c.gate, c.work
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.in--
		c.mu.Unlock()
	}()
	if gate != nil {
		<-gate
	}
	return sleeper(work)(ctx, row)
}

func (c *crowd) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = make(chan struct{})
}

// takes is how long the jobs take that begin from now on.
func (c *crowd) takes(work time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.work = work
}

func (c *crowd) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.gate)
	c.gate = nil
}

func (c *crowd) peak() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

func (c *crowd) starts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.begun)
}

// ahead returns jobs that wait for a slot: with a lease, and not begun under it.
func (c *crowd) ahead(tb *table) (waiting []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for id, j := range tb.jobs {
		if time.Now().Before(j.until) && c.begun[id] != j.row.Fence {
			waiting = append(waiting, id)
		}
	}
	return waiting
}

// busy runs two slots on a backlog of jobs that take so long, over trips of 3 ms.
// The store may be changed before.
func busy(t *testing.T, jobs int, work, lease time.Duration, s *store) (*table, *crowd, *worker) {
	tb := newTable(lease)
	tb.insert("q", "k", jobs)
	s.table = tb
	s.onTrip = func(dispatcher.Trip) error { <-time.After(3 * time.Millisecond); return nil }
	c := &crowd{work: work, begun: make(map[int64]int64)}
	return tb, c, start(t, s, dispatcher.Config{Handle: c.handle, SoftStop: time.Minute})
}

// Slots do not stand empty while a trip is under way, and no more handlers run
// than there are slots.
func TestShortJobsAreClaimedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, c, w := busy(t, 2000, time.Millisecond, lease, &store{})
		begin := time.Now()
		for tb.ends() < 2000 {
			<-tb.progress
		}
		if took := time.Since(begin); took > 1100*time.Millisecond {
			t.Errorf("2000 jobs of 1 ms on two slots took %v", took)
		}
		if c.peak() != 2 {
			t.Errorf("%d handlers at once", c.peak())
		}
		w.mustStop()
	})
}

// What would wait here for long is left to others.
func TestLongJobsAreNotClaimedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, c, w := busy(t, 50, 100*time.Millisecond, lease, &store{})
		for tb.ends() < 40 {
			pass(7 * time.Millisecond)
			if waiting := c.ahead(tb); len(waiting) > 0 {
				t.Errorf("jobs %v wait", waiting)
			}
		}
		w.mustStop()
	})
}

// A stop begins none of the jobs that wait, and hands them back at once.
func TestAStopHandsBackWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, c, w := busy(t, 2000, time.Millisecond, lease, &store{})
		pass(500 * time.Millisecond)
		c.shut()
		pass(100 * time.Millisecond)
		waiting, starts := c.ahead(tb), c.starts()
		if len(waiting) == 0 {
			t.Fatal("no job waits")
		}
		w.cancel()
		pass(100 * time.Millisecond)
		for _, id := range waiting {
			wantVerbs(t, tb, id, claim.Return)
		}
		c.open()
		if err := w.wait(); err != nil {
			t.Fatal(err)
		}
		if n := c.starts() - starts; n != 0 || tb.held() != 0 {
			t.Errorf("%d jobs were begun during the stop, %d leases are left", n, tb.held())
		}
	})
}

// A job that was taken from us while it waited is not begun.
func TestWhatIsLostWhileItWaitsIsNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, c, w := busy(t, 2000, time.Millisecond, lease, &store{})
		pass(500 * time.Millisecond)
		c.shut()
		pass(100 * time.Millisecond)
		waiting := c.ahead(tb)
		if len(waiting) < 2 {
			t.Fatalf("jobs %v wait", waiting)
		}
		stolen, cancelled := waiting[0], waiting[1]
		tb.steal(stolen)
		tb.cancel(cancelled)
		w.Recall()
		synctest.Wait()
		c.open()
		for tb.ends() < 1999 {
			<-tb.progress
		}
		c.mu.Lock()
		for _, id := range []int64{stolen, cancelled} {
			if fence, begun := c.begun[id]; begun {
				t.Errorf("job %d was begun under fence %d", id, fence)
			}
		}
		c.mu.Unlock()
		w.mustStop()
	})
}

// A stop says nothing of it either.
func TestWhatIsLostWhileItWaitsIsNotHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, c, w := busy(t, 2000, time.Millisecond, lease, &store{})
		pass(500 * time.Millisecond)
		c.shut()
		pass(100 * time.Millisecond)
		waiting := c.ahead(tb)
		if len(waiting) == 0 {
			t.Fatal("no job waits")
		}
		tb.steal(waiting[0])
		w.Recall()
		synctest.Wait()
		w.cancel()
		pass(100 * time.Millisecond)
		c.open()
		if err := w.wait(); err != nil {
			t.Error(err)
		}
		if len(tb.lost) > 0 {
			t.Errorf("refused: %v", tb.lost)
		}
	})
}

// While outcomes cannot be stored nothing is begun.
func TestNothingThatWaitsIsBegunInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var down error
		tb, c, w := busy(t, 2000, time.Millisecond, lease, &store{onFinish: func(context.Context, []claim.Outcome) error {
			mu.Lock()
			defer mu.Unlock()
			return down
		}})
		set := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			down = err
		}
		pass(500 * time.Millisecond)
		c.shut()
		pass(100 * time.Millisecond)
		before := len(c.ahead(tb))
		set(errors.New("down"))
		c.takes(20 * time.Millisecond) // some are begun before the first trip has told
		c.open()
		pass(500 * time.Millisecond)
		if after := len(c.ahead(tb)); after == 0 {
			t.Errorf("of %d jobs that waited all were begun", before)
		}
		set(nil)
		c.takes(time.Millisecond)
		for tb.ends() < 2000 {
			<-tb.progress
		}
		w.mustStop()
	})
}

// A job is not begun with less than half its lease left: it goes back.
func TestWhatHasLittleLeftOfItsLeaseGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const short = time.Second
		s := &store{onExtend: func(context.Context, []claim.Lease) error { return errors.New("down") }}
		tb, c, w := busy(t, 2000, time.Millisecond, short, s)
		pass(short / 4)
		c.shut()
		pass(short / 4)
		waiting := c.ahead(tb)
		if len(waiting) == 0 {
			t.Fatal("no job waits")
		}
		pass(short / 2)
		c.open()
		pass(100 * time.Millisecond)
		for _, id := range waiting {
			if verbs := tb.verbs(id); len(verbs) == 0 || verbs[0] != claim.Return {
				t.Errorf("job %d: %v", id, verbs)
			}
		}
		w.mustStop()
	})
}
