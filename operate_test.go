package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/faultproxy"
)

// ending is how the context of a handler has ended.
type ending struct {
	id, fence int64
	at        time.Time
	cause     error
}

// holders registers a handler of kind "k" that runs until its context ends, and
// then returns err.
func holders(client *fencepost.Client, err error) (began <-chan int64, endings <-chan ending) {
	b, e := make(chan int64, 100), make(chan ending, 100)
	fencepost.HandleKind(client, "k", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		b <- job.ID
		<-ctx.Done()
		e <- ending{job.ID, job.Fence, time.Now(), context.Cause(ctx)}
		return err
	})
	return b, e
}

// told collects what the observer says of outcomes.
func told(config fencepost.Config) (_ fencepost.Config, refused, cancelled chan int64) {
	refused, cancelled = make(chan int64, 100), make(chan int64, 100)
	config.Observer.Refused = func(id, _ int64) { refused <- id }
	config.Observer.Cancelled = func(id, _ int64) { cancelled <- id }
	return config, refused, cancelled
}

// verb is one of the client's verbs for operators.
type verb func(context.Context, ...int64) ([]fencepost.Did, error)

// wantDid calls a verb for one job and compares its answer.
func wantDid(t *testing.T, do verb, id int64, want fencepost.Did) {
	t.Helper()
	did, err := do(t.Context(), id)
	want.ID = id
	if err != nil || len(did) != 1 || did[0] != want {
		t.Errorf("job %d: %+v, %v; want %+v", id, did, err, want)
	}
}

var done = func(status string) fencepost.Did { return fencepost.Did{Done: true, Status: status} }

// A cancelled running job's context ends with ErrCancelled, whatever its
// handler makes of it, and everybody is told once. The process goes on.
func TestCancelEndsARunningJob(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never})
	config, refused, cancelled := told(config)
	client := newClient(t, pool, config)
	began, endings := holders(client, fencepost.Snooze(0))
	ran := echo(client)
	stop := work(t, client)
	await(t, states, true)
	operator := newClient(t, pool, fencepost.Config{})
	ids := enqueue(t, operator, fencepost.NewJob{Kind: "k"}, fencepost.NewJob{Kind: "k"})
	receive(t, began, "the first handler")
	receive(t, began, "the second handler")

	wantDid(t, operator.Cancel, ids[0], done("running"))
	if e := receive(t, endings, "the end of its context"); e.id != ids[0] || !errors.Is(e.cause, fencepost.ErrCancelled) {
		t.Errorf("the context of job %d ended with %v", e.id, e.cause)
	}
	if id := receive(t, cancelled, "the observer to be told"); id != ids[0] {
		t.Errorf("job %d was cancelled, says the observer", id)
	}
	wantDid(t, operator.Cancel, ids[0], fencepost.Did{Status: "cancelled"})
	if info := ended(t, operator, ids[0]); info.Status != fencepost.StatusCancelled || info.LastError != "cancelled by an operator" {
		t.Errorf("the job is %s: %s", info.Status, info.LastError)
	}
	enqueue(t, operator, fencepost.NewJob{Kind: "echo"})
	receive(t, ran, "the next job")
	wantDid(t, operator.Cancel, ids[1], done("running"))
	receive(t, endings, "the end of the other context")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if len(refused) > 0 || len(endings) > 0 {
		t.Errorf("%d outcomes were called refused, %d contexts ended besides", len(refused), len(endings))
	}
}

// How soon: 20 times, on a process that hears. What is asserted is generous;
// the median is logged.
func TestCancelIsHeardAtOnce(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never})
	client := newClient(t, pool, config)
	began, endings := holders(client, nil)
	work(t, client)
	await(t, states, true)
	var took []time.Duration
	for range 20 {
		id := enqueue(t, client, fencepost.NewJob{Kind: "k"})[0]
		receive(t, began, "the handler")
		begin := time.Now()
		wantDid(t, client.Cancel, id, done("running"))
		took = append(took, receive(t, endings, "the end of its context").at.Sub(begin))
	}
	slices.Sort(took)
	t.Logf("from the call of Cancel to the end of the context: median %v, slowest %v", took[10], took[19])
	if took[10] > 250*time.Millisecond { // by a lost recall it would be a third of a lease, 10 s
		t.Errorf("median %v", took[10])
	}
}

