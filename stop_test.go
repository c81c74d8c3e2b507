package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// sessions counts the connections of Run, however they are named.
func sessions(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return count(t, pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'fencepost %'")
}

func openTransactions(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return count(t, pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'")
}

// Stop returns when the running job's result is committed (B138), with its
// lease extended all the while (B56), and leaves nothing behind.
func TestStopWaitsForRunningJobs(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{Lease: 2 * time.Second})
	other := newClient(t, pool, fencepost.Config{Lease: 2 * time.Second, PollInterval: time.Second})
	began, release := make(chan struct{}), make(chan struct{})
	fencepost.HandleKind(client, "k", func(context.Context, *fencepost.Job[json.RawMessage]) error {
		close(began)
		<-release
		return nil
	})
	fencepost.HandleKind(other, "k", func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
		return fmt.Errorf("job was taken over in attempt %d", job.Attempt)
	})
	id := enqueue(t, client, fencepost.NewJob{Kind: "k"})[0]
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	receive(t, began, "the handler")
	cancel()
	stopOther := work(t, other)
	eventually(t, "two leases pass", func() bool {
		return count(t, pool, "SELECT (extract(epoch FROM clock_timestamp() - created_at) > 5)::int FROM fencepost.all_jobs WHERE id = $1", id) == 1
	})
	select {
	case err := <-ended:
		t.Fatalf("Run returned before its job did: %v", err)
	default:
	}
	close(release)
	if err := receive(t, ended, "Run"); err != nil {
		t.Error(err)
	}
	if info, err := client.Get(t.Context(), id); err != nil || info.Status != fencepost.StatusDone || info.Attempts != 1 {
		t.Errorf("when Run returned the job was %+v, %v", info, err)
	}
	if err := stopOther(); err != nil {
		t.Error(err)
	}
	eventually(t, "no connection is left", func() bool { return sessions(t, pool) == 0 })
	if n := openTransactions(t, pool); n != 0 {
		t.Errorf("%d open transactions are left", n)
	}
}

// Outcomes that pile up are stored before Run returns (B143).
func TestStopStoresEveryOutcome(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{Queues: map[string]fencepost.Queue{"default": {Slots: 100}}})
	var ran atomic.Int32
	all := make(chan struct{})
	fencepost.HandleKind(client, "k", func(context.Context, *fencepost.Job[json.RawMessage]) error {
		if ran.Add(1) == 100 {
			close(all)
		}
		return nil
	})
	enqueue(t, client, make100("k")...)
	stop := work(t, client)
	receive(t, all, "100 handlers")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := count(t, pool, "SELECT count(*) FROM fencepost.finished WHERE status = 'done'"); n != 100 {
		t.Errorf("%d of 100 jobs are done", n)
	}
}

func make100(kind string) []fencepost.NewJob {
	jobs := make([]fencepost.NewJob, 100)
	for i := range jobs {
		jobs[i].Kind = kind
	}
	return jobs
}

// A handler that obeys is handed back when the time is over, one that does not
// is named, and both jobs are claimable at once: their attempt counts, their
// fence has moved (B137, B140, B141).
func TestStopHandsBackWhatIsNotFinished(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	client := newClient(t, pool, fencepost.Config{SoftStop: 100 * time.Millisecond, HardStop: 300 * time.Millisecond, Lease: 10 * time.Minute})
	began, release, left := make(chan error, 10), make(chan struct{}), make(chan struct{})
	fencepost.HandleKind(client, "obeys", func(ctx context.Context, _ *fencepost.Job[json.RawMessage]) error {
		began <- nil
		<-ctx.Done()
		began <- context.Cause(ctx)
		return ctx.Err()
	})
	fencepost.HandleKind(client, "ignores", func(context.Context, *fencepost.Job[json.RawMessage]) error {
		defer close(left)
		began <- nil
		<-release
		return nil
	})
	ids := enqueue(t, client, fencepost.NewJob{Kind: "obeys"}, fencepost.NewJob{Kind: "ignores"}, fencepost.NewJob{Kind: "ignores", Queue: "elsewhere"})
	last := enqueue(t, client, fencepost.NewJob{Kind: "obeys", MaxAttempts: 1})[0]
	stop := work(t, client)
	for range 3 {
		receive(t, began, "the handlers")
	}
	began1 := time.Now()
	err := stop()
	if took := time.Since(began1); took > 8*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if !errors.Is(err, fencepost.ErrStuck) || !strings.Contains(err.Error(), fmt.Sprint(ids[1])) || strings.Contains(err.Error(), fmt.Sprint(ids[0])) {
		t.Errorf("Run returned %v; want ErrStuck that names job %d alone", err, ids[1])
	}
	for range 2 {
		if cause := receive(t, began, "the end of a context"); !errors.Is(cause, fencepost.ErrStopping) {
			t.Errorf("cause %v, want ErrStopping", cause)
		}
	}
	for _, id := range ids[:2] {
		if info, err := client.Get(t.Context(), id); err != nil || info.Status != fencepost.StatusReady || info.Attempts != 1 {
			t.Errorf("job %d was not handed back: %+v, %v", id, info, err)
		}
	}
	if info, err := client.Get(t.Context(), last); err != nil || info.Status != fencepost.StatusDead {
		t.Errorf("a job on its last attempt must not become claimable again: %+v, %v", info, err)
	}
	if info, _ := client.Get(t.Context(), ids[2]); info.Attempts != 0 {
		t.Errorf("a job of another queue was touched: %+v", info)
	}
	// The next process gets both at once, although the lease was ten minutes.
	next := newClient(t, pgtest.Pool(t, dsn), fencepost.Config{})
	got := make(chan int64, 10)
	for _, kind := range []string{"obeys", "ignores"} {
		fencepost.HandleKind(next, kind, func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
			got <- job.ID
			return nil
		})
	}
	work(t, next)
	receive(t, got, "the first job")
	receive(t, got, "the second job")
	close(release)
	receive(t, left, "the handler that ignored its context")
}

// The second word cuts the draining short, whenever it is said.
func TestStopNow(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	for _, when := range []string{"before Run", "while it works", "during the stop"} {
		t.Run(when, func(t *testing.T) {
			client := newClient(t, pool, fencepost.Config{SoftStop: never})
			began := make(chan struct{})
			fencepost.HandleKind(client, "k", func(ctx context.Context, _ *fencepost.Job[json.RawMessage]) error {
				close(began)
				<-ctx.Done()
				return fencepost.Cancel(context.Cause(ctx))
			})
			say := func(now string) {
				if now == when {
					client.StopNow()
				}
			}
			say("before Run")
			id := enqueue(t, client, fencepost.NewJob{Kind: "k"})[0]
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- client.Run(ctx) }()
			receive(t, began, "the handler")
			say("while it works")
			cancel()
			say("during the stop")
			if err := receive(t, ended, "Run"); err != nil {
				t.Error(err)
			}
			info, err := client.Get(t.Context(), id)
			if err != nil || info.Status != fencepost.StatusCancelled || info.LastError != fencepost.ErrStopping.Error() {
				t.Errorf("job %+v, %v", info, err)
			}
		})
	}
}
