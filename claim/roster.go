package claim

// Suspect is a worker whose lock nobody holds.
type Suspect struct {
	Worker string
	Key    int32
	// Moved: the lock was taken on another server, or before this one was
	// started, so the worker has not been here since.
	Moved bool
}

// Died is a worker that is dead, and how many of its jobs were reaped.
type Died struct {
	Worker string
	Jobs   int
}

// sqlRoster is the part of the tick that looks at the other workers. The tick's
// own worker is $10; $8 and $9 are the ids and keys of those it takes for dead.
//
// holders: who holds jobs that run.
//
// others: everybody else's row, the holders first.
//
// silent: those whose lock nobody holds. To ask is to take the lock, shared,
// until the commit; it is the limit that keeps the server's table of locks
// from running over after many deaths.
//
// dead: of the workers that the caller names, those whose row has that key
// still and whose lock is free still. The row is locked, so that a worker that
// is writing it anew is passed over, and one that has just done so is seen with
// its new key. The lock is asked for by the key that was given, which bounds
// how many are taken under any plan.
//
// roster: what the tick returns. Of two workers the one with the smaller key is
// first; those without a lock come after those with one.
const sqlRoster = `holders AS MATERIALIZED (
    SELECT DISTINCT j.worker_id
    FROM {{schema}}.jobs AS j
    WHERE (SELECT true FROM {{schema}}.workers AS w WHERE w.worker_id <> $10::text LIMIT 1) -- alone: nothing is read
      AND j.status = 'running' AND j.lease_until >= (SELECT e.lease FROM edge AS e)
      AND j.worker_id <> $10::text
), others AS MATERIALIZED (
    SELECT w.worker_id, w.lock_key, w.tableoid::integer AS class, w.server_start, w.written_at,
           h.worker_id IS NOT NULL AS holds
    FROM {{schema}}.workers AS w LEFT JOIN holders AS h ON h.worker_id = w.worker_id
    WHERE w.worker_id <> $10::text
    ORDER BY h.worker_id IS NULL, w.lock_key
), silent AS MATERIALIZED (
    SELECT o.worker_id
    FROM others AS o
    WHERE pg_try_advisory_xact_lock_shared(o.class, o.lock_key)
    LIMIT 200
), dead AS MATERIALIZED (
    SELECT w.worker_id
    FROM unnest($8::text[], $9::integer[]) AS d (worker_id, lock_key)
    JOIN {{schema}}.workers AS w ON w.worker_id = d.worker_id AND w.lock_key = d.lock_key
    WHERE w.worker_id <> $10::text
      AND pg_try_advisory_xact_lock_shared(w.tableoid::integer, d.lock_key)
    FOR UPDATE OF w SKIP LOCKED
), roster AS MATERIALIZED (
    SELECT coalesce(json_agg(json_build_object('worker', o.worker_id, 'key', o.lock_key,
                                               'moved', o.server_start <> pg_postmaster_start_time()))
                    FILTER (WHERE o.holds AND s.worker_id IS NOT NULL), '[]') AS silent,
           count(*) FILTER (WHERE CASE WHEN s.worker_id IS NOT NULL THEN false
                                       WHEN own.lock_key IS NOT NULL THEN o.lock_key < own.lock_key
                                       ELSE o.lock_key IS NOT NULL OR o.worker_id < $10::text END) AS rank,
           coalesce(bool_or(o.holds AND o.lock_key IS NOT NULL AND s.worker_id IS NULL), false) AS others,
           coalesce(bool_or(own.worker_id IS NOT NULL), false) AS registered,
           coalesce(bool_or(NOT o.holds AND CASE WHEN o.lock_key IS NULL
                                                 THEN o.written_at < clock_timestamp() - interval '10 minutes'
                                                 ELSE o.written_at < clock_timestamp() - interval '1 minute' AND s.worker_id IS NOT NULL
                                            END), false) AS stale
    FROM (VALUES (true)) AS one (row)
    LEFT JOIN {{schema}}.workers AS own ON own.worker_id = $10::text
    LEFT JOIN others AS o ON true
    LEFT JOIN silent AS s ON s.worker_id = o.worker_id
), `

// sqlNoRoster knows nobody, and gives the parameters their types.
const sqlNoRoster = `dead AS (
    SELECT d.worker_id
    FROM unnest($8::text[], $9::integer[]) AS d (worker_id, lock_key)
    WHERE false AND $10::text = ''
), roster AS (
    SELECT '[]'::json AS silent, 0::bigint AS rank, false AS others, false AS registered, false AS stale
), `