// Without notifications the next look finds it, which is a second away at most.
func TestCancelReachesADeafProcess(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	proxy := faultproxy.New(t, dsn)
	listen := pool.Config().ConnConfig
	proxy.Through(listen)
	proxy.Refuse()                                                                      // no new connection comes to help with a look of its own
	config, states := hearing(fencepost.Config{ListenConfig: listen, Lease: time.Hour}) // no extension comes to help
	client := newClient(t, pool, config)
	began, endings := holders(client, nil)
	work(t, client)
	await(t, states, false)
	id := enqueue(t, client, fencepost.NewJob{Kind: "k"})[0]
	receive(t, began, "the handler")
	begin := time.Now()
	wantDid(t, client.Cancel, id, done("running"))
	e := receive(t, endings, "the end of its context")
	if !errors.Is(e.cause, fencepost.ErrCancelled) {
		t.Errorf("cause %v", e.cause)
	}
	took := e.at.Sub(begin)
	t.Logf("after %v", took)
	if took > 3*time.Second { // a look is every second ± 10 %; the rest is for a busy machine
		t.Errorf("after %v", took)
	}
}

// A recall that was missed while nobody listened is made up for as soon as
// somebody does.
func TestCancelWhileTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	proxy := faultproxy.New(t, dsn)
	listen := pool.Config().ConnConfig
	proxy.Through(listen)
	config, states := hearing(fencepost.Config{ListenConfig: listen, Lease: time.Hour, PollInterval: never})
	client := newClient(t, pool, config)
	began, endings := holders(client, nil)
	work(t, client)
	await(t, states, true)
	id := enqueue(t, client, fencepost.NewJob{Kind: "k"})[0]
	receive(t, began, "the handler")
	proxy.DropNotifications(1)
	wantDid(t, client.Cancel, id, done("running"))
	proxy.Cut()
	if e := receive(t, endings, "the end of its context"); !errors.Is(e.cause, fencepost.ErrCancelled) {
		t.Errorf("cause %v", e.cause)
	}
}

// A running job whose row is deleted, by a verb, by plain SQL or with the whole
// table, costs its worker that job and nothing else.
func TestDeletingARunningJobIsSurvived(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, refused, cancelled := told(fencepost.Config{Lease: 2 * time.Second})
	client := newClient(t, pool, config)
	began, endings := holders(client, nil)
	ran := echo(client)
	stop := work(t, client)
	for what, remove := range map[string]func(id int64) error{
		"Delete": func(id int64) error {
			wantDid(t, client.Delete, id, done("running"))
			return nil
		},
		"plain SQL": func(id int64) error {
			_, err := pool.Exec(t.Context(), "DELETE FROM fencepost.jobs WHERE id = $1", id)
			return err
		},
		"TRUNCATE": func(int64) error {
			_, err := admin(t, pool).Exec(t.Context(), "TRUNCATE fencepost.jobs")
			return err
		},
	} {
		id := enqueue(t, client, fencepost.NewJob{Kind: "k"})[0]
		receive(t, began, "the handler")
		if err := remove(id); err != nil {
			t.Fatal(what, err)
		}
		if e := receive(t, endings, what+": the end of its context"); !errors.Is(e.cause, fencepost.ErrLeaseLost) {
			t.Errorf("%s: cause %v", what, e.cause)
		}
		if got := receive(t, refused, what+": the refusal of its outcome"); got != id {
			t.Errorf("%s: job %d was refused, want %d", what, got, id)
		}
		if _, err := client.Get(t.Context(), id); !errors.Is(err, fencepost.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
		enqueue(t, client, fencepost.NewJob{Kind: "echo"})
		receive(t, ran, "the next job")
	}
	if err := stop(); err != nil || len(cancelled) > 0 {
		t.Errorf("Run: %v; %d called cancelled", err, len(cancelled))
	}
}

// A forced release takes a job from its worker at once: it runs again, with one
// attempt more if that was its last, and the late result is rejected (B150).
func TestReleaseFreesARunningJob(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never, Lease: time.Hour, Queues: map[string]fencepost.Queue{"default": {Slots: 1}}})
	config, refused, _ := told(config)
	client := newClient(t, pool, config)
	began, endings, let := make(chan int64, 1), make(chan ending, 1), make(chan struct{})
	fencepost.HandleKind(client, "k", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		began <- job.ID
		<-ctx.Done()
		endings <- ending{job.ID, job.Fence, time.Now(), context.Cause(ctx)}
		<-let // or this process, with a free slot, might be the one that runs it again
		return nil
	})
	work(t, client)
	await(t, states, true)
	id := enqueue(t, client, fencepost.NewJob{Kind: "k", MaxAttempts: 1})[0]
	receive(t, began, "the handler")
	other, states := hearing(fencepost.Config{PollInterval: never})
	successor := newClient(t, pool, other)
	runs := make(chan *fencepost.Job[json.RawMessage], 1)
	fencepost.HandleKind(successor, "k", func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
		runs <- job
		return nil
	})
	work(t, successor)
	await(t, states, true)

	wantDid(t, client.Release, id, done("running"))
	job := receive(t, runs, "the job to run again")
	e := receive(t, endings, "the end of the old context")
	close(let)
	if !errors.Is(e.cause, fencepost.ErrLeaseLost) || job.Fence <= e.fence+1 || job.Attempt != 2 || job.MaxAttempts != 2 {
		t.Errorf("cause %v; attempt %d of %d under fence %d, after fence %d", e.cause, job.Attempt, job.MaxAttempts, job.Fence, e.fence)
	}
	if got := receive(t, refused, "the late outcome to be refused"); got != id {
		t.Errorf("job %d was refused", got)
	}
	if info := ended(t, client, id); info.Status != fencepost.StatusDone || info.Attempts != 2 {
		t.Errorf("the job is %s after %d attempts", info.Status, info.Attempts)
	}
}

