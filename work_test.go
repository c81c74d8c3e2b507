package fencepost_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost"
)

// What a handler returns decides what becomes of its job.
func TestHandlersDecide(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	quick := func(int, error) time.Duration { return time.Millisecond }
	client := newClient(t, pool, fencepost.Config{RetryDelay: quick})

	boom := errors.New("boom")
	handlers := map[string]func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error{
		"done":    func(context.Context, *fencepost.Job[json.RawMessage]) error { return nil },
		"fails":   func(context.Context, *fencepost.Job[json.RawMessage]) error { return boom },
		"cancels": func(context.Context, *fencepost.Job[json.RawMessage]) error { return fencepost.Cancel(boom) },
		"dead": func(context.Context, *fencepost.Job[json.RawMessage]) error {
			return fmt.Errorf("x: %w", fencepost.Dead(boom))
		},
		"panics": func(context.Context, *fencepost.Job[json.RawMessage]) error { panic("at the\x00disco \xff") },
		"nil":    func(context.Context, *fencepost.Job[json.RawMessage]) error { panic(nil) },
		"exits":  func(context.Context, *fencepost.Job[json.RawMessage]) error { runtime.Goexit(); return nil },
		"recovers": func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
			if job.Attempt < 3 {
				return fencepost.RetryAfter(time.Millisecond, boom)
			}
			return nil
		},
		"snoozes": func() func(context.Context, *fencepost.Job[json.RawMessage]) error {
			var runs atomic.Int32
			return func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
				if runs.Add(1) < 5 {
					return fencepost.Snooze(time.Millisecond)
				}
				if job.Attempt != 1 {
					return fencepost.Dead(fmt.Errorf("snoozes were counted: attempt %d", job.Attempt))
				}
				return nil
			}
		}(),
		"times out": func(ctx context.Context, _ *fencepost.Job[json.RawMessage]) error {
			<-ctx.Done()
			return context.Cause(ctx)
		},
	}
	for kind, fn := range handlers {
		var opts []fencepost.HandlerOption
		if kind == "times out" {
			opts = append(opts, fencepost.WithTimeout(50*time.Millisecond))
		}
		fencepost.HandleKind(client, kind, fn, opts...)
	}
	fencepost.HandleKind(client, "wrong type", func(context.Context, *fencepost.Job[[]string]) error { return nil })

	ids := make(map[string]int64)
	enqueueKind := func(kind string) { ids[kind] = enqueue(t, client, fencepost.NewJob{Kind: kind, MaxAttempts: 3})[0] }
	for kind := range handlers {
		enqueueKind(kind)
	}
	enqueueKind("wrong type")
	enqueueKind("nobody's")
	work(t, client)

	for kind, want := range map[string]struct {
		status   string
		attempts int
		says     string
	}{
		"done":       {fencepost.StatusDone, 1, ""},
		"fails":      {fencepost.StatusDead, 3, "boom"},
		"cancels":    {fencepost.StatusCancelled, 1, "boom"},
		"dead":       {fencepost.StatusDead, 1, "boom"},
		"panics":     {fencepost.StatusDead, 3, "work_test.go"}, // the stack
		"nil":        {fencepost.StatusDead, 3, "nil"},
		"exits":      {fencepost.StatusDead, 3, "Goexit"},
		"recovers":   {fencepost.StatusDone, 3, "boom"},
		"snoozes":    {fencepost.StatusDone, 1, ""},
		"times out":  {fencepost.StatusDead, 3, "50ms"},
		"wrong type": {fencepost.StatusDead, 3, "[]string"},
	} {
		info := ended(t, client, ids[kind])
		if info.Status != want.status || info.Attempts != want.attempts || !strings.Contains(info.LastError, want.says) {
			t.Errorf("%s: %s after %d attempts, error %q; want %s after %d, error with %q",
				kind, info.Status, info.Attempts, info.LastError, want.status, want.attempts, want.says)
		}
	}
	if info, _ := client.Get(t.Context(), ids["nobody's"]); info.Status != fencepost.StatusReady || info.Attempts != 0 {
		t.Errorf("a job without a handler here was touched: %+v", info)
	}
}

