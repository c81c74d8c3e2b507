package claim

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// A promise is that somebody looks into a queue every few milliseconds until a
// certain time, in microseconds since 1970 by the database's clock. The trigger
// of migration 003 is silent while it holds.
//
// Each statement of this file may be sent again, and any process may send any of
// them: a promise too few costs bells, and whoever has believed one too many,
// and so been silent, holds the lock of the queue's slot until he commits.

// sqlHasty opens the transaction of these statements. A promise that a crash
// takes along is none, and the lock that a commit with a notification holds is
// not to be held while it is flushed.
const sqlHasty = `SELECT set_config('synchronous_commit', 'off', true), set_config('jit', 'off', true), set_config('lock_timeout', '1s', true)`

// sqlSeatRow and sqlSeat give queue $1 a slot, unless it has one. It is kept for
// good; when there is none left, the sequence fails.
const sqlSeatRow = `INSERT INTO {{schema}}.queues (name) VALUES ($1::text) ON CONFLICT (name) DO NOTHING`

const sqlSeat = `
UPDATE {{schema}}.queues AS q SET quiet_slot = nextval({{quiet_slots}}::regclass)
WHERE q.name = $1::text AND q.quiet_slot IS NULL`

// sqlPromise promises to look into queue $1 for the next $4 microseconds, and
// tells the others. $5 is what the caller has promised before: that may be
// renewed. While somebody else's promise holds it is left alone; one that lies
// too far ahead to be true, since the clock was set back, holds no more than for
// the trigger.
//
// Who can run the kinds $2 promises nothing if a worker of the queue, other than
// himself ($3), can run others: it would hear of its jobs too late. Rows of
// workers that have died count for as long as they stay.
const sqlPromise = `
WITH s AS MATERIALIZED (
    SELECT q.quiet_slot AS slot, q.bell = 'auto' AND q.paused_at IS NULL AS wanted,
           coalesce({{schema}}.promised(q.quiet_slot), 0) AS held,
           (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now
    FROM {{schema}}.queues AS q WHERE q.name = $1::text
), w AS MATERIALIZED (
    SELECT count(*) AS others,
           coalesce(bool_and($2::text[] IS NULL OR coalesce(w.kinds <@ $2::text[], false)), true) AS served
    FROM {{schema}}.workers AS w WHERE w.worker_id <> $3::text AND w.queues ? $1::text
), p AS MATERIALIZED (
    SELECT {{schema}}.promise(s.slot, s.now + $4::bigint) AS until
    FROM s CROSS JOIN w
    WHERE s.slot IS NOT NULL AND s.wanted AND w.served
      AND (s.held = $5::bigint OR s.held NOT BETWEEN s.now AND s.now + 3000000)
), told AS MATERIALIZED (
    SELECT {{schema}}.hush($1::text, p.until) FROM p
)
SELECT s.slot IS NOT NULL, coalesce(p.until, 0),
       coalesce(CASE WHEN s.held <> $5::bigint AND s.held BETWEEN s.now AND s.now + 3000000 THEN s.held END, 0),
       w.others, (SELECT count(*) FROM told)
FROM w LEFT JOIN s ON true LEFT JOIN p ON true`

// Promised is the answer to a Promise.
type Promised struct {
	Until int64 // what is promised now; 0: nothing
	// Held is what holds of somebody else's promise; 0: nothing.
	Held int64
	// Others is how many other workers of the queue are known.
	Others int
	// Seated says that the queue has a slot, without which nothing can be
	// promised.
	Seated bool
}

// Promise promises, if it may, that the worker of that id, who can run the kinds
// of the request, looks into its queue every few milliseconds for the given
// time. before is what it has promised last, 0 if nothing.
func (t *Table) Promise(ctx context.Context, db DB, r Request, worker string, length time.Duration, before int64) (p Promised, err error) {
	b := t.hasty()
	var told int64
	b.Queue(t.sql(sqlPromise), r.Queue, r.Kinds, worker, length.Microseconds(), before).QueryRow(func(row pgx.Row) error {
		return row.Scan(&p.Seated, &p.Until, &p.Held, &p.Others, &told)
	})
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return Promised{}, classify("promise to look", err)
	}
	return p, nil
}

// Seat gives a queue one of the slots in which promises are made.
func (t *Table) Seat(ctx context.Context, db DB, queue string) error {
	b := t.hasty()
	b.Queue(t.sql(sqlSeatRow), queue)
	b.Queue(t.sql(sqlSeat), queue)
	return classify("give the queue a slot", db.SendBatch(ctx, b).Close())
}

// sqlRevoke takes back the promise $2 for queue $1, unless there is another.
const sqlRevoke = `
SELECT {{schema}}.promise(q.quiet_slot, 0)
FROM {{schema}}.queues AS q
WHERE q.name = $1::text AND {{schema}}.promised(q.quiet_slot) = $2::bigint`

