package demo

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

const (
	sqlNaivePlain = `
WITH i AS (` + sqlInvoices + `)
INSERT INTO {{schema}}.naive_jobs (invoice_id) SELECT i.id FROM i`

	sqlNaiveEnded = `SELECT count(*) FROM {{schema}}.naive_jobs WHERE status = 'done'`

	sqlNaiveHeld = `SELECT id, 0::bigint FROM {{schema}}.naive_jobs WHERE status = 'running' AND worker = $1::text`
)

func naiveHeld(w *worker) (string, []any) { return sqlNaiveHeld, []any{w.name} }

// sqlNaiveTally counts claims made while the claim before had its lease, and
// completions under a claim whose job was another's by then.
const sqlNaiveTally = `
SELECT (SELECT count(*)
        FROM (SELECT c.at, lag(c.until) OVER (PARTITION BY c.job_id ORDER BY c.n) AS until_before
              FROM {{schema}}.naive_claims AS c) AS claims
        WHERE at < until_before),
       (SELECT count(*)
        FROM {{schema}}.naive_completions AS d JOIN {{schema}}.naive_taken AS t ON t.n = d.claim AND t.at < d.at)`

// sqlNaiveRobbed tells whether a worker holds a claim that it will complete too
// late.
const sqlNaiveRobbed = `SELECT EXISTS (
    SELECT FROM {{schema}}.naive_taken AS t
    WHERE t.worker = $1::text AND NOT EXISTS (SELECT FROM {{schema}}.naive_completions AS d WHERE d.claim = t.n))`

// RunNaive tells the story of a queue without SKIP LOCKED and without fences:
// the same load, and a worker that is frozen past the end of its leases. It is
// the control: what it counts are the faults that Run must not show. It ends
// when the frozen worker has done its harm. The report is whole when the error
// is nil.
func RunNaive(ctx context.Context, p Plan) (r NaiveReport, err error) {
	err = onStage(ctx, p, true, func(ctx context.Context, s *stage, c *crew) error {
		if err := s.script(ctx, sqlNaiveTables); err != nil {
			return fmt.Errorf("make the naive tables: %w", err)
		}
		p.Tell(fmt.Sprintf("%d producers, %d invoices", producers, p.Jobs))
		if r.Enqueued, err = load(ctx, p, inPlainSQL(s, sqlNaivePlain)); err != nil {
			return err
		}
		p.Tell(fmt.Sprintf("%d naive workers", p.Workers))
		workers, err := c.hireMany(ctx, p.Workers)
		if err != nil {
			return err
		}
		ended := newProgress(p, s, sqlNaiveEnded)
		group, groupCtx := errgroup.WithContext(ctx)
		// Most jobs are run many times over, by all workers: nobody has the
		// time to wait for the last one.
		watching, enough := context.WithCancel(groupCtx)
		group.Go(func() error {
			defer enough()
			return naiveTroubles(groupCtx, p, s, workers[0], ended)
		})
		group.Go(func() error {
			if err := ended.watch(watching); watching.Err() == nil {
				return err
			}
			return nil
		})
		if err := group.Wait(); err != nil {
			return err
		}
		if err := c.dismiss(ctx); err != nil {
			return err
		}
		return s.naiveTally(ctx, &r)
	})
	r.OK = err == nil && len(r.Broken()) == 0
	return r, err
}

// naiveTroubles freezes a worker with jobs in hand until its leases are over.
func naiveTroubles(ctx context.Context, p Plan, s *stage, w *worker, ended *progress) error {
	if err := ended.reach(ctx, p.Jobs/10); err != nil {
		return err
	}
	for robbed := false; !robbed; { // again, if others had claimed all of its jobs at the same time
		victims, err := s.pause(ctx, w, naiveHeld)
		if err != nil {
			return err
		}
		p.Tell(fmt.Sprintf("worker %s is frozen while it holds %d", w.name, victims))
		if err := s.robbed(ctx, w, naiveHeld); err != nil {
			return err
		}
		if err := s.pool.QueryRow(ctx, s.sql(sqlNaiveRobbed), w.name).Scan(&robbed); err != nil {
			return err
		}
		if err := resume(w.os); err != nil {
			return err
		}
	}
	p.Tell(fmt.Sprintf("the leases of worker %s are over, its jobs are taken; it wakes up and goes on", w.name))
	err := until(ctx, "a late completion", func() (bool, error) {
		var r NaiveReport
		err := s.naiveTally(ctx, &r)
		return r.LateOverwrites > 0, err
	})
	if errors.Is(err, errNoPatience) {
		return nil // the report says so
	}
	return err
}

func (s *stage) naiveTally(ctx context.Context, r *NaiveReport) error {
	err := s.pool.QueryRow(ctx, s.sql(sqlNaiveTally)).Scan(&r.DoubleClaims, &r.LateOverwrites)
	if err != nil {
		return fmt.Errorf("count what happened: %w", err)
	}
	return nil
}
