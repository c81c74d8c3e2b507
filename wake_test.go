package fencepost_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/faultproxy"
)

// never is a poll interval that no test lives to see.
const never = time.Hour

// hearing makes a client that reports what it hears.
func hearing(config fencepost.Config) (fencepost.Config, <-chan bool) {
	states := make(chan bool, 100)
	config.Observer.Hearing = func(h bool) { states <- h }
	return config, states
}

func await(t *testing.T, states <-chan bool, want bool) {
	t.Helper()
	for receive(t, states, "a change of hearing") != want {
	}
}

// start is when a handler began, and which attempt, by the database's clock.
type start struct {
	id      int64
	attempt int
	late    time.Duration // after run_at
}

// recordStarts registers a handler of kind "k" that tells when it started. It
// fails until its payload, a number, is reached.
func recordStarts(client *fencepost.Client, query func(ctx context.Context, sql string, args ...any) pgx.Row) <-chan start {
	starts := make(chan start, 1000)
	fencepost.HandleKind(client, "k", func(ctx context.Context, job *fencepost.Job[int]) error {
		var now time.Time
		if err := query(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
			return err
		}
		starts <- start{job.ID, job.Attempt, now.Sub(job.RunAt)}
		if job.Attempt < job.Payload {
			return fencepost.RetryAfter(300*time.Millisecond, context.Canceled)
		}
		return nil
	})
	return starts
}

// With polling as good as off, bells alone bring jobs in: from the Go API, from
// plain SQL, from a transaction, and for jobs that are due only later, without
// a tick in between.
func TestBellsBringJobsWithoutPolling(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never, Queues: map[string]fencepost.Queue{"default": {}, "a:b": {}}})
	client := newClient(t, pool, config)
	starts := recordStarts(client, pool.QueryRow)
	work(t, client)
	await(t, states, true)

	arrives := func(what string, limit time.Duration) {
		t.Helper()
		if s := receive(t, starts, what); s.late < 0 || s.late > limit {
			t.Errorf("%s started %v after it was due", what, s.late)
		}
	}
	enqueue(t, client, fencepost.NewJob{Kind: "k", Payload: 1})
	arrives("a job from the Go API", time.Second)
	if _, err := pool.Exec(t.Context(), "INSERT INTO fencepost.jobs (kind, payload, queue) VALUES ('k', '1', 'a:b')"); err != nil {
		t.Fatal(err)
	}
	arrives("a job from plain SQL", time.Second)
	enqueue(t, client, fencepost.NewJob{Kind: "k", Payload: 1, Delay: 700 * time.Millisecond})
	arrives("a scheduled job", time.Second)
	enqueue(t, client, fencepost.NewJob{Kind: "k", Payload: 3})
	arrives("the first attempt", time.Second)
	arrives("the second attempt", time.Second)
	arrives("the third attempt", time.Second)

	// An UPDATE rings nobody; ring() does.
	ids := enqueue(t, client, fencepost.NewJob{Kind: "k", Payload: 1, Delay: never})
	if _, err := pool.Exec(t.Context(), "UPDATE fencepost.jobs SET run_at = clock_timestamp() WHERE id = $1", ids[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "SELECT fencepost.ring('default')"); err != nil {
		t.Fatal(err)
	}
	arrives("a job made due by hand", time.Second)
}

// A scheduled job that was there before the process started is found by the
// look at the start, and the alarm is set for it.
func TestScheduledJobsStartOnTimeAfterARestart(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{PollInterval: never})
	starts := recordStarts(client, pool.QueryRow)
	enqueue(t, client, fencepost.NewJob{Kind: "k", Payload: 1, Delay: time.Second}, fencepost.NewJob{Kind: "k", Payload: 1, Delay: 1500 * time.Millisecond})
	work(t, client)
	for range 2 {
		if s := receive(t, starts, "a scheduled job"); s.late < 0 || s.late > time.Second {
			t.Errorf("started %v after it was due", s.late)
		}
	}
}

