package fencepost_test

import (
	"testing"
	"time"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// Health tells how each part is doing: before, at work, while the server is
// away, after, and at the end.
func TestHealth(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	pool := pgtest.Pool(t, server.URL("postgres"))
	client := newClient(t, pool, fencepost.Config{PollInterval: time.Second, Lease: 2 * time.Second})
	began, release := hold(client)
	if h := client.Health(); h != (fencepost.Health{}) {
		t.Errorf("before Run: %+v", h)
	}
	stop := work(t, client)
	enqueue(t, client, fencepost.NewJob{Kind: "hold"})
	receive(t, began, "the job")
	// Every loop has made a pass since the given time.
	well := func(when string, since time.Time) {
		t.Helper()
		eventually(t, when, func() bool {
			h := client.Health()
			for _, l := range []fencepost.Loop{h.Tick, h.Exchange, h.Keeper, h.Listener, h.Presence} {
				if l.Err != nil || l.Last.IsZero() {
					return false
				}
			}
			return h.Running && h.Hearing && h.Locked && h.InHand == 1 &&
				h.Tick.Last.After(since) && h.Keeper.Last.After(since) && h.Listener.Last.After(since)
		})
	}
	well("all is well", time.Time{})
	well("all goes on", time.Now())

	if err := server.Shutdown("fast"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it shows that the server is away", func() bool {
		h := client.Health()
		return h.Running && h.Tick.Err != nil && h.Keeper.Err != nil && h.Listener.Err != nil && !h.Hearing && !h.Locked
	})
	if h := client.Health(); h.Tick.Last.IsZero() || h.InHand != 1 {
		t.Errorf("while the server is away: %+v", h)
	}
	back := time.Now()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The lease may be over, and the job run once more.
	eventually(t, "all is well again", func() bool {
		h := client.Health()
		return h.Hearing && h.Locked && h.Tick.Err == nil && h.Tick.Last.After(back) && h.Listener.Last.After(back) && h.Listener.Err == nil
	})
	close(release)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if h := client.Health(); h.Running || h.Hearing || h.Locked || h.InHand != 0 {
		t.Errorf("after Run: %+v", h)
	}
}
