package notify

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fencepost-go/fencepost/internal/faultproxy"
)

func TestHearsBellsOfAllForms(t *testing.T) {
	t.Parallel()
	e := newEar(t, database(t), nil, 0)
	e.runTicking(t)
	e.hears(t, "first")
	ring(t, e.dsn, "fence post", "1:1700000000123456:a:b")
	got := wait(t, e.bells, "bell")
	if got.Queue != "a:b" || !got.Due.Equal(time.UnixMicro(1700000000123456)) {
		t.Errorf("heard %v", got)
	}

	ring(t, e.dsn, "fence post", "recall:host:1:abc")
	if worker := wait(t, e.recalls, "recall"); worker != "host:1:abc" {
		t.Errorf("recalled %q", worker)
	}

	e.tick(t) // more proof is no news
	for _, payload := range []string{"recall", "Recall:x", "", "1:0:last"} {
		ring(t, e.dsn, "fence post", payload)
	}
	wait(t, e.bells, "bell")
	if len(e.recalls) > 0 {
		t.Errorf("recalled %q", <-e.recalls)
	}
	if n := e.log.count("notifications are heard"); n != 1 || e.log.count("") != 1 || len(e.changes) > 0 {
		t.Errorf("want one change and one line in the log, got %d more changes and:\n%s", len(e.changes), e.log)
	}
}

// The limit for LISTEN must not outlive it: it would end every connection.
func TestLimitForListenEndsWithIt(t *testing.T) {
	t.Parallel()
	e := newEar(t, database(t), nil, 0)
	running := make(chan bool, 1)
	e.Listener.config.Connected = func() { running <- e.session.setup.Stop() }
	e.run(t)
	if wait(t, running, "connection") {
		t.Error("the limit was still running after LISTEN")
	}
}

// B37: who looks before LISTEN has committed on both channels misses what is
// rung in between.
func TestLooksOnlyAfterListenHasCommitted(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	proxy := faultproxy.New(t, dsn)
	e := newEar(t, dsn, proxy, 0)
	looked := make(chan struct{}, 1000)
	e.Listener.config.Connected = func() {
		// Here the caller looks. What is rung from now on must be heard.
		ring(t, dsn, "fence post", "1:0:after the look")
		e.tick(t)
		looked <- struct{}{}
	}

	// The second LISTEN is held back, and a job comes meanwhile.
	held, release := make(chan struct{}, 1000), make(chan struct{})
	var listens atomic.Int32
	proxy.OnQuery(func(string) *pgproto3.ErrorResponse {
		if listens.Add(1)%channels == 0 {
			held <- struct{}{}
			<-release
		}
		return nil
	})
	e.run(t)
	t.Cleanup(func() { close(release) })
	for range 2 { // at the start and after a loss
		wait(t, held, "the second LISTEN")
		ring(t, dsn, "fence post", "1:0:before the look")
		if len(looked) > 0 {
			t.Fatal("looked before LISTEN had committed on both channels")
		}
		release <- struct{}{}
		wait(t, looked, "the look")
		for wait(t, e.bells, "bell").Queue != "after the look" {
		}
		for !wait(t, e.changes, "hearing").hearing {
		}
		e.kill(t)
		e.isDeaf(t)
	}
}

// B51: a config that is used again, with a notification handler in it, gives
// the next connection no notifications at all.
func TestEachConnectionHasItsOwnConfig(t *testing.T) {
	t.Parallel()
	e := newEar(t, database(t), nil, 0)
	e.config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {
		t.Error("a notification went to the handler of the config")
	}
	e.runTicking(t)
	e.hears(t, "first")
	e.kill(t)
	e.isDeaf(t)
	e.hears(t, "second")
	if e.config.OnNotification == nil || e.config.ConnectTimeout != 0 {
		t.Error("the caller's config was changed")
	}
}

// B51: whatever arrives on either channel, or on one that is none of ours.
func TestOddNotificationsAreHarmless(t *testing.T) {
	t.Parallel()
	e := newEar(t, database(t), nil, 0)
	e.config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		return conn.Exec(ctx, "LISTEN other").Close()
	}
	e.runTicking(t)
	e.hears(t, "before")
	for _, channel := range []string{"fence post", e.Own(), "other"} {
		for _, payload := range []string{"", ":", "x", "1:0:", "1:-7:q", "2:0:q", "-1", "0", "999999", strings.Repeat("x", 7999)} {
			ring(t, e.dsn, channel, payload)
		}
	}
	ring(t, e.dsn, "fence post", "1:0:after")
	if got := wait(t, e.bells, "bell"); got.Queue != "after" {
		t.Errorf("heard %v", got)
	}
	if len(e.changes) > 0 || len(e.attempts) != 1 {
		t.Errorf("connected %d times; the log:\n%s", len(e.attempts), e.log)
	}
}

// Only what this process rang proves that it hears.
func TestStrangersProveNothing(t *testing.T) {
	t.Parallel()
	e := newEar(t, database(t), nil, 0)
	e.run(t)
	wait(t, e.looks, "connection")
	for _, payload := range []string{"", "x", "0", "1"} {
		ring(t, e.dsn, e.Own(), payload)
	}
	ring(t, e.dsn, "fence post", "1:0:q")
	wait(t, e.bells, "bell")
	if len(e.changes) > 0 {
		t.Errorf("a stranger's bell changed what is known: %v", <-e.changes)
	}
}

// Anything may be asked of a Listener in any state without waiting.
func TestExpectAndAwaitNeverBlock(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	proxy := faultproxy.New(t, dsn)
	e := newEar(t, dsn, proxy, half)
	e.pace = fastPace()
	storm := func() {
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				for range 200 {
					e.Await(e.Expect())
				}
			})
		}
		done := make(chan struct{})
		go func() { calls.Wait(); close(done) }()
		wait(t, done, "Expect and Await")
	}
	storm() // before Run
	stop := e.runTicking(t)
	e.hears(t, "before")
	for range 5 {
		storm() // bells that are never rung: the connection is given up, again and again
	}
	proxy.Stall()
	storm()
	proxy.Refuse()
	storm()
	proxy.Resume()
	proxy.Accept(t)
	e.hears(t, "after")
	stop()
	storm() // after Run
}
