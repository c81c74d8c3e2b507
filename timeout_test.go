package fencepost_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost"
)

// The limit of a handler is that of its kind, where it has one: a longer one
// than the client's, a shorter one, or none (B68).
func TestEachKindHasItsOwnTimeout(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{JobTimeout: time.Minute})
	type limit struct {
		left time.Duration
		any  bool
	}
	limits := make(chan limit, 1)
	tell := func(ctx context.Context, _ *fencepost.Job[json.RawMessage]) error {
		deadline, any := ctx.Deadline()
		limits <- limit{time.Until(deadline), any}
		return nil
	}
	fencepost.HandleKind(client, "default", tell)
	fencepost.HandleKind(client, "longer", tell, fencepost.WithTimeout(time.Hour))
	fencepost.HandleKind(client, "shorter", tell, fencepost.WithTimeout(30*time.Second))
	fencepost.HandleKind(client, "none", tell, fencepost.WithTimeout(-1))
	work(t, client)
	for kind, want := range map[string]time.Duration{"default": time.Minute, "longer": time.Hour, "shorter": 30 * time.Second, "none": 0} {
		enqueue(t, client, fencepost.NewJob{Kind: kind})
		got := receive(t, limits, "a job of kind "+kind)
		if got.any != (want > 0) || got.any && (got.left > want || got.left < want-20*time.Second) {
			t.Errorf("kind %s: limited %v, %v left, want %v", kind, got.any, got.left, want)
		}
	}
}

// A handler that goes on long after its timeout gets a spare in its place, and
// its lease is let go, so that the job ends and others run (B70).
func TestASpareTakesThePlaceOfAStuckHandler(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{
		Lease: 2 * time.Second, PollInterval: time.Second,
		Queues: map[string]fencepost.Queue{fencepost.DefaultQueue: {Slots: 1, Spares: 1}},
	})
	ran := echo(client)
	began, release := make(chan struct{}), make(chan struct{})
	fencepost.HandleKind(client, "stuck", func(context.Context, *fencepost.Job[json.RawMessage]) error {
		close(began)
		<-release
		return nil
	}, fencepost.WithTimeout(10*time.Millisecond))
	stuck := enqueue(t, client, fencepost.NewJob{Kind: "stuck", MaxAttempts: 1})[0]
	stop := work(t, client)
	receive(t, began, "the handler")
	enqueue(t, client, fencepost.NewJob{Kind: "echo"})
	receive(t, ran, "a job beside the stuck handler")
	if info := ended(t, client, stuck); info.Status != fencepost.StatusDead || !strings.Contains(info.LastError, "ran out in attempt 1 of 1") {
		t.Errorf("the stuck job is %s: %s", info.Status, info.LastError)
	}
	close(release)
	if err := stop(); err != nil {
		t.Error(err)
	}
}