// More jobs than slots, one bell: each starts as soon as a slot is free (B48).
func TestAWakeUpIsStickyWhenSlotsAreFull(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never, Queues: map[string]fencepost.Queue{"default": {Slots: 1}}})
	client := newClient(t, pool, config)
	started, gate := make(chan int64, 10), make(chan struct{})
	fencepost.HandleKind(client, "k", func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
		started <- job.ID
		<-gate
		return nil
	})
	work(t, client)
	await(t, states, true)
	enqueue(t, client, fencepost.NewJob{Kind: "k"})
	receive(t, started, "the first job")
	for range 3 {
		enqueue(t, client, fencepost.NewJob{Kind: "k"})
	}
	for i := range 3 {
		gate <- struct{}{}
		receive(t, started, "the next job "+string(rune('1'+i)))
	}
	gate <- struct{}{}
}

// With every notification dropped, each job starts within one poll interval of
// being due, and the process says that it is deaf (B53, B52, B34).
func TestEveryNotificationDropped(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	proxy := faultproxy.New(t, dsn)
	listen := pool.Config().ConnConfig
	proxy.Through(listen)
	proxy.DropNotifications(-1)
	config, states := hearing(fencepost.Config{ListenConfig: listen, Queues: map[string]fencepost.Queue{"default": {Slots: 100}}})
	client := newClient(t, pool, config)
	starts := recordStarts(client, pool.QueryRow)
	work(t, client)
	await(t, states, false)

	jobs := make([]fencepost.NewJob, 100)
	for i := range jobs {
		jobs[i] = fencepost.NewJob{Kind: "k", Payload: 1 + i%2, Delay: time.Duration(i) * 20 * time.Millisecond}
	}
	enqueue(t, client, jobs...)
	// A poll is every second when deaf; one more for a busy machine.
	for range 150 {
		if s := receive(t, starts, "a job without its bell"); s.late < 0 || s.late > 2*time.Second {
			t.Errorf("attempt %d of job %d started %v after it was due", s.attempt, s.id, s.late)
		}
	}
	proxy.DropNotifications(0)
	await(t, states, true)
}

// One bell is lost although the process hears: nothing tells it, and the poll
// finds the job within its interval (B34).
func TestALostBellCostsOnePollInterval(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: 2 * time.Second})
	client := newClient(t, pool, config)
	starts := recordStarts(client, pool.QueryRow)
	work(t, client)
	await(t, states, true)
	// Another job comes by bell, after which no look of the start is pending.
	first := enqueue(t, client, fencepost.NewJob{Kind: "k", Payload: 1})[0]
	receive(t, starts, "the first job")
	ended(t, client, first)
	// As if it had been lost: this job's bell is not rung.
	if _, err := pool.Exec(t.Context(), `WITH silence AS MATERIALIZED (SELECT set_config('fencepost.bell', 'off', true))
		INSERT INTO fencepost.jobs (kind, payload) SELECT 'k', '1' FROM silence`); err != nil {
		t.Fatal(err)
	}
	// The interval is spread by 10 %; a second more for a busy machine.
	if s := receive(t, starts, "the job"); s.late > 3200*time.Millisecond {
		t.Errorf("started %v after it was due", s.late)
	}
	if len(states) > 0 {
		t.Error("the process did not hear for a while, so the test says nothing")
	}
}

// A job that comes while nobody listens, and is the last for long, is found by
// the look that follows LISTEN: at the start and after a loss (B37).
func TestAJobThatComesBeforeListenIsFound(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	proxy := faultproxy.New(t, dsn)
	listen := pool.Config().ConnConfig
	proxy.Through(listen)
	held, release := make(chan struct{}, 100), make(chan struct{})
	proxy.OnQuery(func(sql string) *pgproto3.ErrorResponse {
		if strings.HasPrefix(sql, "listen ") {
			held <- struct{}{}
			<-release
		}
		return nil
	})
	config, states := hearing(fencepost.Config{PollInterval: never, ListenConfig: listen})
	client := newClient(t, pool, config)
	ran := echo(client)
	work(t, client)
	t.Cleanup(func() { close(release) }) // before the stop, which may wait for LISTEN
	for _, when := range []string{"at the start", "after a loss"} {
		receive(t, held, "LISTEN "+when)
		enqueue(t, client, fencepost.NewJob{Kind: "echo"})
		release <- struct{}{}
		receive(t, held, "LISTEN on the second channel "+when)
		enqueue(t, client, fencepost.NewJob{Kind: "echo"})
		release <- struct{}{}
		await(t, states, true)
		for range 2 {
			receive(t, ran, "a job that came before LISTEN "+when)
		}
		proxy.Cut()
		await(t, states, false)
	}
}