// The worker is gone, its lease is not: cancel and release work at once (B150).
func TestOperatorsNeedNoWorker(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	ids := enqueue(t, client, fencepost.NewJob{Kind: "k"}, fencepost.NewJob{Kind: "k"})
	if _, err := pool.Exec(t.Context(), `UPDATE fencepost.jobs SET status = 'running', attempts = 1, worker_id = 'dead',
		lease_until = clock_timestamp() + interval '1 day'`); err != nil {
		t.Fatal(err)
	}
	wantDid(t, client.Retry, ids[0], fencepost.Did{Status: "running"}) // left alone
	wantDid(t, client.Cancel, ids[0], done("running"))
	wantDid(t, client.Release, ids[1], done("running"))
	wantDid(t, client.Release, ids[1], fencepost.Did{Status: "ready"})
	wantDid(t, client.Retry, ids[1], fencepost.Did{Status: "ready"}) // it waits already
	if n := count(t, pool, "SELECT max_attempts FROM fencepost.jobs WHERE id = $1", ids[1]); n != 20 {
		t.Errorf("%d attempts at most, want the 20 of before", n)
	}
}

// A job that has ended comes back under its id and key, with an attempt, and
// at once.
func TestRetryBringsAJobBack(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, states := hearing(fencepost.Config{PollInterval: never})
	client := newClient(t, pool, config)
	runs := make(chan *fencepost.Job[json.RawMessage], 10)
	fencepost.HandleKind(client, "k", func(_ context.Context, job *fencepost.Job[json.RawMessage]) error {
		runs <- job
		switch job.Attempt {
		case 1:
			return errors.New("it broke")
		case 2:
			return fencepost.Cancel(nil)
		}
		return nil
	})
	work(t, client)
	await(t, states, true)
	id := enqueue(t, client, fencepost.NewJob{Kind: "k", MaxAttempts: 1, Payload: 7})[0]
	first := receive(t, runs, "the job")
	fence := first.Fence
	for i, status := range []string{fencepost.StatusDead, fencepost.StatusCancelled, fencepost.StatusDone} {
		info := ended(t, client, id)
		if info.Status != status {
			t.Fatalf("the job is %s, want %s", info.Status, status)
		}
		wantDid(t, client.Retry, id, done(status))
		job := receive(t, runs, "the job to run again")
		if job.Key() != first.Key() || job.Attempt != i+2 || job.Fence <= fence || string(job.Payload) != "7" {
			t.Errorf("key %s, attempt %d, fence %d after %d", job.Key(), job.Attempt, job.Fence, fence)
		}
		fence = job.Fence
	}
	wantDid(t, client.Retry, 42, fencepost.Did{})
}

