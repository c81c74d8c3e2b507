package claim

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// sqlPriorities lists the five priorities, as the table's CHECK does, first the
// one that is claimed first.
const sqlPriorities = `(VALUES (-2::smallint), (-1::smallint), (0::smallint), (1::smallint), (2::smallint)) AS p (priority)`

// sqlUnpaused lets nothing through while queue $1 is paused. It refers to no
// row, so it is asked once, by the queue's key, before any job is looked at.
// Since the claim itself asks, a pause holds everywhere from its commit on,
// whoever was told of it.
const sqlUnpaused = `(SELECT q.paused_at FROM {{schema}}.queues AS q WHERE q.name = $1::text) IS NULL`

// sqlUnspent lets through the jobs r whose fence can count on: by the claim, and
// once more when that claim is over. A producer may give a job any fence that
// the table takes, and one that cannot count on would spoil each claim, and
// each outcome, that the job is in. So nobody takes it, nor takes it for due;
// the doctor names it.
const sqlUnspent = `r.fence < 4611686018427387902`

// xmax, on the row itself, is the number of the last transaction that has locked it
// or changed it into another; 0: none has. It is xmin, the number of the one that
// wrote this row, if that one has locked it before, as all do here that claim a job,
// extend its lease or give it back: then nobody has touched it since. Of a row that
// several have locked at once xmax is a number of another kind, which is that of xmin
// only by an unlikely chance.

// sqlOldest is the age of the oldest transaction that was open when the statement
// began. Whoever has locked a row and is older is done.
const sqlOldest = `(SELECT age(pg_snapshot_xmin(pg_current_snapshot())::xid))`

// sqlClaim takes up to $3 due jobs of queue $1, in order of priority, run_at
// and id, for worker $5 and a lease of $4 microseconds. In each of the five
// priorities it begins behind the mark whose run_at is in $6 and id in $7.
//
// It changes no column of an index, so that an index is not changed either; see
// migration 004. Where the jobs are whose lease is over is told by the row of
// claims that goes along, whose id is returned with each job.
const sqlClaim = `
WITH chosen AS MATERIALIZED (
    -- As an array the choice is made once, whatever plan the server takes;
    -- "id IN (SELECT … LIMIT)" may run it again for every row and so take
    -- more than the limit.
    SELECT ARRAY(
        SELECT c.id
        FROM unnest('{-2,-1,0,1,2}'::smallint[], $6::timestamptz[], $7::bigint[]) AS p (priority, from_run_at, from_id)
        -- Per priority the index is walked in order and each row locked as it
        -- comes, until the outer LIMIT has enough: exactly as many as are taken.
        CROSS JOIN LATERAL (
            SELECT r.id
            FROM {{schema}}.jobs AS r
            WHERE r.queue = $1::text AND r.priority = p.priority
              AND r.status = 'ready' AND r.run_at <= (SELECT clock_timestamp())
              -- Not from the first entry of the index: those of jobs that run are
              -- there, and those of jobs that have ended stay for as long as
              -- somebody's snapshot does. As a pair, since one INSERT may give all
              -- its jobs the same run_at.
              AND (r.run_at, r.id) > (p.from_run_at, p.from_id)
              AND ` + sqlUnspent + `
              AND ($2::text[] IS NULL OR r.kind = ANY ($2::text[]))
              -- In the thick of a backlog, not those that somebody is claiming, or
              -- was when this statement began: to try to lock such a job costs ten
              -- times as much as to read it; and where its claim has just been
              -- committed the lock is taken, and keeps its worker from ending it
              -- until this claim is committed too. Some are passed over that
              -- somebody has held a moment ago; enough is left.
              AND ($8::boolean IS NOT TRUE OR r.xmax IN ('0'::xid, r.xmin) OR age(r.xmax) > ` + sqlOldest + `)
            ORDER BY r.run_at, r.id
            LIMIT $3::bigint
            -- NO KEY: a foreign key to the job does not stand in the way.
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS c
        WHERE ` + sqlUnpaused + `
        LIMIT $3::bigint) AS ids
), written AS (
    -- By the time at which the statement began: no lease ends before that.
    INSERT INTO {{schema}}.claims (look_at, worker_id, ids)
    SELECT statement_timestamp() + $4::bigint * interval '1 microsecond', $5::text, h.ids
    FROM chosen AS h WHERE cardinality(h.ids) > 0
    RETURNING id
)
UPDATE {{schema}}.jobs AS j SET
    status = 'running',
    -- Counted now, not when the handler fails: a job that takes its process
    -- down with it must run out of attempts too.
    attempts = j.attempts + 1,
    -- clock_timestamp(), not now(): after a wait the lease would be born old.
    lease_until = clock_timestamp() + $4::bigint * interval '1 microsecond',
    -- From the database's clock, so that a server that lost its last commits
    -- does not give the same fence again; always above the last one, so that a
    -- clock that steps back does no harm.
    fence = greatest(j.fence + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
    worker_id = $5::text
WHERE j.id = ANY ((SELECT h.ids FROM chosen AS h)::bigint[])
  -- The state again, of the row itself: this is what makes two claims of one
  -- job impossible, whatever was chosen above.
  AND j.status = 'ready'
RETURNING j.id, j.fence, j.queue, j.kind, j.priority, j.payload, j.progress, j.run_at, j.created_at, j.attempts, j.max_attempts,
          (SELECT w.id FROM written AS w)`

