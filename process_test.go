package fencepost_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
)

const (
	// workerDSN makes the test binary a worker process instead; see TestMain.
	workerDSN = "FENCEPOST_TEST_WORKER_DSN"
	// workerHolds makes it one that holds its jobs, with that lease; see
	// holderMain.
	workerHolds = "FENCEPOST_TEST_WORKER_HOLDS"
)

func workerMain(dsn string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if lease := os.Getenv(workerHolds); lease != "" {
		return holderMain(ctx, dsn, lease)
	}
	return killerMain(ctx, dsn)
}

// killerMain is a worker whose handlers take their process down.
func killerMain(ctx context.Context, dsn string) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := fencepost.New(pool, fencepost.Config{Lease: 2 * time.Second, PollInterval: time.Second})
	if err != nil {
		return err
	}
	fencepost.HandleKind(client, "exits", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		if _, err := pool.Exec(ctx, "INSERT INTO runs (job, attempt) VALUES ($1, $2)", job.ID, job.Attempt); err != nil {
			return err
		}
		os.Exit(3)
		return nil
	})
	fencepost.HandleKind(client, "panics elsewhere", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		if _, err := pool.Exec(ctx, "INSERT INTO runs (job, attempt) VALUES ($1, $2)", job.ID, job.Attempt); err != nil {
			return err
		}
		go panic("in a goroutine of the handler's own")
		select {}
	})
	return client.Run(ctx)
}

// A job that kills its process runs out of attempts and ends dead; one that
// may run once never runs twice (B57, B58, B144). Processes are real.
func TestJobsThatKillTheirProcess(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE runs (job bigint, attempt int)"); err != nil {
		t.Fatal(err)
	}
	client := newClient(t, pool, fencepost.Config{})
	ids := enqueue(t, client,
		fencepost.NewJob{Kind: "exits", MaxAttempts: 3},
		fencepost.NewJob{Kind: "exits", MaxAttempts: 1},
		fencepost.NewJob{Kind: "panics elsewhere", MaxAttempts: 2})

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	left := func() int { return count(t, pool, "SELECT count(*) FROM fencepost.jobs") }
	lives := 0
	for left() > 0 {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), workerDSN+"="+dsn)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		died := make(chan struct{})
		go func() {
			defer close(died)
			_ = cmd.Wait() // it dies of its job, or of our SIGTERM
		}()
		for alive := true; alive; {
			select {
			case <-died:
				alive = false
			case <-time.After(50 * time.Millisecond):
				if left() == 0 {
					_ = cmd.Process.Signal(syscall.SIGTERM)
				}
			}
		}
		if lives++; lives > 20 || ctx.Err() != nil {
			t.Fatalf("%d jobs are left after %d processes", left(), lives)
		}
	}
	for i, want := range []int{3, 1, 2} {
		info, err := client.Get(t.Context(), ids[i])
		if err != nil || info.Status != fencepost.StatusDead || info.Attempts != want {
			t.Errorf("job %d: %+v, %v; want dead after %d attempts", i, info, err, want)
		}
		if n := count(t, pool, "SELECT count(*) FROM runs WHERE job = $1", ids[i]); n > want {
			t.Errorf("job %d ran %d times, may run %d", i, n, want)
		}
		if reason := fmt.Sprintf("attempt %d of %d", want, want); !strings.Contains(info.LastError, reason) {
			t.Errorf("job %d: error %q does not say %q", i, info.LastError, reason)
		}
	}
}