func TestHandleAnyTakesTheRest(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	got := make(chan string, 2)
	fencepost.Handle(client, func(_ context.Context, job *fencepost.Job[invoice]) error {
		got <- fmt.Sprint("own ", job.Payload.Number)
		return nil
	})
	fencepost.HandleAny(client, func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
		got <- fmt.Sprint("any ", job.Kind, " ", string(job.Payload))
		return nil
	})
	enqueue(t, client, fencepost.NewJob{Payload: invoice{Number: 9007199254740993}}, fencepost.NewJob{Kind: "x", Payload: raw("7"), Priority: 1})
	work(t, client)
	seen := map[string]bool{receive(t, got, "a job"): true, receive(t, got, "a job"): true}
	if !seen["own 9007199254740993"] || !seen["any x 7"] {
		t.Errorf("handlers saw %v", seen)
	}
}

// A job keeps its key over attempts, and its progress.
func TestKeyAndProgress(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	keys := make(chan string, 2)
	fencepost.HandleKind(client, "k", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		keys <- job.Key()
		if job.Attempt == 1 {
			if err := job.SetProgress(ctx, func() {}); !errors.Is(err, fencepost.ErrInvalid) {
				return fencepost.Dead(fmt.Errorf("a func as progress: %w", err))
			}
			if err := job.SetProgress(ctx, strings.Repeat("x", 64<<10)); !errors.Is(err, fencepost.ErrInvalid) {
				return fencepost.Dead(fmt.Errorf("64 KiB and more as progress: %w", err))
			}
			if err := job.SetProgress(ctx, map[string]int{"page": 7}); err != nil {
				return fencepost.Dead(err)
			}
			return fencepost.RetryAfter(0, errors.New("again"))
		}
		if got := string(job.Progress()); got != `{"page": 7}` {
			return fencepost.Dead(fmt.Errorf("progress %q", got))
		}
		return nil
	})
	ids := enqueue(t, client, fencepost.NewJob{Kind: "k"})
	work(t, client)
	first, second := receive(t, keys, "first attempt"), receive(t, keys, "second attempt")
	if first != second || !strings.HasPrefix(first, fmt.Sprintf("fencepost/%d/", ids[0])) {
		t.Errorf("keys %q and %q", first, second)
	}
	if info := ended(t, client, ids[0]); info.Status != fencepost.StatusDone {
		t.Errorf("job is %s: %s", info.Status, info.LastError)
	}
}

// An id may be given a second time, as after a failover that lost commits: the
// new job has a key of its own.
func TestANewJobUnderAnOldIDHasItsOwnKey(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	keys := make(chan string, 2)
	fencepost.HandleKind(client, "k", func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
		keys <- job.Key()
		return nil
	})
	work(t, client)
	seen := make(map[string]bool)
	for range 2 {
		if _, err := pool.Exec(t.Context(), "INSERT INTO fencepost.jobs (id, kind) VALUES (7, 'k')"); err != nil {
			t.Fatal(err)
		}
		seen[receive(t, keys, "the job")] = true
		eventually(t, "the job ends", func() bool { return count(t, pool, "SELECT count(*) FROM fencepost.jobs") == 0 })
	}
	if len(seen) != 2 {
		t.Errorf("two jobs have the keys %v", seen)
	}
}

// A number keeps every digit on its way to a handler, whatever it is decoded
// into.
func TestNumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	got := make(chan string, 3)
	fencepost.HandleKind(client, "any", func(_ context.Context, job *fencepost.Job[any]) error {
		got <- fmt.Sprint(job.Payload)
		return nil
	})
	fencepost.HandleKind(client, "map", func(_ context.Context, job *fencepost.Job[map[string]any]) error {
		got <- fmt.Sprint(job.Payload["n"])
		return nil
	})
	fencepost.HandleKind(client, "uint64", func(_ context.Context, job *fencepost.Job[struct{ N uint64 }]) error {
		got <- fmt.Sprint(job.Payload.N)
		return nil
	})
	work(t, client)
	const number = "18446744073709551615"
	for kind, payload := range map[string]string{"any": number, "map": `{"n": ` + number + `}`, "uint64": `{"N": ` + number + `}`} {
		enqueue(t, client, fencepost.NewJob{Kind: kind, Payload: raw(payload)})
		if n := receive(t, got, "a job of kind "+kind); n != number {
			t.Errorf("%s: %s, want %s", kind, n, number)
		}
	}
}

