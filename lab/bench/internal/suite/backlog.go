package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/migrations"
)

func init() {
	All = append(All, Suite{
		Name: "backlog", About: "claims out of five million ready jobs, and beside a million that are not to be claimed",
		Run: backlogSuite,
	})
}

const (
	backlogClaims = 100 // jobs of a claim
	backlogTurns  = 200 // claims of a round in each database
	backlogWarm   = 10  // claims before, in which statements are prepared and the first look at all jobs is taken
	backlogFew    = 1_000
	backlogMany   = 5_000_000
	backlogBeside = 1_000_000

	// A row with its index entries, and the same once more in the log, rounded up.
	backlogRowBytes = 1_500
)

// sqlBacklog inserts $1 jobs of kind $2 and priority $4 with a payload of 200 B.
// They are due $3 seconds from now, each a microsecond after the one before.
const sqlBacklog = `
INSERT INTO fencepost.jobs (kind, priority, run_at, payload)
SELECT $2::text, $4::smallint, clock.now + $3::bigint * interval '1 second' + n * interval '1 microsecond',
       jsonb_build_object('n', n, 'pad', repeat('x', 180))
FROM generate_series(1, $1::bigint) AS n, (SELECT now() AS now) AS clock`

// beside are jobs that a database has besides those that are claimed.
type beside struct {
	n        int
	kind     string
	due      time.Duration // of the first, from now
	priority int
}

// backlogged is a database of the suite.
type backlogged struct {
	name, target, what string
	ready              int
	beside             beside

	conn  *pgx.Conn
	marks *claim.Marks
	took  []float64 // milliseconds, of each claim of the round
}

const (
	backlogKind   = "own"
	backlogOther  = "foreign"
	backlogLease  = time.Minute
	backlogWorker = "bench"
)

