package crew

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// A pause ends also if the process is told to stop in the middle of it.
func TestAPauseEnds(t *testing.T) {
	dsn, dir := database(t), t.TempDir()
	w, err := history.Create(dir, "operator-1.1")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	pool := pgtest.Pool(t, dsn)
	client, err := fencepost.New(pool, fencepost.Config{})
	if err != nil {
		t.Fatal(err)
	}
	o := &operator{member{script.Assignment{}, w}, pool, client, rand.New(rand.NewPCG(1, 1))}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- o.pause(ctx, time.Hour) }()
	until(t, dir, shown("pause", func(e history.Event) bool { return e.Verb == "pause" && e.Phase == history.OK }))
	if !paused(t, client) {
		t.Error("the queue is not paused")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	until(t, dir, shown("resume", func(e history.Event) bool { return e.Verb == "resume" && e.Phase == history.OK }))
	if paused(t, client) {
		t.Error("the queue is still paused")
	}
}

func paused(t *testing.T, client *fencepost.Client) bool {
	t.Helper()
	queues, err := client.Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if q.Name == script.Side {
			return !q.PausedAt.IsZero()
		}
	}
	return false
}

func TestNextToAnErrorOnlyWhatIsCertainIsWrittenDown(t *testing.T) {
	for _, c := range []struct {
		did     fencepost.Did
		err     error
		want    string
		certain bool
	}{
		{fencepost.Did{Done: true}, nil, "done", true},
		{fencepost.Did{Busy: true}, nil, "busy", true},
		{fencepost.Did{Refused: context.Canceled}, nil, "refused", true},
		{fencepost.Did{}, nil, "left", true},
		{fencepost.Did{Done: true}, context.Canceled, "done", true},
		{fencepost.Did{Busy: true}, context.Canceled, "busy", false},
	} {
		if got, certain := resultOf(c.did, c.err); got != c.want || certain != c.certain {
			t.Errorf("%+v next to %v: %s, %v", c.did, c.err, got, certain)
		}
	}
}
