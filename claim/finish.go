package claim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/payload"
)

const (
	maxErrorBytes = 8 << 10
	maxDelay      = 100 * 365 * 24 * time.Hour
)

// ErrRejected means that the database will never take an outcome as it is.
var ErrRejected = errors.New("outcome rejected")

// sqlFinish ends claims: one row of the parameters per claim.
//
// Rows that somebody else holds are skipped and reported as busy: one that is
// held long, such as by a handler's own open transaction, delays nobody, and
// where nobody waits for a row nobody can deadlock.
const sqlFinish = `
WITH o AS MATERIALIZED (
    -- What all of the outcomes have alike may be left out: done, without a delay or
    -- an error. A NULL among the arrays is as long as the others.
    SELECT o.id, o.fence, coalesce(o.verb, 'done') AS verb, coalesce(o.delay, 0) AS delay, o.error, o.n
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::text[])
         WITH ORDINALITY AS o (id, fence, verb, delay, error, n)
), ended AS (
    -- Most end, and nobody holds them, as xmax says: these need not be locked first. Who
    -- comes between the look at xmax and the DELETE, a moment later, is waited for
    -- until lock_timeout; then nothing is deleted without a lock ($6).
    --
    -- The fence alone proves that the claim is still the caller's, since every
    -- way out of running moves it.
    DELETE FROM {{schema}}.jobs AS j
    USING o
    WHERE j.id = o.id AND j.fence = o.fence AND o.verb IN ('done', 'dead', 'cancelled')
      AND $6::boolean IS NOT TRUE AND j.xmax IN ('0'::xid, j.xmin)
    RETURNING o.n, j.id, j.fence, j.run_at, j.created_at, j.attempts, j.max_attempts, j.snoozes, j.priority,
              o.verb AS status, j.queue, j.kind, j.worker_id, j.payload, j.progress,
              coalesce(nullif(o.error, ''), j.last_error) AS last_error
), rest AS MATERIALIZED (
    SELECT o.id, o.fence, o.verb, o.delay, o.error, o.n
    FROM o
    WHERE (SELECT count(*) FROM ended) < cardinality($1::bigint[]) AND o.n <> ALL (ARRAY(SELECT e.n FROM ended AS e))
), d AS MATERIALIZED (
    -- Each row by its key, whatever plan the server would rather take.
    SELECT j.id, o.verb, o.delay, o.error, o.n,
           CASE WHEN o.verb IN ('done', 'dead', 'cancelled') THEN o.verb
                WHEN o.verb IN ('retry', 'release') AND j.attempts >= j.max_attempts THEN 'dead'
                ELSE 'ready' END AS status
    FROM (SELECT r.id, r.fence, r.verb, r.delay, r.error, r.n FROM rest AS r ORDER BY r.id) AS o
    CROSS JOIN LATERAL (
        SELECT j.id, j.attempts, j.max_attempts
        FROM {{schema}}.jobs AS j
        WHERE j.id = o.id AND j.fence = o.fence
        FOR UPDATE SKIP LOCKED
    ) AS j
), back AS (
    UPDATE {{schema}}.jobs AS j SET
        status = 'ready', lease_until = NULL, worker_id = NULL,
        fence = j.fence + 1,
        -- Not below zero, which is what somebody may have set it to meanwhile.
        attempts = CASE WHEN d.verb IN ('snooze', 'return') THEN greatest(j.attempts - 1, 0) ELSE j.attempts END,
        -- Counted apart and never past the end of its type.
        snoozes = CASE WHEN d.verb = 'snooze' THEN least(j.snoozes, 2147483646) + 1 ELSE j.snoozes END,
        -- A job handed back keeps its place in the queue.
        run_at = CASE WHEN d.verb IN ('retry', 'snooze')
                      THEN clock_timestamp() + d.delay * interval '1 microsecond' ELSE j.run_at END,
        last_error = coalesce(nullif(d.error, ''), j.last_error)
    FROM d
    WHERE j.id = d.id AND d.status = 'ready'
    RETURNING j.queue, j.run_at
), locked AS (
    DELETE FROM {{schema}}.jobs AS j
    USING d
    WHERE j.id = d.id AND d.status <> 'ready'
    RETURNING j.id, j.fence, j.run_at, j.created_at, j.attempts, j.max_attempts, j.snoozes, j.priority,
              d.status, j.queue, j.kind, j.worker_id, j.payload, j.progress,
              coalesce(nullif(d.error, ''), j.last_error) AS last_error
), gone AS (
    SELECT e.id, e.fence, e.run_at, e.created_at, e.attempts, e.max_attempts, e.snoozes, e.priority,
           e.status, e.queue, e.kind, e.worker_id, e.payload, e.progress, e.last_error
    FROM ended AS e
    UNION ALL
    SELECT l.id, l.fence, l.run_at, l.created_at, l.attempts, l.max_attempts, l.snoozes, l.priority,
           l.status, l.queue, l.kind, l.worker_id, l.payload, l.progress, l.last_error
    FROM locked AS l
), kept AS (` + sqlKeep + `
), rung AS (
    SELECT {{schema}}.ring(back.queue, min(back.run_at)) FROM back GROUP BY back.queue
)
-- Most are stored, and these are only counted: a row for each would cost as much
-- as a tenth of all else.
SELECT 0::bigint, 'stored', (SELECT count(*) FROM ended) + (SELECT count(*) FROM d),
       (SELECT count(*) FROM rung) -- or the bells would not be rung
UNION ALL
SELECT o.n, CASE
           -- An earlier call whose answer was lost, or the handler's own transaction.
           -- As scalars, not EXISTS, which the planner may turn into one hash of
           -- the whole table.
           WHEN (SELECT true FROM {{schema}}.finished AS f WHERE f.id = o.id AND f.fence = o.fence LIMIT 1) THEN 'stored'
           WHEN (SELECT true FROM {{schema}}.jobs AS j WHERE j.id = o.id AND j.fence = o.fence) THEN 'busy'
           WHEN ` + sqlGone + ` THEN 'gone'
           ELSE 'lost'
       END, 0, 0
FROM rest AS o
WHERE o.n <> ALL (ARRAY(SELECT d.n FROM d))`

