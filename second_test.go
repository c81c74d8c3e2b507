package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
)

const secondName = "fencepost exchange 2"

// backlogged is a worker of many slots, with as many jobs that take no time.
// Their second connection is prepared by second before it is used.
type backlogged struct {
	client *fencepost.Client
	pool   *pgxpool.Pool
	jobs   int
	ran    atomic.Int64
	log    logged
}

func newBacklogged(t *testing.T, jobs int, second func(context.Context, *pgx.Conn) error) *backlogged {
	dsn, watcher := database(t)
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if conn.Config().RuntimeParams["application_name"] == secondName {
			return second(ctx, conn)
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := &backlogged{pool: watcher, jobs: jobs}
	b.client = newClient(t, pool, fencepost.Config{
		Queues: map[string]fencepost.Queue{fencepost.DefaultQueue: {Slots: 100}},
		Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
		Lease:  2 * time.Second, PollInterval: time.Second, // what is lost comes back soon
	})
	fencepost.HandleKind(b.client, "quick", func(context.Context, *fencepost.Job[json.RawMessage]) error {
		b.ran.Add(1)
		return nil
	})
	b.insert(t)
	return b
}

func (b *backlogged) insert(t *testing.T) {
	t.Helper()
	if _, err := b.pool.Exec(t.Context(), `INSERT INTO fencepost.jobs (kind) SELECT 'quick' FROM generate_series(1, $1::int)`, b.jobs); err != nil {
		t.Fatal(err)
	}
}

// done is how many jobs are done, each once.
func (b *backlogged) done(t *testing.T) int {
	t.Helper()
	return count(t, b.pool, "SELECT count(*) FROM fencepost.finished WHERE status = 'done'")
}

// Out of a backlog a worker drains over a second connection, which it closes
// when it has had no use for it for a while, and opens again for the next one.
func TestASecondConnectionDrainsABacklog(t *testing.T) {
	t.Parallel()
	opened := make(chan struct{}, 100)
	b := newBacklogged(t, 10_000, func(context.Context, *pgx.Conn) error { opened <- struct{}{}; return nil })
	work(t, b.client)
	for round := range 2 {
		receive(t, opened, "a second connection")
		eventually(t, "all jobs are done", func() bool { return b.done(t) == b.jobs*(round+1) })
		eventually(t, "two connections are left", func() bool { return sessions(t, b.pool) == 2 })
		if n := len(opened); n > 0 {
			t.Errorf("it was opened %d times more", n)
		}
		if round == 0 {
			b.insert(t)
		}
	}
	if n := b.ran.Load(); n != int64(2*b.jobs) {
		t.Errorf("%d handlers have run for %d jobs", n, 2*b.jobs)
	}
}

// Who gets no second connection drains over the first, and says so once.
func TestASecondConnectionThatIsRefused(t *testing.T) {
	t.Parallel()
	refused := make(chan struct{}, 100)
	b := newBacklogged(t, 5_000, func(context.Context, *pgx.Conn) error {
		refused <- struct{}{}
		return errors.New("you have enough")
	})
	stop := work(t, b.client)
	receive(t, refused, "an attempt to open a second connection")
	eventually(t, "all jobs are done", func() bool { return b.done(t) == b.jobs })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := b.ran.Load(); n != int64(b.jobs) {
		t.Errorf("%d handlers have run for %d jobs", n, b.jobs)
	}
	if n := b.log.count("no second connection"); n != 1 {
		t.Errorf("said so %d times:\n%s", n, b.log.text.String())
	}
	if n := b.log.count("level=ERROR"); n > 0 {
		t.Errorf("%d errors:\n%s", n, b.log.text.String())
	}
}

// Who loses it, again and again, with what is under way on it, loses no job: each
// is done, under one outcome.
func TestASecondConnectionThatIsLost(t *testing.T) {
	t.Parallel()
	opened := make(chan struct{}, 1000)
	b := newBacklogged(t, 20_000, func(context.Context, *pgx.Conn) error { opened <- struct{}{}; return nil })
	super := admin(t, b.pool)
	work(t, b.client)
	lost := 0
	for b.done(t) < b.jobs && lost < 3 {
		select {
		case <-opened:
			// Somewhere in its work.
			before := b.ran.Load()
			eventually(t, "handlers go on", func() bool { return b.ran.Load() > before+200 || b.done(t) == b.jobs })
			lost += terminate(t, super, "exchange 2")
		default:
			time.Sleep(time.Millisecond)
		}
	}
	eventually(t, "all jobs are done", func() bool { return b.done(t) == b.jobs })
	if n := count(t, b.pool, "SELECT count(*) FROM fencepost.jobs"); n > 0 {
		t.Errorf("%d jobs are left", n)
	}
	if lost == 0 {
		t.Error("it was never lost")
	}
	t.Logf("lost %d times; %d handlers have run for %d jobs", lost, b.ran.Load(), b.jobs)
}
