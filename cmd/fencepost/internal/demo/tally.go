package demo

import (
	"context"
	"fmt"
	"time"
)

// sqlTally counts what happened; $1 is the time of the kill.
const sqlTally = `
WITH runs AS MATERIALIZED (
    SELECT e.n, e.job_id, e.fence, e.started_at, e.ended_at, v.fate
    FROM {{schema}}.effects AS e
    LEFT JOIN {{schema}}.victims AS v ON v.job_id = e.job_id AND v.fence = e.fence
), history AS MATERIALIZED (
    SELECT lag(r.n) OVER w IS NOT NULL AS repeated, lag(r.fate) OVER w AS reason
    FROM runs AS r
    WINDOW w AS (PARTITION BY r.job_id ORDER BY r.fence, r.n)
), ended AS MATERIALIZED (
    SELECT f.id, f.fence, f.status, (f.payload ->> 'id')::bigint AS invoice_id
    FROM {{schema}}.finished AS f
    WHERE f.kind = 'invoice'
)
SELECT
    (SELECT count(*) FROM ended WHERE status = 'done'),
    (SELECT count(*) FROM ended WHERE status = 'dead'),
    (SELECT count(*) FROM (
        SELECT e.invoice_id FROM {{schema}}.effects AS e
        JOIN ended AS f ON f.id = e.job_id AND f.fence = e.fence AND f.invoice_id = e.invoice_id
        WHERE f.status = 'done'
        UNION
        SELECT f.invoice_id FROM ended AS f WHERE f.status = 'dead') AS accounted),
    (SELECT count(*) FROM history WHERE repeated),
    (SELECT count(*) FROM history WHERE repeated AND reason = 'killed'),
    (SELECT count(*) FROM history WHERE repeated AND reason = 'paused'),
    (SELECT count(*) FROM runs AS a JOIN runs AS b ON b.job_id = a.job_id
     WHERE (a.fence, a.n) < (b.fence, b.n) AND a.fate IS NULL
       AND b.started_at < a.ended_at AND a.started_at < b.ended_at),
    (SELECT coalesce(extract(epoch FROM max(again.started_at) - $1::timestamptz), 0)::float8
     FROM {{schema}}.victims AS v
     CROSS JOIN LATERAL (SELECT min(r.started_at) AS started_at FROM runs AS r
                         WHERE r.job_id = v.job_id AND r.fence > v.fence) AS again
     WHERE v.fate = 'killed')`

// tally completes the report from the tables. All workers must have ended.
func (s *stage) tally(ctx context.Context, r *Report, killed time.Time) error {
	var accounted int
	err := s.pool.QueryRow(ctx, s.sql(sqlTally), killed).Scan(&r.Done, &r.Dead, &accounted,
		&r.RepeatedEffects, &r.RepeatedKilled, &r.RepeatedPaused, &r.LiveOverlaps, &r.RecoverySeconds)
	if err != nil {
		return fmt.Errorf("count what happened: %w", err)
	}
	r.Lost = r.Enqueued - accounted
	return nil
}
