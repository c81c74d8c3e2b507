package demo

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// sqlNaiveTables are a queue as one writes it on a first afternoon, and a log
// of it by which its faults are counted.
const sqlNaiveTables = `
CREATE TABLE {{schema}}.naive_jobs (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    invoice_id  bigint NOT NULL,
    status      text   NOT NULL DEFAULT 'ready',
    worker      text,
    lease_until timestamptz
);
CREATE INDEX naive_jobs_status ON {{schema}}.naive_jobs (status, id);

CREATE TABLE {{schema}}.naive_claims (
    n      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint      NOT NULL,
    worker text        NOT NULL,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    until  timestamptz NOT NULL
);
CREATE INDEX naive_claims_job ON {{schema}}.naive_claims (job_id);
CREATE TABLE {{schema}}.naive_completions (
    claim bigint      NOT NULL,
    at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX naive_completions_claim ON {{schema}}.naive_completions (claim);

-- Claims whose job another worker took when their lease was over.
CREATE VIEW {{schema}}.naive_taken AS
SELECT c.n, c.worker, min(l.at) AS at
FROM {{schema}}.naive_claims AS c
JOIN {{schema}}.naive_claims AS l ON l.job_id = c.job_id AND l.n > c.n AND l.at > c.until
GROUP BY c.n;`

// sqlNaiveClaim looks sound, and passes every test with one worker. But the
// sub-select chooses without locking: a second worker chooses the same rows,
// waits for the first to commit, and then takes them too, since only "id IN"
// is looked at again. (The WITH keeps the log, and changes nothing of that.)
const sqlNaiveClaim = `
WITH claimed AS (
    UPDATE {{schema}}.naive_jobs
    SET status = 'running', worker = $1::text, lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
    WHERE id IN (SELECT id FROM {{schema}}.naive_jobs
                 WHERE status = 'ready' OR status = 'running' AND lease_until < clock_timestamp()
                 ORDER BY id LIMIT $3)
    RETURNING id, invoice_id, lease_until
), logged AS (
    INSERT INTO {{schema}}.naive_claims (job_id, worker, until) SELECT id, $1::text, lease_until FROM claimed RETURNING n, job_id
)
SELECT claimed.id, logged.n, claimed.invoice_id FROM claimed JOIN logged ON logged.job_id = claimed.id`

// sqlNaiveComplete does not ask whose job it is by now.
const sqlNaiveComplete = `
WITH completed AS (
    UPDATE {{schema}}.naive_jobs SET status = 'done', worker = $2 WHERE id = $1 RETURNING id
)
INSERT INTO {{schema}}.naive_completions (claim) SELECT $3 FROM completed`

// naiveWorker claims, works and completes, batch by batch.
type naiveWorker struct {
	job  assignment
	pool *pgxpool.Pool
}

type naiveJob struct{ ID, Claim, Invoice int64 }

// run works until ctx is done.
func (w *naiveWorker) run(ctx context.Context, begun func()) error {
	begun()
	for ctx.Err() == nil {
		jobs, err := w.claim(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if len(jobs) == 0 {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		var group errgroup.Group
		group.SetLimit(slots)
		for _, job := range jobs {
			group.Go(func() error { return w.work(ctx, job) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// claim returns nothing after a deadlock, which this way of claiming invites.
func (w *naiveWorker) claim(ctx context.Context) ([]naiveJob, error) {
	rows, err := w.pool.Query(ctx, inSchema(sqlNaiveClaim, w.job.Schema), w.job.Name, w.job.Lease.Microseconds(), slots)
	if err != nil {
		return nil, err
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[naiveJob])
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "40P01" {
		return nil, nil
	}
	return jobs, err
}

func (w *naiveWorker) work(ctx context.Context, job naiveJob) error {
	ctx = context.WithoutCancel(ctx)
	effects := effects{pool: w.pool, schema: w.job.Schema}
	if err := effects.cause(ctx, job.ID, job.Claim, job.Invoice, w.job.Effort); err != nil {
		return err
	}
	_, err := w.pool.Exec(ctx, inSchema(sqlNaiveComplete, w.job.Schema), job.ID, w.job.Name, job.Claim)
	return err
}