// sqlNext says in how many microseconds the earliest ready job of the queue
// that is left is due: 0 if it was due when this transaction began, which the
// claim before it in the same transaction would have taken unless somebody
// held it. One that came due since is not held, but due in the smallest time.
// In a paused queue nothing will be due. It begins at the same marks ($3, $4).
//
// It also says how many microseconds it took: what it costs to begin there,
// without the rows and the commit. Where pgx sends all of a batch as one query,
// what comes before counts too.
const sqlNext = `
SELECT CASE WHEN min(n.run_at) <= now() THEN 0
            WHEN min(n.run_at) > now() -- and not ELSE: there may be none
            THEN greatest(1, (extract(epoch FROM min(n.run_at) - clock_timestamp()) * 1000000)::bigint) END,
       (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint
FROM unnest('{-2,-1,0,1,2}'::smallint[], $3::timestamptz[], $4::bigint[]) AS p (priority, from_run_at, from_id)
CROSS JOIN LATERAL (
    SELECT r.run_at
    FROM {{schema}}.jobs AS r
    WHERE r.queue = $1::text AND r.priority = p.priority AND r.status = 'ready'
      AND (r.run_at, r.id) > (p.from_run_at, p.from_id)
      AND ` + sqlUnspent + `
      AND ($2::text[] IS NULL OR r.kind = ANY ($2::text[]))
    ORDER BY r.run_at, r.id
    LIMIT 1
) AS n
WHERE ` + sqlUnpaused

// Claim takes due jobs for the given worker, in one commit. No job is in two
// claims unless its lease ran out in between. The rows are the caller's once
// Claim has returned: only then has the claim been committed.
func (t *Table) Claim(ctx context.Context, db DB, r Request, lease time.Duration, worker string) (Claimed, error) {
	b := onTrip(t, db)
	a := t.ask(b, r, lease, worker)
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return Claimed{}, classify("claim", err)
	}
	return a.claimed(), nil
}

// asked is a claim that is queued onto a batch, and what it brings.
type asked struct {
	Request
	rows []Row
	next *int64 // in microseconds; nil: there is none
	walk int64  // likewise
}

// ask queues a claim and the look at what is left behind it.
func (t *Table) ask(b *pgx.Batch, r Request, lease time.Duration, worker string) *asked {
	a := &asked{Request: r, rows: r.Into[:0]}
	runAts, ids := r.Look.From.columns()
	b.Queue(t.sql(sqlClaim), r.Queue, r.Kinds, int64(r.Limit), lease.Microseconds(), worker, runAts, ids, r.Look.untouched).Query(a.read)
	if !r.Look.uncounted {
		b.Queue(t.sql(sqlNext), r.Queue, r.Kinds, runAts, ids).QueryRow(func(row pgx.Row) error { return row.Scan(&a.next, &a.walk) })
	}
	t.announce(b, r)
	return a
}

// read takes the rows that a claim brings. There may be hundreds, so nothing is
// made anew for each but what the row keeps.
func (a *asked) read(rows pgx.Rows) error {
	var r Row
	var queue, kind word
	into := []any{
		&r.ID, &r.Fence, &queue, &kind, &r.Priority, (*[]byte)(&r.Payload), (*[]byte)(&r.Progress),
		&r.RunAt, &r.CreatedAt, &r.Attempt, &r.MaxAttempts, &r.Claim,
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		r.Queue, r.Kind = string(queue), string(kind)
		if len(a.rows) == few { // so there are many, most likely as many as asked for
			a.rows = slices.Grow(a.rows, max(min(a.Limit, many)-few, 0))
		}
		a.rows = append(a.rows, r)
	}
	return rows.Err()
}

// few and many bound what is set aside for the rows of a claim.
const (
	few  = 8
	many = 512
)

// claimed is the answer, once the batch is closed without an error.
func (a *asked) claimed() Claimed {
	// RETURNING promises no order.
	slices.SortFunc(a.rows, func(x, y Row) int {
		return cmp.Or(cmp.Compare(x.Priority, y.Priority), x.RunAt.Compare(y.RunAt), cmp.Compare(x.ID, y.ID))
	})
	claimed := Claimed{Rows: a.rows, Walk: micros(a.walk)}
	held := a.next != nil && *a.next <= 0 // or only passed over, and the next claim knows
	if a.next != nil && len(a.rows) < a.Limit && !(held && a.Look.untouched) {
		claimed.Next, claimed.HasNext = micros(*a.next), true
	}
	return claimed
}

// word is a text that is mostly the one that it was in the row before.
type word string

// ScanBytes implements pgtype.BytesScanner.
func (w *word) ScanBytes(text []byte) error {
	if string(*w) != string(text) {
		*w = word(text)
	}
	return nil
}

// micros makes a Duration of microseconds, as far as one reaches: 292 years. A
// job may be due in the year 9999.
func micros(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/1000)) * time.Microsecond
}