// sqlClose deletes the rows of claims $1 in which no job runs, whoever says so.
// A row that somebody holds, who is looking into it, is left to him.
const sqlClose = `
DELETE FROM {{schema}}.claims AS c
WHERE c.id = ANY (ARRAY(
    SELECT k.id
    FROM {{schema}}.claims AS k
    WHERE k.id = ANY ($1::bigint[])
      AND (SELECT true FROM {{schema}}.jobs AS j WHERE j.id = ANY (k.ids) AND j.status = 'running' LIMIT 1) IS NULL
    FOR UPDATE SKIP LOCKED))`

// sqlGone says that the job of the claim o has left no trace.
const sqlGone = `(SELECT true FROM {{schema}}.jobs AS j WHERE j.id = o.id) IS NULL
                AND (SELECT true FROM {{schema}}.finished AS f WHERE f.id = o.id LIMIT 1) IS NULL`

// sqlKeep moves the rows of the CTE "gone" to finished, each for as long as
// its queue and its outcome say.
const sqlKeep = `
    INSERT INTO {{schema}}.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes,
        priority, status, queue, kind, worker_id, payload, progress, last_error)
    SELECT g.id, g.fence, g.run_at, g.created_at,
           clock_timestamp() + CASE g.status WHEN 'done' THEN coalesce(q.keep, '24 hours')
                                             WHEN 'dead' THEN '30 days' ELSE '24 hours' END,
           g.attempts, g.max_attempts, g.snoozes,
           g.priority, g.status, g.queue, g.kind, g.worker_id, g.payload, g.progress, g.last_error
    FROM gone AS g LEFT JOIN {{schema}}.queues AS q ON q.name = g.queue
    WHERE g.status <> 'done' OR q.keep IS NULL OR q.keep > '0'`

// Finish stores what became of claims, all in one commit, and says for each,
// in the order given, whether it was stored. A claim may be named only once.
//
// It may be called again with the same outcomes after an error. What was
// stored the first time is then found in finished and reported as stored; a
// claim that went back to ready is reported as lost, a done job of a queue that
// keeps none as gone.
//
// If the database refuses a value, the rest is stored without it: the results
// are valid, that outcome is Busy, and the error wraps ErrRejected.
func (t *Table) Finish(ctx context.Context, db DB, outcomes []Outcome) ([]Result, error) {
	if len(outcomes) == 0 {
		return nil, nil
	}
	results, err := t.finish(ctx, db, outcomes, false)
	if isLockTimeout(err) {
		results, err = t.finish(ctx, db, outcomes, true)
	}
	if err == nil || !isDataError(err) {
		return results, classify("finish", err)
	}
	if len(outcomes) == 1 {
		return []Result{Busy}, fmt.Errorf("finish job %d: %w: %w", outcomes[0].ID, ErrRejected, err)
	}
	half := len(outcomes) / 2
	first, err1 := t.Finish(ctx, db, outcomes[:half])
	if err1 != nil && !errors.Is(err1, ErrRejected) {
		return nil, err1
	}
	second, err2 := t.Finish(ctx, db, outcomes[half:])
	if err2 != nil && !errors.Is(err2, ErrRejected) {
		return nil, err2
	}
	return append(first, second...), errors.Join(err1, err2)
}

