package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
)

func init() {
	All = append(All, Suite{
		Name: "plans", About: "the generic plan of every hot statement, at 200,000 and at 5,000,000 jobs",
		Run: plansSuite,
	})
}

// sqlPlansJobs fills the table as a busy queue has it, in an order of run_at
// that is not that of the ids, with every hundredth job running.
const sqlPlansJobs = `
INSERT INTO fencepost.jobs (kind, run_at, status, attempts, lease_until, worker_id, payload)
SELECT 'kind ' || n % 5, now() + ((n * 7919) % $1::bigint - $1::bigint / 2) * interval '1 second',
       CASE WHEN r.running THEN 'running' ELSE 'ready' END, r.running::integer,
       CASE WHEN r.running THEN now() + interval '10 minutes' + n * interval '1 ms' END,
       CASE WHEN r.running THEN 'worker ' || n % 20 END,
       jsonb_build_object('n', n, 'pad', repeat('x', 180))
FROM generate_series(1, $1::bigint) AS n, LATERAL (SELECT n % 100 = 0 AS running) AS r`

// sqlPlansClaims writes down that they run, as their claims would have done.
const sqlPlansClaims = `
INSERT INTO fencepost.claims (look_at, worker_id, ids)
SELECT min(r.lease_until), r.worker_id, array_agg(r.id)
FROM (SELECT j.id, j.worker_id, j.lease_until, row_number() OVER (PARTITION BY j.worker_id ORDER BY j.id) / 100 AS part
      FROM fencepost.jobs AS j WHERE j.status = 'running') AS r
GROUP BY r.worker_id, r.part`

const sqlPlansFinished = `
INSERT INTO fencepost.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload)
SELECT -n, n, now(), now(), now() + n * interval '1 second', 1, 1, 0, 0, 'done', 'default', 'kind 1', '{}'
FROM generate_series(1, $1::bigint) AS n`

func plansSuite(ctx context.Context, b *Bench) error {
	if !slices.Contains(b.Peers, "fencepost") {
		return nil
	}
	scans, wholes, seen := 0, 0, 0
	sizes := []int{b.Size(200_000), b.Size(5_000_000)}
	if err := b.hasRoom(ctx, []*backlogged{{ready: sizes[1]}}); err != nil {
		return err
	}
	for _, n := range sizes {
		plans, err := b.plans(ctx, n)
		if err != nil {
			return fmt.Errorf("%d jobs: %w", n, err)
		}
		seen += len(plans)
		for _, p := range plans {
			if found := p.Plan.scans("jobs"); len(found) > 0 {
				scans++
				b.Logf("  %d jobs, %s: %s in %s", n, p.state, strings.Join(found, ", "), p.summary())
			}
			if found := p.Plan.wholes("jobs"); len(found) > 0 {
				wholes++
				b.Logf("  %d jobs, %s: %s in %s", n, p.state, strings.Join(found, ", "), p.summary())
			}
		}
		b.Logf("  %d jobs: %d plans", n, len(plans))
	}
	of := fmt.Sprintf("of the %d generic plans by which every hot statement was really run at %d and %d jobs, never analysed and analysed",
		seen, sizes[0], sizes[1])
	none := func(target string, n int, what string) {
		b.Report(figures.AtMost(target, []float64{float64(n)}, 0, "plans", "an absolute limit", what+", "+of))
	}
	none("plans", scans, "with a Seq Scan on jobs or a Hash Join of jobs, even if of few rows")
	// What the target is about: such a plan becomes slower with every job.
	none("plans_whole", wholes, "that read jobs or an index of it from one end to the other")
	return nil
}

// plans are those of every hot statement at a number of jobs.
func (b *Bench) plans(ctx context.Context, n int) (all []explained, err error) {
	dsn, drop, err := b.Host.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	began := time.Now()
	h, err := openHot(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if err := h.fill(ctx, n); err != nil {
		return nil, err
	}
	b.Logf("  %d jobs loaded in %.0f s", n, time.Since(began).Seconds())
	for _, state := range []string{"never analysed", "analysed"} {
		if state == "analysed" {
			if _, err := h.pool.Exec(ctx, "VACUUM (ANALYZE)"); err != nil {
				return nil, err
			}
		}
		plans, err := h.run(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", state, err)
		}
		for _, p := range plans {
			p.state = state
			all = append(all, p)
		}
	}
	return all, nil
}
