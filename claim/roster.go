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
// others: everybody else's row.
//
// silent: those whose lock nobody holds. To ask is to take the lock, shared,
// until the commit; it is the limit that keeps the server's table of locks
// from running over after many deaths. More of them have their turn when the
// rows of these are gone.
//
// doubtful: the silent ones, and those without a lock that have not written for
// long. Most often nobody, and then no job is read for them.
//
// holders: who of the doubtful holds jobs that run. By the ids of their claims, or the
// planner would think that jobs are looked up for all claims, and for that price
// have the whole tick compiled, which takes longer than any tick.
//
// dead: of the workers that the caller names, those whose row has that key
// still and whose lock is free still. The row is locked, so that a worker that
// is writing it anew is passed over, and one that has just done so is seen with
// its new key. The lock is asked for by the key that was given, which bounds
// how many are taken under any plan.
//
// peers: who else works each of the queues and can run the same kinds, dead or
// not, unless the lock shows it. Not more of a queue than take turns at claiming.
//
// roster: what the tick returns. Of two workers the one with the smaller key is
// first; those without a lock come after those with one. Whether any of the
// others works is asked of the claims: one that has just ended counts, until its
// row is deleted.
const sqlRoster = `others AS MATERIALIZED (
    SELECT w.worker_id, w.lock_key, w.tableoid::integer AS class, w.server_start, w.written_at, w.queues, w.kinds, w.writes_claims
    FROM {{schema}}.workers AS w
    WHERE w.worker_id <> $10::text
), silent AS MATERIALIZED (
    SELECT o.worker_id
    FROM others AS o
    WHERE pg_try_advisory_xact_lock_shared(o.class, o.lock_key)
    LIMIT 200
), doubtful AS MATERIALIZED (
    SELECT o.worker_id, o.lock_key, o.server_start, o.written_at
    FROM others AS o
    WHERE o.worker_id IN (SELECT s.worker_id FROM silent AS s)
       OR o.lock_key IS NULL AND o.written_at < clock_timestamp() - interval '10 minutes'
), holders AS MATERIALIZED (
    SELECT DISTINCT c.worker_id
    FROM {{schema}}.claims AS c
    WHERE c.id = ANY (ARRAY(
          SELECT k.id FROM {{schema}}.claims AS k
          WHERE (SELECT count(*) FROM doubtful) > 0
            AND k.worker_id = ANY (ARRAY(SELECT f.worker_id FROM doubtful AS f))))
      AND (SELECT true FROM {{schema}}.jobs AS j
           WHERE j.id = ANY (c.ids) AND j.status = 'running' AND j.worker_id = c.worker_id
             AND j.lease_until >= (SELECT e.lease FROM edge AS e)
           LIMIT 1)
), dead AS MATERIALIZED (
    SELECT w.worker_id
    FROM unnest($8::text[], $9::integer[]) AS d (worker_id, lock_key)
    JOIN {{schema}}.workers AS w ON w.worker_id = d.worker_id AND w.lock_key = d.lock_key
    WHERE w.worker_id <> $10::text
      AND pg_try_advisory_xact_lock_shared(w.tableoid::integer, d.lock_key)
    FOR UPDATE OF w SKIP LOCKED
), live AS MATERIALIZED (
    SELECT o.worker_id, o.lock_key
    FROM others AS o
    WHERE o.lock_key IS NOT NULL AND o.worker_id NOT IN (SELECT s.worker_id FROM silent AS s)
), own AS MATERIALIZED (
    SELECT w.worker_id, w.lock_key FROM {{schema}}.workers AS w WHERE w.worker_id = $10::text
), peers AS MATERIALIZED (
    SELECT q.name AS queue, p.worker_id
    FROM unnest($1::text[]) AS q (name)
    CROSS JOIN LATERAL (
        SELECT o.worker_id
        FROM others AS o
        WHERE o.queues ? q.name AND o.kinds IS NOT DISTINCT FROM $2::text[]
          AND o.worker_id NOT IN (SELECT s.worker_id FROM silent AS s)
        -- The same for all who ask, as far as can be.
        ORDER BY o.worker_id
        LIMIT 100) AS p
), roster AS MATERIALIZED (
    SELECT (SELECT coalesce(json_agg(json_build_object('worker', f.worker_id, 'key', f.lock_key,
                                                       'moved', f.server_start <> pg_postmaster_start_time())), '[]')
            FROM doubtful AS f JOIN holders AS h ON h.worker_id = f.worker_id
            WHERE f.lock_key IS NOT NULL) AS silent,
           CASE WHEN (SELECT o.lock_key FROM own AS o) IS NOT NULL
                THEN (SELECT count(*) FROM live AS v WHERE v.lock_key < (SELECT o.lock_key FROM own AS o))
                ELSE (SELECT count(*) FROM live AS v)
                     + (SELECT count(*) FROM others AS o WHERE o.lock_key IS NULL AND o.worker_id < $10::text)
           END AS rank,
           coalesce((SELECT true
                     FROM {{schema}}.claims AS c
                     WHERE (SELECT count(*) FROM live) > 0
                       AND c.worker_id = ANY (ARRAY(SELECT v.worker_id FROM live AS v))
                     LIMIT 1), false) AS others,
           (SELECT count(*) FROM own) > 0 AS registered,
           (SELECT count(*) FROM doubtful AS f
            WHERE f.worker_id NOT IN (SELECT h.worker_id FROM holders AS h)
              AND f.written_at < clock_timestamp() - interval '1 minute') > 0 AS stale,
           (SELECT count(*) FROM others AS o WHERE NOT o.writes_claims) > 0 AS adopt
), `

// sqlNoRoster knows nobody, and gives the parameters their types.
const sqlNoRoster = `dead AS (
    SELECT d.worker_id
    FROM unnest($8::text[], $9::integer[]) AS d (worker_id, lock_key)
    WHERE false AND $10::text = ''
), peers AS (
    SELECT NULL::text AS queue, NULL::text AS worker_id WHERE false
), roster AS (
    SELECT '[]'::json AS silent, 0::bigint AS rank, false AS others, false AS registered, false AS stale, false AS adopt
), `
