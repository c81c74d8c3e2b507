package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Worker is what a process tells the others about itself.
type Worker struct {
	ID      string
	Version string         // of the program
	Queues  map[string]int // each queue that it works, with its slots there
	Kinds   []string       // kinds that it can run; nil means every kind
	Age     time.Duration  // since it started
}

// Presence says how others can tell that a registered worker lives.
type Presence struct {
	// Locked: the connection that registered holds a lock, which ends with it.
	// Otherwise only leases tell.
	Locked bool
	Key    int32 // of the lock
}

// lockTries bounds how many keys a Register tries. A key that is taken is one
// that a hand has taken, or the sequence was set back.
const lockTries = 5

// sqlRegister writes the row of worker $1 and, if $6, takes the lock that
// stands for it, in one statement: whoever sees the row with its key sees the
// lock held, or the end of the session that held it. A key is never taken
// again, so a lock that is free stays free, and nobody waits for one.
//
// The lock is of the session: class is the oid of the table, whose lowest 32
// bits are all that it has, and the key is from a sequence.
const sqlRegister = `
INSERT INTO {{schema}}.workers AS w (worker_id, lock_key, server_start, started_at, version, queues, kinds, writes_claims)
VALUES ($1::text,
        CASE WHEN $6::boolean THEN nextval({{worker_keys}}::regclass)::integer END,
        CASE WHEN $6::boolean THEN pg_postmaster_start_time() END,
        clock_timestamp() - $5::bigint * interval '1 microsecond',
        $2::text, $3::text::jsonb, $4::text[], true)
ON CONFLICT (worker_id) DO UPDATE SET
    lock_key = excluded.lock_key, server_start = excluded.server_start, written_at = clock_timestamp(),
    version = excluded.version, queues = excluded.queues, kinds = excluded.kinds,
    writes_claims = excluded.writes_claims
RETURNING coalesce(w.lock_key, 0), coalesce(pg_try_advisory_lock(w.tableoid::integer, w.lock_key), false)`

// Register writes the worker's row. With locks it takes the lock that tells
// others that the worker lives, for as long as the connection lives: db must
// be one connection that no pooler shares. It may be called again at any time,
// and must be on every new connection that is to stand for the worker.
func (t *Table) Register(ctx context.Context, db DB, w Worker, locks bool) (Presence, error) {
	slots := w.Queues
	if slots == nil {
		slots = map[string]int{}
	}
	queues, err := json.Marshal(slots)
	if err != nil {
		return Presence{}, fmt.Errorf("register worker %s: %w", w.ID, err)
	}
	var p Presence
	for range lockTries {
		b := inOneGo(t)
		b.Queue(t.sql(sqlRegister), w.ID, w.Version, string(queues), w.Kinds, w.Age.Microseconds(), locks).
			QueryRow(func(row pgx.Row) error { return row.Scan(&p.Key, &p.Locked) })
		if err := db.SendBatch(ctx, b).Close(); err != nil {
			return Presence{}, classify("register worker "+w.ID, err)
		}
		if p.Locked == locks {
			return p, nil
		}
	}
	// A key that somebody else holds would vouch for us after our death.
	p, err = t.Register(ctx, db, w, false)
	if err == nil {
		err = fmt.Errorf("register worker %s: somebody holds the locks of the last %d keys of the sequence worker_keys", w.ID, lockTries)
	}
	return p, err
}

const sqlUnregister = `DELETE FROM {{schema}}.workers AS w WHERE w.worker_id = $1::text`

// Unregister deletes the row of a worker that has stopped.
func (t *Table) Unregister(ctx context.Context, db DB, id string) error {
	b := inOneGo(t)
	b.Queue(t.sql(sqlUnregister), id)
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return classify("unregister worker "+id, err)
	}
	return nil
}

// SweepBatch bounds how many rows of workers one Sweep deletes.
const SweepBatch = 100

// sqlSweep deletes up to $1 rows of workers that are gone: whose lock is free,
// or, where there is none, who were not heard of for longer than any lives
// without writing again; and who hold no job that still has a lease. A claim of
// theirs may be there for longer, while others run its jobs. A worker that lives
// all the same writes its row again.
const sqlSweep = `
WITH holders AS MATERIALIZED (
    SELECT DISTINCT c.worker_id
    FROM {{schema}}.claims AS c
    WHERE (SELECT true FROM {{schema}}.jobs AS j
           WHERE j.id = ANY (c.ids) AND j.status = 'running' AND j.worker_id = c.worker_id
             AND j.lease_until >= (SELECT clock_timestamp())
           LIMIT 1)
)
DELETE FROM {{schema}}.workers AS w
WHERE w.worker_id = ANY (ARRAY(
    SELECT s.worker_id
    FROM {{schema}}.workers AS s
    -- In this order: to ask for a lock that is free is to take it, until the
    -- commit, and the server has room for a limited number of locks.
    WHERE CASE WHEN s.worker_id IN (SELECT h.worker_id FROM holders AS h) THEN false
               WHEN s.lock_key IS NULL THEN s.written_at < (SELECT clock_timestamp()) - interval '10 minutes'
               WHEN s.written_at < (SELECT clock_timestamp()) - interval '1 minute'
               THEN pg_try_advisory_xact_lock_shared(s.tableoid::integer, s.lock_key) END
    LIMIT $1::bigint
    FOR UPDATE SKIP LOCKED))`

// Sweep deletes rows that dead workers have left, at most SweepBatch of them,
// and returns how many it deleted.
func (t *Table) Sweep(ctx context.Context, db DB) (deleted int, err error) {
	b := inOneGo(t)
	b.Queue(t.sql(sqlSweep), int64(SweepBatch)).Exec(func(tag pgconn.CommandTag) error {
		deleted = int(tag.RowsAffected())
		return nil
	})
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return 0, classify("sweep", err)
	}
	return deleted, nil
}
