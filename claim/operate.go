package claim

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// What an operator does to jobs, by their ids ($1, each once).
//
// Each statement reads first what there is of each id: a live job, and the
// newest that has ended. Then it locks what it may change, and skips what
// somebody holds: that is busy, and so is what has moved since the first look.
// What is not for the verb is left alone.
//
// Every verb moves the fence: what the holder of a running job still writes
// changes nothing. It is told by a recall, once for each worker.

// sqlSeen is the first look.
const sqlSeen = `
    SELECT o.id,
           (SELECT ` + sqlStatus + ` FROM {{schema}}.jobs AS j WHERE j.id = o.id) AS live,
           (SELECT f.status FROM {{schema}}.finished AS f WHERE f.id = o.id ` + sqlNewest + `) AS ended
    FROM unnest($1::bigint[]) AS o (id)`

// sqlNewest picks of the finished jobs under one id the one that Get shows.
const sqlNewest = `ORDER BY f.finished_at DESC, f.fence DESC LIMIT 1`

// sqlRecalled tells the workers of the running jobs among the rows of the CTE
// "d" to look whether these are still theirs.
const sqlRecalled = `
    SELECT {{schema}}.recall(w.worker_id) FROM (SELECT DISTINCT d.worker_id FROM d WHERE d.status = 'running') AS w`

// sqlCancel ends live jobs.
const sqlCancel = `
WITH o AS MATERIALIZED (` + sqlSeen + `
), d AS MATERIALIZED (
    SELECT j.id, j.worker_id, ` + sqlStatus + ` AS status
    FROM {{schema}}.jobs AS j
    WHERE j.id = ANY ($1::bigint[])
    ORDER BY j.id
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {{schema}}.jobs AS j
    WHERE j.id = ANY (ARRAY(SELECT d.id FROM d))
    -- Not the fence of a claim: finding that one in finished would tell its
    -- holder that its own outcome was stored. One more than it tells what has
    -- become of the claim, see sqlLost.
    RETURNING j.id, j.fence + 1 AS fence, j.run_at, j.created_at, j.attempts, j.max_attempts, j.snoozes, j.priority,
              'cancelled' AS status, j.queue, j.kind, j.worker_id, j.payload, j.progress,
              'cancelled by an operator' AS last_error
), kept AS (` + sqlKeep + `
), recalled AS (` + sqlRecalled + `
)
SELECT o.id, d.id IS NOT NULL, coalesce(d.status, o.live, o.ended, ''),
       d.id IS NULL AND o.live IS NOT NULL,
       (SELECT count(*) FROM recalled) -- or nobody would be told
FROM o LEFT JOIN d ON d.id = o.id`

// sqlRelease takes running jobs from their workers. They are ready at once.
const sqlRelease = `
WITH o AS MATERIALIZED (` + sqlSeen + `
), d AS MATERIALIZED (
    SELECT j.id, j.worker_id, j.status
    FROM {{schema}}.jobs AS j
    WHERE j.id = ANY ($1::bigint[])
      AND j.status = 'running'
    ORDER BY j.id
    FOR UPDATE SKIP LOCKED
), back AS (
    UPDATE {{schema}}.jobs AS j SET
        status = 'ready', lease_until = NULL, worker_id = NULL,
        fence = j.fence + 1,
        run_at = least(j.run_at, clock_timestamp()),
        -- The attempt counts, and there is one more. Neither goes past the end
        -- of its type.
        attempts = least(j.attempts, 2147483646),
        max_attempts = greatest(j.max_attempts, least(j.attempts, 2147483646) + 1)
    WHERE j.id = ANY (ARRAY(SELECT d.id FROM d))
    RETURNING j.queue
), rung AS (
    SELECT {{schema}}.ring(b.queue) FROM back AS b GROUP BY b.queue
), recalled AS (` + sqlRecalled + `
)
SELECT o.id, d.id IS NOT NULL, coalesce(d.status, o.live, o.ended, ''),
       d.id IS NULL AND coalesce(o.live = 'running', false),
       (SELECT count(*) FROM rung) + (SELECT count(*) FROM recalled) -- or nobody would be told
FROM o LEFT JOIN d ON d.id = o.id`

// sqlRetry brings jobs that have ended back to life, as they were: the same id
// and time of creation, so the same key, and the same count of attempts.
const sqlRetry = `
WITH o AS MATERIALIZED (` + sqlSeen + `
), d AS MATERIALIZED (
    SELECT f.ctid AS place, f.id, f.fence, f.created_at, f.attempts, f.max_attempts, f.snoozes, f.priority,
           f.queue, f.kind, f.payload, f.progress, f.last_error
    FROM {{schema}}.finished AS f
    WHERE f.ctid = ANY (ARRAY(
        SELECT (SELECT f.ctid FROM {{schema}}.finished AS f WHERE f.id = o.id ` + sqlNewest + `)
        FROM o WHERE o.live IS NULL))
    ORDER BY f.id
    FOR UPDATE SKIP LOCKED -- of two retries one finds the row
), back AS (
    -- The trigger on INSERT rings.
    INSERT INTO {{schema}}.jobs (id, fence, run_at, created_at, attempts, max_attempts, snoozes, priority,
        queue, kind, payload, progress, last_error)
    SELECT d.id, d.fence + 1, clock_timestamp(), d.created_at, least(d.attempts, 2147483646),
           greatest(d.max_attempts, least(d.attempts, 2147483646) + 1), d.snoozes, d.priority,
           d.queue, d.kind, d.payload, d.progress, d.last_error
    FROM d
    -- A producer may have given the id to a job of its own just now.
    ON CONFLICT (id) DO NOTHING
    RETURNING id
), gone AS (
    DELETE FROM {{schema}}.finished AS f
    WHERE f.ctid = ANY (ARRAY(SELECT d.place FROM d JOIN back AS b ON b.id = d.id))
)
SELECT o.id, b.id IS NOT NULL, coalesce(o.live, o.ended, ''),
       b.id IS NULL AND o.live IS NULL AND o.ended IS NOT NULL,
       0::bigint
FROM o LEFT JOIN back AS b ON b.id = o.id`

