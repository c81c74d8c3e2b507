package rival

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// trial is one scenario with one queue, in a database of its own.
type trial struct {
	queue  queue
	timing timing
	server *pg.Server
	pool   *pgxpool.Pool // of the harness, beside the network
	crew   *crew
	random *rand.Rand
	dir    string
	steady time.Time // since then all work
	faults []fault
	notes  []string
}

// timing is how long things take. Faults come at the given times after all has
// begun, so in all phases of what happens at intervals: River's leader, which
// has begun about then, looks for stuck jobs each 30 s.
type timing struct {
	Kills []time.Duration // of SIGKILL
	Once  time.Duration   // of the other scenarios
	Storm time.Duration   // how long backends are terminated
	Limit time.Duration   // how long a recovery is waited for
	Drain time.Duration   // how long the rest of the jobs is
}

var (
	full = timing{
		Kills: []time.Duration{5 * time.Second, 13 * time.Second, 21 * time.Second},
		Once:  13 * time.Second,
		Storm: 8 * time.Second,
		Limit: 45 * time.Second,
		Drain: 20 * time.Second,
	}
	short = timing{
		Kills: []time.Duration{time.Second},
		Once:  time.Second,
		Storm: time.Second,
		Limit: 3 * time.Second,
		Drain: 2 * time.Second,
	}
)

// setting is what trials of one queue have in common.
type setting struct {
	queue   queue
	server  *pg.Server
	program string
	dir     string
	seed    uint64
	timing  timing
}

// try runs one scenario from an empty database to its row.
func (s setting) try(ctx context.Context, i int, sc scenario) (row Row, err error) {
	info, err := buildinfo.ReadFile(s.program)
	if err != nil {
		return row, err
	}
	row = Row{Queue: s.queue.name(), Version: s.queue.version(info), Settings: s.queue.settings(), Scenario: sc.name}
	database := fmt.Sprintf("rival_%d", i+1)
	dir := filepath.Join(s.dir, strings.ToLower(row.Queue)+"-"+database)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return row, err
	}
	if err := s.prepare(ctx, database); err != nil {
		return row, fmt.Errorf("prepare a database: %w", err)
	}
	t := &trial{
		queue: s.queue, timing: s.timing, server: s.server, dir: dir,
		random: rand.New(rand.NewPCG(s.seed, uint64(i))), // for each queue the same
		crew:   &crew{path: s.program, job: assignment{Queue: row.Queue, Dir: dir, DSN: s.server.TCPURL(database)}},
	}
	defer func() { err = errors.Join(err, s.drop(ctx, database)) }()
	if t.pool, err = pgxpool.New(ctx, s.server.URL(database)); err != nil {
		return row, err
	}
	defer t.pool.Close()
	defer func() { err = errors.Join(err, t.crew.close()) }()
	r, err := t.run(ctx, sc)
	if err != nil {
		return row, err
	}
	r.fill(&row)
	row.Notes = t.notes
	return row, r.write(dir)
}

// prepare makes the database, its tables and its witness.
func (s setting) prepare(ctx context.Context, database string) error {
	exec := func(sql string) func(*pgx.Conn) error {
		return func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, sql)
			return err
		}
	}
	if err := s.on(ctx, "postgres", exec("CREATE DATABASE "+database)); err != nil {
		return err
	}
	if err := s.on(ctx, database, func(conn *pgx.Conn) error { return s.queue.prepare(ctx, conn) }); err != nil {
		return err
	}
	return s.on(ctx, database, exec(script.Business))
}

// drop keeps the server small, as it looks at every file after a crash.
func (s setting) drop(ctx context.Context, database string) error {
	return s.on(ctx, "postgres", func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP DATABASE "+database+" WITH (FORCE)")
		return err
	})
}

func (s setting) on(ctx context.Context, database string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.server.URL(database))
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(ctx))
}

