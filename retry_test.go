package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost"
)

// What is stored after each failure is what the documented table says: 1 s,
// doubled by every further failure, ± 20 % (B81).
func TestStoredPausesFollowTheTable(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	began, gate := make(chan struct{}, 5), make(chan struct{})
	fencepost.HandleKind(client, "k", func(context.Context, *fencepost.Job[json.RawMessage]) error {
		began <- struct{}{}
		<-gate
		return errors.New("failed")
	})
	if _, err := pool.Exec(t.Context(), "INSERT INTO fencepost.jobs (kind, attempts) SELECT 'k', n FROM generate_series(0, 4) AS n"); err != nil {
		t.Fatal(err)
	}
	// They fail during a stop: what comes back is not claimed again.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	for range 5 {
		receive(t, began, "a handler")
	}
	clock := func() (now time.Time) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
			t.Fatal(err)
		}
		return now
	}
	cancel()
	before := clock()
	close(gate)
	if err := receive(t, ended, "Run"); err != nil {
		t.Fatal(err)
	}
	after := clock()

	jobs, err := client.List(t.Context(), fencepost.Filter{})
	if err != nil || len(jobs) != 5 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	for _, job := range jobs {
		want := time.Second << (job.Attempts - 1)
		earliest, latest := before.Add(want*8/10), after.Add(want*12/10)
		if job.LastError != "failed" || job.RunAt.Before(earliest) || job.RunAt.After(latest) {
			t.Errorf("after failure %d (%s) it is due %v later, want %v ± 20 %%", job.Attempts, job.LastError, job.RunAt.Sub(before), want)
		}
	}
}
