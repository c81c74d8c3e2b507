package claim

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// sqlDue is the part of the tick that looks into claims: what is left of them,
// and when to look again. A claim changes no index, so there is none by which
// jobs could be found whose lease is over. But each job that runs is named in a
// row of claims, with a time before which no lease of that row ends.
//
// dues: the rows whose time has come, and those of dead workers, but for what was
// put off: that comes in its turn, whoever is dead. One that somebody else looks
// into is his.
//
// due: as many of them as one tick looks into, the oldest first: by the number of
// jobs, so that statements stay short. By far fewer where jobs are reaped one by
// one, because the database refuses one of them: those behind it have their turn
// once it is put off.
//
// l: the jobs that are reaped.
//
// left_over: what runs of each, by the ids that were claimed. Whoever runs it: a job
// that was claimed again is in two rows for a while, and whose it is is in its
// own row.
//
// opened: where something runs, the next look is when the first lease ends, as
// it is now. A job that is over already is either reaped now, or held by
// somebody, or refused by the database: it is looked for once more after a
// second, behind the others. Where the batch is full nothing is put off, and
// where it has no room, after tickAround has tried for long enough, everything is.
//
// closed: where nothing runs any more, the row has done its duty.
const sqlDue = `dues AS MATERIALIZED (
    SELECT c.id, c.look_at, c.ids
    FROM {{schema}}.claims AS c
    WHERE c.look_at < (SELECT e.lease FROM edge AS e)
       OR c.worker_id = ANY (ARRAY(SELECT d.worker_id FROM dead AS d))
          AND c.look_at NOT BETWEEN (SELECT clock_timestamp()) AND (SELECT clock_timestamp()) + interval '1 second'
    ORDER BY c.look_at, c.id
    LIMIT 500
    FOR UPDATE SKIP LOCKED
), due AS MATERIALIZED (
    SELECT s.id, s.ids
    FROM (SELECT d.id, d.ids, sum(cardinality(d.ids)) OVER (ORDER BY d.look_at, d.id) - cardinality(d.ids) AS before FROM dues AS d) AS s
    WHERE s.before < greatest($3::bigint, 1) * 10
), l AS MATERIALIZED (
    SELECT j.id, j.worker_id, j.attempts, j.max_attempts
    FROM {{schema}}.jobs AS j
    WHERE j.id = ANY (ARRAY(SELECT unnest(d.ids) FROM due AS d))
      AND j.status = 'running'
      AND (j.lease_until < (SELECT e.lease FROM edge AS e) OR j.worker_id = ANY (ARRAY(SELECT d.worker_id FROM dead AS d)))
    ORDER BY j.lease_until, j.id
    LIMIT $3::bigint OFFSET $7::bigint
    FOR UPDATE SKIP LOCKED
), left_over AS MATERIALIZED (
    SELECT d.id, r.ids, r.lease, r.late
    FROM due AS d
    CROSS JOIN LATERAL (
        SELECT array_agg(j.id) AS ids,
               min(j.lease_until) FILTER (WHERE j.lease_until >= (SELECT e.lease FROM edge AS e)) AS lease,
               bool_or(j.lease_until < (SELECT e.lease FROM edge AS e)
                       OR j.worker_id = ANY (ARRAY(SELECT d.worker_id FROM dead AS d))) AS late
        FROM {{schema}}.jobs AS j
        WHERE j.id = ANY (d.ids) AND j.status = 'running'
    ) AS r
), opened AS (
    UPDATE {{schema}}.claims AS c SET
        ids = o.ids,
        look_at = CASE WHEN o.late THEN least(o.lease, clock_timestamp() + interval '1 second') ELSE o.lease END
    FROM left_over AS o
    WHERE c.id = o.id AND o.ids IS NOT NULL
      AND NOT (o.late AND $3::bigint > 0 AND (SELECT count(*) FROM l) >= $3::bigint)
    RETURNING c.look_at
), closed AS (
    DELETE FROM {{schema}}.claims AS c
    WHERE c.id = ANY (ARRAY(SELECT o.id FROM left_over AS o WHERE o.ids IS NULL))
), `

// adoptPages is how much of the table one Adopt reads: 32 MB.
const adoptPages = 4096

// sqlAdopt writes rows of claims for jobs that run and are in none of their
// worker's that is looked into in time: their programs are of a version that knows
// no claims, or somebody has set them to running by hand. One that is in the row
// of a worker who had it before is found when its lease ends, but not when its
// worker dies. It reads $2 pages of the table from page $1 on, and returns whether
// there are more.
const sqlAdopt = `
WITH written AS (
    INSERT INTO {{schema}}.claims (look_at, worker_id, ids)
    SELECT min(r.lease_until), r.worker_id, array_agg(r.id)
    FROM (SELECT j.id, j.worker_id, j.lease_until,
                 (row_number() OVER (PARTITION BY j.worker_id ORDER BY j.id) - 1) / 500 AS part
          FROM {{schema}}.jobs AS j
          WHERE j.ctid >= ('(' || $1::bigint || ',0)')::tid AND j.ctid < ('(' || ($1::bigint + $2::bigint) || ',0)')::tid
            AND j.status = 'running'
            AND NOT EXISTS (
                SELECT FROM (SELECT unnest(c.ids) AS id, c.worker_id, c.look_at FROM {{schema}}.claims AS c) AS k
                WHERE k.id = j.id AND k.worker_id = j.worker_id
                  -- Up to a second later is as soon, for one that a tick could not
                  -- reap, since this statement began; not by clock_timestamp(),
                  -- for which all claims would be read for each job.
                  AND k.look_at <= greatest(j.lease_until, statement_timestamp() + interval '2 seconds'))) AS r
    GROUP BY r.worker_id, r.part
    RETURNING 1
)
SELECT (SELECT count(*) FROM written),
       pg_relation_size({{jobs}}::regclass) > ($1::bigint + $2::bigint) * current_setting('block_size')::bigint`

// Adopt makes ticks look at running jobs that no claim names, in a part of the
// table that begins at the given page; 0 is the first one. It returns whether it
// has found any, and where the next part begins; 0: this was the last one.
func (t *Table) Adopt(ctx context.Context, db DB, page int64) (found bool, next int64, err error) {
	b := inOneGo(t)
	b.Queue(t.sql(sqlAdopt), page, int64(adoptPages)).Query(func(rows pgx.Rows) error {
		var claims int64
		var more bool
		_, err := pgx.ForEachRow(rows, []any{&claims, &more}, func() error { return nil })
		if found = claims > 0; more {
			next = page + adoptPages
		}
		return err
	})
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return false, 0, classify("look for running jobs without a claim", err)
	}
	return found, next, nil
}