// A job that its handler is completing in an open transaction is busy for as
// long as that is open, and then done.
func TestCancelOfAJobThatCompletes(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	config, refused, cancelled := told(fencepost.Config{})
	client := newClient(t, pool, config)
	locked, release := make(chan struct{}), make(chan struct{})
	fencepost.HandleKind(client, "k", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := job.CompleteTx(ctx, tx); err != nil {
				return err
			}
			close(locked)
			<-release
			return nil
		})
	})
	stop := work(t, client)
	id := enqueue(t, client, fencepost.NewJob{Kind: "k"})[0]
	receive(t, locked, "the handler")
	begin := time.Now()
	wantDid(t, client.Cancel, id, fencepost.Did{Busy: true, Status: "running"})
	if took := time.Since(begin); took < 4*time.Second {
		t.Errorf("given up after %v", took)
	}
	answer := make(chan fencepost.Did, 1)
	go func() {
		did, err := client.Cancel(t.Context(), id)
		if err != nil || len(did) != 1 {
			t.Errorf("%v, %v", did, err)
			did = make([]fencepost.Did, 1)
		}
		answer <- did[0]
	}()
	close(release)
	if d := receive(t, answer, "the answer"); d.Done || d.Busy || d.Status != fencepost.StatusDone {
		t.Errorf("got %+v", d)
	}
	if err := stop(); err != nil || len(refused)+len(cancelled) > 0 {
		t.Errorf("Run: %v; %d refused, %d cancelled", err, len(refused), len(cancelled))
	}
}

// Too many ids are refused before any SQL; ids that are named twice are
// answered once; an ended context ends the waiting.
func TestOperatorsArguments(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	ids := enqueue(t, client, slices.Repeat([]fencepost.NewJob{{Kind: "k"}}, 1000)...)
	for name, do := range map[string]verb{"cancel": client.Cancel, "retry": client.Retry, "release": client.Release, "delete": client.Delete} {
		if did, err := do(t.Context(), append(ids, 1)...); !errors.Is(err, fencepost.ErrInvalid) || did != nil {
			t.Errorf("%s of 1001: %d answers, %v", name, len(did), err)
		}
		if did, err := do(t.Context()); err != nil || did != nil {
			t.Errorf("%s of nothing: %v, %v", name, did, err)
		}
		did, err := do(t.Context(), ids[2], 5, ids[1], ids[2], 5)
		if err != nil || len(did) != 3 || did[0].ID != ids[2] || did[1].ID != 5 || did[2].ID != ids[1] {
			t.Errorf("%s: %+v, %v", name, did, err)
		}
	}
	if did, err := client.Cancel(t.Context(), ids...); err != nil || len(did) != 1000 || !did[999].Done {
		t.Errorf("%d answers, %v", len(did), err)
	}
	holder, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(context.WithoutCancel(t.Context()))
	if _, err := holder.Exec(t.Context(), "SELECT FROM fencepost.finished WHERE id = $1 FOR UPDATE", ids[5]); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	did, err := client.Retry(ctx, ids[4], ids[5])
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", did, err)
	}
}

// All jobs that match can be gone through, in pages.
func TestIDsInPages(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	enqueue(t, client, fencepost.NewJob{Kind: "other"})
	want := enqueue(t, client, slices.Repeat([]fencepost.NewJob{{Kind: "k"}}, 25)...)
	var got []int64
	filter := fencepost.Filter{Kind: "k", Limit: 10}
	for after := int64(0); ; after = got[len(got)-1] {
		ids, err := client.IDs(t.Context(), filter, after)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) == 0 {
			break
		}
		got = append(got, ids...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n, err := client.Count(t.Context(), filter); err != nil || n != 25 {
		t.Errorf("counted %d, %v", n, err)
	}
}