// run does the trial and returns its record.
func (t *trial) run(ctx context.Context, sc scenario) (r record, err error) {
	producer, err := pgxpool.New(ctx, t.crew.job.DSN)
	if err != nil {
		return r, err
	}
	defer producer.Close()
	enqueue, err := t.queue.enqueuer(producer)
	if err != nil {
		return r, err
	}
	for range crewed {
		if err := t.crew.hire(); err != nil {
			return r, err
		}
	}
	load := &load{pool: producer, enqueue: enqueue, random: rand.New(rand.NewPCG(t.random.Uint64(), 0))}
	loading, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { load.run(loading) })

	first, err := t.begin(ctx)
	if err != nil {
		return r, err
	}
	if err := sc.do(ctx, t); err != nil {
		return r, fmt.Errorf("%s: %w", sc.name, err)
	}
	if _, err := t.await(ctx, t.timing.Limit, recovered); err != nil {
		return r, err
	}
	stop()
	group.Wait()
	if err := t.drain(ctx); err != nil {
		return r, err
	}

	if r, err = t.read(ctx); err != nil {
		return r, err
	}
	r.Acked = load.acknowledged()
	if r.Ended, err = t.queue.ended(ctx, t.pool); err != nil {
		return r, err
	}
	return r, t.close(ctx, r, first)
}

// begin waits until all processes work, and returns who leads.
func (t *trial) begin(ctx context.Context) (leader, error) {
	var first leader
	ok, err := t.await(ctx, 30*time.Second, func(r record) bool {
		working := map[string]bool{}
		for _, run := range r.Runs {
			working[run.Worker] = true
		}
		return len(working) == crewed
	})
	if err == nil && !ok {
		err = fmt.Errorf("not all of %v have begun to work", t.crew.names())
	}
	if err == nil {
		first, err = t.queue.leader(ctx, t.pool)
	}
	t.steady = time.Now()
	return first, err
}

// until waits for a time after the beginning, give or take half a second, by
// the seed.
func (t *trial) until(ctx context.Context, after time.Duration) error {
	after += time.Duration(t.random.Int64N(int64(time.Second))) - time.Second/2
	return sleep(ctx, time.Until(t.steady.Add(after)))
}

// read returns the record so far.
func (t *trial) read(ctx context.Context) (record, error) {
	r, err := read(ctx, t.queue, t.pool, t.dir)
	r.Faults = t.faults
	return r, err
}

// await looks at the record again and again, and returns whether it came to be
// as it should within the limit.
func (t *trial) await(ctx context.Context, limit time.Duration, so func(record) bool) (bool, error) {
	for deadline := time.Now().Add(limit); ; {
		r, err := t.read(ctx)
		switch {
		case err != nil:
			return false, err
		case so(r):
			return true, nil
		case time.Now().After(deadline):
			return false, nil
		}
		if err := sleep(ctx, 300*time.Millisecond); err != nil {
			return false, err
		}
	}
}

// recovered is whether every job that a fault caught has gone on.
func recovered(r record) bool {
	held, waits := r.recovery()
	return held == len(waits)
}

// drain waits until every job has ended, for a while.
func (t *trial) drain(ctx context.Context) error {
	for deadline := time.Now().Add(t.timing.Drain); time.Now().Before(deadline); {
		ended, err := t.queue.ended(ctx, t.pool)
		if err != nil {
			return err
		}
		if (record{Ended: ended}).unfinished() == 0 {
			return nil
		}
		if err := sleep(ctx, 300*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// close notes what the figures do not say.
func (t *trial) close(ctx context.Context, r record, first leader) error {
	last, err := t.queue.leader(ctx, t.pool)
	if err != nil {
		return err
	}
	if last.name != first.name && len(t.faults) > 0 {
		at := time.Now().Add(-time.Duration(history.Now() - t.faults[0].At))
		t.notef("%s was elected the new leader %.1f s after the first fault", last.name, last.since.Sub(at).Seconds())
	}
	if n := r.late(); n > 0 {
		t.notef("handlers that returned after another attempt of their job had begun: %d", n)
	}
	if r.Refused > 0 {
		t.notef("late outcomes that were refused, and their caller told: %d", r.Refused)
	}
	if n := r.unfinished(); n > 0 {
		t.notef("jobs that had not ended when the trial was over: %d", n)
	}
	if gone := t.crew.gone(); len(gone) > 0 {
		t.notef("ended by themselves: %s", strings.Join(gone, ", "))
	}
	return nil
}

func (t *trial) notef(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
