package play

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func empty(context.Context, string) error { return nil }

// crew is a child under test.
type crew struct {
	*testing.T
	*wire.Child
}

// member starts a child on the database.
func member(t *testing.T, p programs, peer string, o wire.Options) crew {
	t.Helper()
	child, err := p.start(t.Output(), func(_, _ string) {})(t.Context(), peer, o)
	if errors.Is(err, errNode) && os.Getenv("CI") == "" && os.Getenv("FENCEPOST_NEED_ALL") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := child.Close(); err != nil {
			t.Error(err)
		}
	})
	if d := child.Described; d.Version == "" || d.Settings == "" {
		t.Errorf("it says of itself: %+v", d)
	}
	t.Logf("%+v", child.Described)
	return crew{t, child}
}

func call[T any](c crew, do string, with any) (result T) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	if err := c.Call(ctx, do, with, &result); err != nil {
		c.Fatal(err)
	}
	return result
}

func (c crew) work(w wire.Work) {
	c.Helper()
	if err := c.Call(c.Context(), wire.DoWork, w, nil); err != nil {
		c.Fatal(err)
	}
}

func (c crew) produce(p wire.Produce) wire.Produced {
	c.Helper()
	p.Bytes, p.Seed = 200, 1
	return call[wire.Produced](c, wire.DoProduce, p)
}

// worked waits for so many jobs and stops the worker. Each job from first on
// has to have been started and ended.
func (c crew) worked(first, n int) wire.Worked {
	c.Helper()
	if w := call[wire.Worked](c, wire.DoAwait, wire.Await{N: n, Seconds: 50}); w.Done != n {
		c.Errorf("%d of %d jobs done", w.Done, n)
	}
	w := call[wire.Worked](c, wire.DoStop, nil)
	if w.Done != n || len(w.Starts) != n || len(w.Ends) != n || len(w.StartsUnix) != n {
		c.Errorf("%d done, %d and %d started, %d ended; want %d", w.Done, len(w.Starts), len(w.StartsUnix), len(w.Ends), n)
	}
	for i := first; i < first+n; i++ {
		if w.Starts[i] < w.First || w.Ends[i] < w.Starts[i] || w.Last < w.Ends[i] {
			c.Errorf("job %d: first start %d, start %d, end %d, last end %d", i, w.First, w.Starts[i], w.Ends[i], w.Last)
		}
	}
	return w
}

func TestPeers(t *testing.T) {
	t.Parallel()
	p, err := build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for peer := range crews {
		t.Run(peer+" at its best", func(t *testing.T) {
			t.Parallel()
			testBest(t, p, peer)
		})
		t.Run(peer+" at its defaults", func(t *testing.T) {
			t.Parallel()
			testDefaults(t, p, peer)
		})
	}
}

// testBest asks for all that the suites rely on.
func testBest(t *testing.T, p programs, peer string) {
	o := wire.Options{DSN: pgtest.New(t, "bench", empty), Best: true, Keep: true}
	c := member(t, p, peer, o)
	// pg-boss is woken at its best, and polls each 30 s only. What nothing wakes
	// it for is tested at its defaults.
	polls := peer != "pgboss"

	c.produce(wire.Produce{N: 30, Way: "one", Clients: 2})
	c.produce(wire.Produce{First: 30, N: 40, Way: "many", Batch: 15})
	c.produce(wire.Produce{First: 70, N: 30, Way: "copy", Batch: 30})
	how := wire.Work{Log: true, Window: 25}
	if polls {
		how.FailEvery, how.RetryAfter = 50, time.Millisecond
	}
	c.work(how)
	if w := c.worked(0, 100); len(w.Windows) != 4 {
		c.Errorf("windows: %v", w.Windows)
	}
	if u := call[wire.Usage](c, wire.DoUsage, nil); u.Heap == 0 {
		c.Errorf("usage: %+v", u)
	}

	// Two children on one database share the clock.
	c.work(wire.Work{Log: true, Sleep: time.Millisecond})
	producer := member(t, p, peer, o)
	made := producer.produce(wire.Produce{First: 100, N: 20, Way: "one", Clients: 4, Rate: 100, Gap: time.Millisecond, GapTo: 5 * time.Millisecond})
	for i, start := range c.worked(100, 20).Starts {
		if at := made.Scheduled[i-100]; made.Returned[i-100] < at || start < at {
			c.Errorf("job %d: scheduled %d, returned %d, started %d", i, at, made.Returned[i-100], start)
		}
	}

	if polls {
		c.work(wire.Work{Log: true})
		scheduled(c, producer, 120, 10)
	}

	// Closed at work, and with a call that it does not know.
	c.work(wire.Work{})
	if err := c.Call(t.Context(), "dance", nil, nil); err == nil {
		t.Error("it knows how to dance")
	}
}

// scheduled lets jobs be worked that are due later: not before they are, by a
// clock that is also the server's.
func scheduled(c, producer crew, first, n int) {
	c.Helper()
	made := producer.produce(wire.Produce{First: first, N: n, Way: "one", Delay: 300 * time.Millisecond, DelayTo: time.Second})
	for i, start := range c.worked(first, n).StartsUnix {
		if late := time.Duration(start - made.Due[i-first]); late < -time.Millisecond {
			c.Errorf("job %d: %v too early", i, -late)
		}
	}
}

// testDefaults asks for little: at its defaults a peer may be slow.
func testDefaults(t *testing.T, p programs, peer string) {
	c := member(t, p, peer, wire.Options{DSN: pgtest.New(t, "bench", empty)})
	c.produce(wire.Produce{N: 1, Way: "one"})
	c.work(wire.Work{Log: true, FailEvery: 2})
	c.worked(0, 1)
	c.work(wire.Work{Log: true})
	scheduled(c, c, 1, 1)
}