// sqlAlone asks whether anybody is left who has been silent because of a promise
// for queue $1 and has not committed: they hold the lock of the slot, and those
// who come now ring. It does not wait for them. 0, or until when somebody else
// promises.
const sqlAlone = `
SELECT pg_try_advisory_xact_lock(s.class, s.slot),
       CASE WHEN s.held BETWEEN s.now AND s.now + 3000000 THEN s.held ELSE 0 END
FROM (SELECT q.tableoid::integer AS class, q.quiet_slot AS slot, coalesce({{schema}}.promised(q.quiet_slot), 0) AS held,
             (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now
      FROM {{schema}}.queues AS q WHERE q.name = $1::text AND q.quiet_slot IS NOT NULL) AS s`

// Revoked is the answer to a Revoke.
type Revoked struct {
	// Alone: every transaction that was silent is over. Whoever looks from now
	// on sees all that they have inserted, and everything later rings.
	Alone bool
	// Held is what holds of somebody else's promise; 0: nothing. What the
	// silent ones insert is his to find, too.
	Held int64
}

// Revoke takes back a promise of the queue, one's own or that of somebody who
// does not answer any more. If it is not alone it has to be repeated, with looks
// in between; once it is, the look that begins after it is the last one.
func (t *Table) Revoke(ctx context.Context, db DB, queue string, promise int64) (r Revoked, err error) {
	b := t.hasty()
	b.Queue(t.sql(sqlRevoke), queue, promise)
	// A statement of its own: the lock is asked for when everybody can see that
	// the promise is gone.
	b.Queue(t.sql(sqlAlone), queue).Query(func(rows pgx.Rows) error {
		r.Alone = true // without a slot nobody was silent
		_, err := pgx.ForEachRow(rows, []any{&r.Alone, &r.Held}, func() error { return nil })
		return err
	})
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return Revoked{}, classify("revoke a promise", err)
	}
	return r, nil
}

// sqlRingNext rings for the earliest ready job of queue $1, of whatever kind,
// that nobody holds.
const sqlRingNext = `
SELECT {{schema}}.ring($1::text, n.run_at)
FROM (SELECT min(m.run_at) AS run_at
      FROM ` + sqlPriorities + `
      CROSS JOIN LATERAL (
          SELECT r.run_at
          FROM {{schema}}.jobs AS r
          WHERE r.queue = $1::text AND r.priority = p.priority AND r.status = 'ready' AND ` + sqlUnspent + `
          ORDER BY r.run_at, r.id
          LIMIT 1
      ) AS m) AS n
WHERE n.run_at IS NOT NULL`

// RingNext rings for the earliest ready job of a queue, now or later, so that
// others take it, or set their alarms: in silence they have heard of none.
func (t *Table) RingNext(ctx context.Context, db DB, queue string) error {
	b := t.hasty()
	b.Queue(t.sql(sqlRingNext), queue)
	return classify("ring for the next job", db.SendBatch(ctx, b).Close())
}

// sqlRing rings for queue $1 whatever is in it.
const sqlRing = `SELECT {{schema}}.ring($1::text)`

// Ring wakes everybody who works the queue.
func (t *Table) Ring(ctx context.Context, db DB, queue string) error {
	b := t.hasty()
	b.Queue(t.sql(sqlRing), queue)
	return classify("ring", db.SendBatch(ctx, b).Close())
}

// sqlYield ends the promise $2 for queue $1 now, without revoking it, or undoes
// that: the first of the others to see that it is over does what is left to be
// done. They are rung as well, so that they look at once.
const sqlYield = `
SELECT {{schema}}.hush(q.name, {{schema}}.promise(q.quiet_slot, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)),
       {{schema}}.ring(q.name)
FROM {{schema}}.queues AS q
WHERE q.name = $1::text AND {{schema}}.promised(q.quiet_slot) IN ($2::bigint, 0)`

// Yield leaves a promise to others, for a process that stops: it cannot wait for
// those who were silent.
func (t *Table) Yield(ctx context.Context, db DB, queue string, promise int64) error {
	b := t.hasty()
	b.Queue(t.sql(sqlYield), queue, promise)
	return classify("leave a promise to others", db.SendBatch(ctx, b).Close())
}

// sqlPromises lists the promises for the queues $1 that were not revoked.
const sqlPromises = `
SELECT q.name, p.until
FROM {{schema}}.queues AS q CROSS JOIN LATERAL (SELECT {{schema}}.promised(q.quiet_slot) AS until OFFSET 0) AS p
WHERE q.name = ANY ($1::text[]) AND q.quiet_slot IS NOT NULL AND p.until > 0`

// Promises returns the promises for these queues that hold, or were never
// revoked because who made them has died or been stopped.
func (t *Table) Promises(ctx context.Context, db DB, queues []string) (map[string]int64, error) {
	rows, err := db.Query(ctx, t.sql(sqlPromises), queues)
	if err != nil {
		return nil, classify("list promises", err)
	}
	promises := make(map[string]int64)
	var name string
	var until int64
	_, err = pgx.ForEachRow(rows, []any{&name, &until}, func() error {
		promises[name] = until
		return nil
	})
	if err != nil {
		return nil, classify("list promises", err)
	}
	return promises, nil
}

func (t *Table) hasty() *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue(t.sql(sqlHasty))
	return b
}