// 5,000 jobs through three clients: each runs once, none is left.
func TestManyJobsThroughSeveralClients(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	const jobs = 5000
	var runs [jobs]atomic.Int32
	var total atomic.Int32
	all := make(chan struct{})
	var producer *fencepost.Client
	for range 3 {
		client := newClient(t, pool, fencepost.Config{Queues: map[string]fencepost.Queue{"default": {Slots: 50}}})
		fencepost.Handle(client, func(_ context.Context, job *fencepost.Job[invoice]) error {
			runs[job.Payload.Number].Add(1)
			if total.Add(1) == jobs {
				close(all)
			}
			return nil
		})
		work(t, client)
		producer = client
	}
	batch := make([]fencepost.NewJob, jobs)
	for i := range batch {
		batch[i] = fencepost.NewJob{Payload: invoice{Number: int64(i)}}
	}
	enqueue(t, producer, batch...)
	receive(t, all, "all jobs")
	eventually(t, "all jobs are done", func() bool {
		return count(t, pool, "SELECT count(*) FROM fencepost.finished WHERE status = 'done' AND attempts = 1") == jobs
	})
	for i := range runs {
		if n := runs[i].Load(); n != 1 {
			t.Errorf("job %d ran %d times", i, n)
		}
	}
}

// A client refuses to run on a database without the tables, with the command
// to run, and runs once.
func TestRunChecksItsGround(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{Schema: "elsewhere"})
	if err := client.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Handle") {
		t.Errorf("without a handler: %v", err)
	}
	fencepost.Handle(client, func(context.Context, *fencepost.Job[invoice]) error { return nil })
	if err := client.Run(t.Context()); !errors.Is(err, fencepost.ErrSchema) || !strings.Contains(err.Error(), "fencepost migrate up --schema elsewhere") {
		t.Errorf("without the tables: %v", err)
	}
	config, states := hearing(fencepost.Config{})
	client = newClient(t, pool, config)
	fencepost.Handle(client, func(context.Context, *fencepost.Job[invoice]) error { return nil })
	stop := work(t, client)
	await(t, states, true)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := client.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "once") {
		t.Errorf("a second Run: %v", err)
	}
	for name, register := range map[string]func(){
		"after Run": func() {
			fencepost.HandleKind(client, "late", func(context.Context, *fencepost.Job[int]) error { return nil })
		},
		"twice": func() {
			c := newClient(t, pool, fencepost.Config{})
			for range 2 {
				fencepost.Handle(c, func(context.Context, *fencepost.Job[invoice]) error { return nil })
			}
		},
		"empty kind": func() {
			fencepost.HandleKind(newClient(t, pool, fencepost.Config{}), "", func(context.Context, *fencepost.Job[int]) error { return nil })
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a handler registered %s is accepted", name)
				}
			}()
			register()
		}()
	}
}

// Each look finds again a job that the database does not let end. The log is
// told once a minute.
func TestAJobThatCannotEndIsNoFloodOfLogs(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	for _, sql := range []string{
		`INSERT INTO fencepost.jobs (kind, status, lease_until, worker_id, attempts, max_attempts)
			VALUES ('echo', 'running', clock_timestamp() - interval '1 minute', 'gone', 1, 1)`,
		"CREATE TABLE public.child (job bigint REFERENCES fencepost.jobs (id))",
		"INSERT INTO public.child SELECT id FROM fencepost.jobs",
	} {
		if _, err := admin(t, pool).Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	client := newClient(t, pool, fencepost.Config{PollInterval: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	echo(client)
	stop := work(t, client)
	var last time.Time
	for looks := 0; looks < 4; {
		eventually(t, "a look", func() bool { return client.Health().Tick.Last.After(last) })
		last = client.Health().Tick.Last
		looks++
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "does not let every job end"); n != 1 {
		t.Errorf("the log says so %d times in 4 looks, want once", n)
	}
}
