package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/faultproxy"
)

// B157: a pause holds in every process, whatever each has heard, and after a
// restart. Its end brings everything in.
func TestPauseHoldsEverywhere(t *testing.T) {
	t.Parallel()
	dsn, direct := database(t)
	operator := newClient(t, direct, fencepost.Config{})
	proxy := faultproxy.New(t, dsn)
	proxy.DropNotifications(-1)
	started := make(chan string, 100)
	// process starts one; ticks tells of its statements.
	process := func(name string) (stop func() error, ticks statements) {
		ticks = make(statements, 10_000)
		pool := traced(t, dsn, ticks)
		listen := direct.Config().ConnConfig
		proxy.Through(listen)
		config, states := hearing(fencepost.Config{ListenConfig: listen, Queues: map[string]fencepost.Queue{"default": {}, "other": {}}})
		client := newClient(t, pool, config)
		fencepost.HandleKind(client, "k", func(_ context.Context, job *fencepost.Job[string]) error {
			started <- job.Payload
			return nil
		})
		stop = work(t, client)
		await(t, states, false)
		return stop, ticks
	}
	var all []statements
	var stop func() error
	for i := range 3 {
		s, ticks := process(fmt.Sprint("process ", i))
		stop, all = s, append(all, ticks)
	}
	if err := operator.Pause(t.Context(), fencepost.DefaultQueue); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	_, all[2] = process("process 2 again")
	enqueue(t, operator, fencepost.NewJob{Kind: "k", Payload: "paused"}, fencepost.NewJob{Kind: "k", Payload: "paused", Delay: time.Second})
	if _, err := direct.Exec(t.Context(), "INSERT INTO fencepost.jobs (kind, payload) VALUES ('k', '\"paused\"')"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, operator, fencepost.NewJob{Kind: "k", Payload: "other", Queue: "other"})
	if got := receive(t, started, "a job of another queue"); got != "other" {
		t.Errorf("a %s job has started", got)
	}
	for i, ticks := range all { // each has looked, several times
		for range len(ticks) {
			<-ticks
		}
		for looks := 0; looks < 3; {
			if strings.Contains(receive(t, ticks, fmt.Sprint("a look of process ", i)).sql, "pg_notify") {
				looks++
			}
		}
	}
	if len(started) > 0 {
		t.Errorf("a %s job has started", <-started)
	}
	queues, err := operator.Queues(t.Context())
	if err != nil || len(queues) != 2 || queues[0].PausedAt.IsZero() || queues[0].Ready != 3 || queues[0].Running != 0 || !queues[1].PausedAt.IsZero() {
		t.Errorf("queues %+v, %v", queues, err)
	}
	if err := operator.Resume(t.Context(), fencepost.DefaultQueue); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := receive(t, started, "a job after the pause"); got != "paused" {
			t.Errorf("a %s job has started", got)
		}
	}
}

// What runs when a pause begins goes on, and its retry waits; the bell of the
// end brings it in, also from the future.
func TestPauseLetsRunningJobsGoOn(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never})
	client := newClient(t, pool, config)
	attempts, gate := make(chan int, 10), make(chan struct{})
	fencepost.HandleKind(client, "k", func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
		attempts <- job.Attempt
		<-gate
		if job.Attempt == 1 {
			return fencepost.RetryAfter(time.Millisecond, errors.New("again"))
		}
		return nil
	})
	work(t, client)
	await(t, states, true)
	id := enqueue(t, client, fencepost.NewJob{Kind: "k"})[0]
	receive(t, attempts, "the job")
	if err := client.Pause(t.Context(), fencepost.DefaultQueue); err != nil {
		t.Fatal(err)
	}
	gate <- struct{}{}
	eventually(t, "its outcome is stored", func() bool {
		return count(t, pool, "SELECT count(*) FROM fencepost.jobs WHERE status = 'ready' AND run_at < clock_timestamp()") == 1
	})
	later := enqueue(t, client, fencepost.NewJob{Kind: "k", Delay: 500 * time.Millisecond})[0]
	if len(attempts) > 0 {
		t.Error("something has started")
	}
	if err := client.Resume(t.Context(), fencepost.DefaultQueue); err != nil {
		t.Fatal(err)
	}
	close(gate)
	if attempt := receive(t, attempts, "the second attempt"); attempt != 2 {
		t.Errorf("attempt %d", attempt)
	}
	for _, id := range []int64{id, later} {
		if info := ended(t, client, id); info.Status != fencepost.StatusDone {
			t.Errorf("job %d is %s", id, info.Status)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 129), "\x00"} {
		if err := client.Pause(t.Context(), name); !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("Pause(%q): %v", name, err)
		}
		if err := client.Resume(t.Context(), name); !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("Resume(%q): %v", name, err)
		}
	}
}