func backlogSuite(ctx context.Context, b *Bench) (err error) {
	if !slices.Contains(b.Peers, "fencepost") {
		return nil
	}
	million := b.Size(backlogBeside)
	databases := []*backlogged{
		{name: "few", ready: backlogFew},
		{name: "many", target: "backlog_5m", what: "ready", ready: b.Size(backlogMany)},
		{
			name: "future", target: "backlog_future", what: "due in a day", ready: backlogFew,
			beside: beside{n: million, kind: backlogKind, due: 24 * time.Hour},
		},
		{
			name: "lower", target: "backlog_lower", what: "ready, older and of the next lower priority", ready: backlogFew,
			beside: beside{n: million, kind: backlogKind, due: -2 * time.Hour, priority: 1},
		},
		{
			name: "foreign", target: "backlog_foreign", what: "ready, older and of a kind that the process does not know", ready: backlogFew,
			beside: beside{n: million, kind: backlogOther, due: -2 * time.Hour},
		},
	}
	if err := b.hasRoom(ctx, databases); err != nil {
		return err
	}
	for _, q := range databases {
		undo, err := q.open(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		defer func() { err = errors.Join(err, undo()) }()
	}
	ratios := make(map[string][]float64)
	for round := range b.Rounds {
		if err := backlogRound(ctx, b, databases, round); err != nil {
			return err
		}
		own := figures.Median(databases[0].took)
		for _, q := range databases {
			median, mean := figures.Median(q.took), q.mean()
			ratios[q.name] = append(ratios[q.name], median/own)
			record := func(figure string, value float64) {
				b.Record(figures.Sample{Subject: "backlog", Who: "fencepost", Row: q.name, Best: true, Settings: "claims of 100, from the marks", Round: round, Figure: figure, Value: value})
			}
			record("claim, median ms", median)
			record("claim, mean ms", mean)
			record("claim, slowest ms", slices.Max(q.took))
			b.Logf("  %s, round %d: a claim takes %.2f ms, %.2f in the mean, the slowest %.1f ms", q.name, round+1, median, mean, slices.Max(q.took))
		}
	}
	for _, q := range databases[1:] {
		jobs := fmt.Sprintf("%d jobs of 200 B %s", q.ready, q.what)
		if q.beside.n > 0 {
			jobs = fmt.Sprintf("%d jobs of 200 B %s, beside %d that are claimed", q.beside.n, q.what, q.ready)
		}
		b.Report(figures.AtMost(q.target, ratios[q.name], 1.3, "×", fmt.Sprintf("%d ready jobs and nothing else", backlogFew),
			fmt.Sprintf("median time of %d claims of %d, commit not included; %s; the databases take turns, each claims from its marks as a worker does, "+
				"and between two claims the outcomes are stored and as many jobs enqueued", b.Size(backlogTurns), backlogClaims, jobs)))
	}
	return nil
}

// mean counts the looks at all jobs too, which are rare.
func (q *backlogged) mean() (mean float64) {
	for _, took := range q.took {
		mean += took / float64(len(q.took))
	}
	return mean
}

// hasRoom makes sure that the disk takes it.
func (b *Bench) hasRoom(ctx context.Context, databases []*backlogged) error {
	rows := int64(0)
	for _, q := range databases {
		rows += int64(q.ready + q.beside.n)
	}
	room, err := b.Host.Room(ctx)
	if err == nil && room < rows*backlogRowBytes {
		err = fmt.Errorf("%d GB of disk are needed for %d jobs, %d GB are left", rows*backlogRowBytes/1e9, rows, room/1e9)
	}
	return err
}

// open makes the database and fills it.
func (q *backlogged) open(ctx context.Context, b *Bench) (undo func() error, err error) {
	dsn, drop, err := b.Host.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	if q.conn, err = pgx.Connect(ctx, dsn); err != nil {
		return nil, errors.Join(err, drop())
	}
	undo = func() error { return errors.Join(q.conn.Close(context.Background()), drop()) }
	q.marks = claim.NewMarks()
	if err := q.fill(ctx); err != nil {
		return nil, errors.Join(err, undo())
	}
	b.Logf("  %s: %d ready jobs, %d beside", q.name, q.ready, q.beside.n)
	return undo, b.Host.Settle(ctx)
}

func (q *backlogged) fill(ctx context.Context) error {
	if _, err := migrations.Up(ctx, q.conn, fencepost.DefaultSchema); err != nil {
		return err
	}
	for _, sql := range []string{
		"ALTER TABLE fencepost.jobs DISABLE TRIGGER bell",
		// A vacuum in the middle of one of five would be compared with none.
		"ALTER TABLE fencepost.jobs SET (autovacuum_enabled = off)",
	} {
		if _, err := q.conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if err := q.insert(ctx, q.beside.n, q.beside.kind, q.beside.due, q.beside.priority); err != nil {
		return err
	}
	if err := q.insert(ctx, q.ready, backlogKind, -time.Hour, 0); err != nil {
		return err
	}
	_, err := q.conn.Exec(ctx, "VACUUM (ANALYZE)")
	return err
}

func (q *backlogged) insert(ctx context.Context, n int, kind string, due time.Duration, priority int) error {
	if n == 0 {
		return nil
	}
	_, err := q.conn.Exec(ctx, sqlBacklog, n, kind, int64(due.Seconds()), priority)
	return err
}

func backlogRound(ctx context.Context, b *Bench, databases []*backlogged, round int) error {
	disk, err := b.Host.ProbeCommits(ctx)
	if err != nil {
		return err
	}
	b.Record(figures.Sample{Subject: "disk", Row: "backlog", Round: round, Figure: "commits/s", Value: disk})
	turns := b.Size(backlogTurns)
	for i := range backlogWarm + turns {
		if i == backlogWarm {
			for _, q := range databases {
				q.took = nil
			}
		}
		for _, q := range turn(databases, i+round) {
			if err := q.claim(ctx); err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
		}
	}
	return nil
}

// claim takes the next jobs, ends them and puts as many new ones behind.
func (q *backlogged) claim(ctx context.Context) error {
	table := claim.In(fencepost.DefaultSchema)
	tx, err := q.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after a commit there is nothing to roll back
	began := time.Now()
	r := claim.Request{
		Queue: fencepost.DefaultQueue, Kinds: []string{backlogKind}, Limit: backlogClaims,
		Look: q.marks.Look(fencepost.DefaultQueue, began),
	}
	claimed, err := table.Claim(ctx, tx, r, backlogLease, backlogWorker)
	if err != nil {
		return err
	}
	now := time.Now()
	q.took = append(q.took, float64(now.Sub(began).Microseconds())/1000)
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if len(claimed.Rows) != backlogClaims {
		return fmt.Errorf("%d jobs claimed", len(claimed.Rows))
	}
	q.marks.Learn(r, now, claimed)
	outcomes := make([]claim.Outcome, len(claimed.Rows))
	for i, row := range claimed.Rows {
		if row.Kind != backlogKind || row.Priority != 0 {
			return fmt.Errorf("a job of kind %s and priority %d was claimed", row.Kind, row.Priority)
		}
		outcomes[i] = claim.Outcome{Lease: row.Lease(), Verb: claim.Done}
	}
	results, err := table.Finish(ctx, q.conn, outcomes)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(results, func(r claim.Result) bool { return r != claim.Stored }) {
		return fmt.Errorf("outcomes: %v", results)
	}
	return q.insert(ctx, backlogClaims, backlogKind, 0, 0)
}