// finish locks all rows first if it is to wait for none.
func (t *Table) finish(ctx context.Context, db DB, outcomes []Outcome, locking bool) ([]Result, error) {
	b := onTrip(t, db)
	a := t.tell(b, outcomes, locking)
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	return a.results, nil
}

// answers are what the database makes of outcomes that are queued onto a batch.
type answers struct{ results []Result }

// tell queues outcomes. Their results count once the batch is closed without an
// error.
func (t *Table) tell(b *pgx.Batch, outcomes []Outcome, locking bool) *answers {
	n := len(outcomes)
	ids, fences := make([]int64, n), make([]int64, n)
	var verbs, texts []string
	var delays, closed []int64
	for i, o := range outcomes {
		if o.Closes != 0 {
			closed = append(closed, o.Closes)
		}
		ids[i], fences[i] = o.ID, o.Fence
		verbs = set(verbs, i, n, string(o.Verb), string(Done))
		delays = set(delays, i, n, min(max(o.Delay, 0), maxDelay).Microseconds(), 0)
		texts = set(texts, i, n, payload.CleanText(o.Error, maxErrorBytes), "")
	}
	a := &answers{results: slices.Repeat([]Result{Stored}, n)}
	b.Queue(t.sql(sqlFinish), ids, fences, verbs, delays, texts, locking).Query(a.read)
	if len(closed) > 0 {
		// A statement of its own, which sees what the one before has done.
		b.Queue(t.sql(sqlClose), closed)
	}
	return a
}

// set sets the i-th value of a column of n that is nil as long as all of them are
// the usual one.
func set[T comparable](column []T, i, n int, value, usual T) []T {
	if column == nil && value != usual {
		column = slices.Repeat([]T{usual}, n)
	}
	if column != nil {
		column[i] = value
	}
	return column
}

// read takes the answers to the outcomes that were not stored just now. The row
// for all others says how many these are; it may come at any place.
func (a *answers) read(rows pgx.Rows) error {
	var verdict word
	var place, stored, rung int64
	told := 0
	into := []any{&place, &verdict, &stored, &rung}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if place == 0 {
			told += int(stored)
			continue
		}
		a.results[place-1] = resultOf(verdict)
		told++
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if told != len(a.results) {
		return fmt.Errorf("%d answers to %d outcomes", told, len(a.results))
	}
	return nil
}

func resultOf(verdict word) Result {
	switch verdict {
	case "stored":
		return Stored
	case "busy":
		return Busy
	case "gone":
		return Gone
	}
	return Lost
}

// sqlComplete ends one claim as done, in a transaction of the caller's. Unlike
// Finish it waits for the row: whoever holds it decides first, and the fence
// is looked at again afterwards.
const sqlComplete = `
WITH l AS MATERIALIZED (
    SELECT j.id FROM {{schema}}.jobs AS j WHERE j.id = $1::bigint AND j.fence = $2::bigint FOR UPDATE
), gone AS (
    DELETE FROM {{schema}}.jobs AS j
    WHERE j.id = ANY (ARRAY(SELECT l.id FROM l))
    RETURNING j.id, j.fence, j.run_at, j.created_at, j.attempts, j.max_attempts, j.snoozes, j.priority,
              'done' AS status, j.queue, j.kind, j.worker_id, j.payload, j.progress, j.last_error
), kept AS (` + sqlKeep + `
)
SELECT EXISTS (SELECT FROM gone)
    OR EXISTS (SELECT FROM {{schema}}.finished AS f
               WHERE f.id = $1::bigint AND f.fence = $2::bigint AND f.status = 'done')`

// CompleteTx ends the claim as done when the caller's transaction commits. It
// returns ErrLeaseLost, and has changed nothing, if the claim is over. A
// second call under the same fence changes nothing and returns nil, except in
// a queue that keeps no done jobs.
//
// Above READ COMMITTED, call it first in the transaction: the extension of the
// lease is a concurrent update, after which a transaction that began before it
// gets a serialization failure.
func (t *Table) CompleteTx(ctx context.Context, tx pgx.Tx, l Lease) error {
	return completed(l, tx.QueryRow(ctx, t.sql(sqlComplete), l.ID, l.Fence))
}

// CompleteSQLTx is CompleteTx for a transaction of database/sql.
func (t *Table) CompleteSQLTx(ctx context.Context, tx *sql.Tx, l Lease) error {
	return completed(l, tx.QueryRowContext(ctx, t.sql(sqlComplete), l.ID, l.Fence))
}

func completed(l Lease, row interface{ Scan(...any) error }) error {
	var done bool
	if err := row.Scan(&done); err != nil {
		return classify(fmt.Sprintf("complete job %d", l.ID), err)
	}
	if !done {
		return fmt.Errorf("complete job %d: %w", l.ID, ErrLeaseLost)
	}
	return nil
}