// sqlDelete deletes all that there is of an id, or nothing of it.
const sqlDelete = `
WITH o AS MATERIALIZED (` + sqlSeen + `
), l AS MATERIALIZED (
    SELECT j.id, j.worker_id, ` + sqlStatus + ` AS status
    FROM {{schema}}.jobs AS j
    WHERE j.id = ANY ($1::bigint[])
    ORDER BY j.id
    FOR UPDATE SKIP LOCKED
), e AS MATERIALIZED (
    SELECT f.ctid AS place, f.id
    FROM {{schema}}.finished AS f
    WHERE f.id = ANY ($1::bigint[])
    ORDER BY f.id
    FOR UPDATE SKIP LOCKED
), d AS MATERIALIZED (
    SELECT o.id, l.worker_id, coalesce(l.status, o.ended) AS status
    FROM o LEFT JOIN l ON l.id = o.id
    WHERE coalesce(o.live, o.ended) IS NOT NULL
      AND (o.live IS NULL OR l.id IS NOT NULL)
      AND (SELECT count(*) FROM {{schema}}.finished AS f WHERE f.id = o.id) = (SELECT count(*) FROM e WHERE e.id = o.id)
), gone AS (
    DELETE FROM {{schema}}.jobs AS j
    WHERE j.id = ANY (ARRAY(SELECT d.id FROM d))
), forgotten AS (
    DELETE FROM {{schema}}.finished AS f
    WHERE f.ctid = ANY (ARRAY(SELECT e.place FROM e JOIN d ON d.id = e.id))
), recalled AS (` + sqlRecalled + `
)
SELECT o.id, d.id IS NOT NULL, coalesce(d.status, o.live, o.ended, ''),
       d.id IS NULL AND coalesce(o.live, o.ended) IS NOT NULL,
       (SELECT count(*) FROM recalled) -- or nobody would be told
FROM o LEFT JOIN d ON d.id = o.id`

// Did says what an operator's verb has done about one job.
type Did struct {
	ID   int64
	Done bool
	// Status is what the job was before, as Info names it; "": there is no such
	// job.
	Status string
	// Busy means that somebody held the job at that moment, such as a handler
	// that completes it in its own open transaction: nothing was done about it.
	Busy bool
	// Refused is why the database does not let it go, such as a foreign key or a
	// trigger of somebody's; nil: it has not refused. Others are done without it.
	Refused error
}

// Cancel ends jobs that have not ended yet.
func (t *Table) Cancel(ctx context.Context, db DB, ids []int64) ([]Did, error) {
	return t.operate(ctx, db, "cancel", sqlCancel, ids)
}

// Release makes running jobs ready, at once. The attempt counts, and if it was
// the last one there is one more.
func (t *Table) Release(ctx context.Context, db DB, ids []int64) ([]Did, error) {
	return t.operate(ctx, db, "release", sqlRelease, ids)
}

// Retry makes jobs that have ended ready, at once and with at least one attempt
// left.
func (t *Table) Retry(ctx context.Context, db DB, ids []int64) ([]Did, error) {
	return t.operate(ctx, db, "retry", sqlRetry, ids)
}

// Delete deletes jobs, whatever their state.
func (t *Table) Delete(ctx context.Context, db DB, ids []int64) ([]Did, error) {
	return t.operate(ctx, db, "delete", sqlDelete, ids)
}

// operate runs one verb for jobs that are each named once, in one commit, and
// answers for each, in the order of the ids.
func (t *Table) operate(ctx context.Context, db DB, verb, statement string, ids []int64) ([]Did, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	found := make(map[int64]Did, len(ids))
	b := inOneGo(t)
	b.Queue(t.sql(statement), ids).Query(func(rows pgx.Rows) error {
		var d Did
		var told int64
		_, err := pgx.ForEachRow(rows, []any{&d.ID, &d.Done, &d.Status, &d.Busy, &told}, func() error {
			found[d.ID] = d
			return nil
		})
		return err
	})
	if err := db.SendBatch(ctx, b).Close(); isDataError(err) {
		return t.operateAround(ctx, db, verb, statement, ids, err)
	} else if err != nil {
		return nil, classify(verb, err)
	}
	did := make([]Did, len(ids))
	for i, id := range ids {
		did[i] = found[id]
	}
	return did, nil
}

// operateAround halves what the database has refused, until the job that is
// the reason stands alone.
func (t *Table) operateAround(ctx context.Context, db DB, verb, statement string, ids []int64, refused error) ([]Did, error) {
	if len(ids) == 1 {
		job, err := t.Get(ctx, db, ids[0])
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, classify(verb, err)
		}
		return []Did{{ID: ids[0], Status: job.Status, Refused: fmt.Errorf("%s job %d: %w", verb, ids[0], refused)}}, nil
	}
	half := len(ids) / 2
	first, err := t.operate(ctx, db, verb, statement, ids[:half])
	if err != nil {
		return first, err
	}
	second, err := t.operate(ctx, db, verb, statement, ids[half:])
	return append(first, second...), err
}
