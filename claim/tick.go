package claim

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ReapBatch bounds how many expired leases one Tick ends, and PruneBatch how
// many finished rows one Prune deletes: statements stay short.
const (
	ReapBatch  = 500
	PruneBatch = 1000
)

// sqlTick is all that a process does because time has passed, in one statement
// for all its queues ($1) and kinds ($2).
//
// Reap: jobs whose lease is over, or whose worker is dead, go back as a failed
// attempt, with a later run_at, so that a job which hangs does not keep its
// place at the head; or end as dead when that was the last attempt. At most $3
// of them, passing over the first $7, and only leases that were to end before
// $6. They are found by their claims, see sqlDue. State, lease and fence are read
// under the row's lock and written in the same statement; a row that somebody
// holds, such as an open CompleteTx, is skipped. Recovery rests on the lease
// alone: who is dead only shortens the wait, and without the table of workers
// everything comes back.
//
// Look: when the earliest job of each queue is due, and when the next claim is
// to be looked into.
//
// Ring: token $5 on channel $4, for this process alone, as proof that it hears.
const sqlTick = sqlEdge + sqlRoster + sqlDue + sqlReap

// sqlTickByLeases is the same for a process that has no access to the table of
// workers, or is not to be in it.
const sqlTickByLeases = sqlEdge + sqlNoRoster + sqlDue + sqlReap

// sqlEdge tells the leases that are over, which end before it, from the others.
// A clock that has stepped forward since the caller last saw it, $6, ends no
// lease early.
const sqlEdge = `
WITH edge AS MATERIALIZED (
    SELECT least(clock_timestamp(), $6::timestamptz) AS lease
), `

const sqlReap = `back AS (
    UPDATE {{schema}}.jobs AS j SET
        status = 'ready', lease_until = NULL, worker_id = NULL,
        fence = j.fence + 1,
        -- 1 s × 2^(attempts − 1) ± 20 %, at most 1 h; the exponent is bounded first.
        -- A job whose worker has died for the first time waits a tenth of
        -- that: most often it is not the job's fault.
        run_at = clock_timestamp() + least(3600, (0.8 + 0.4 * random())
            * CASE WHEN j.attempts = 1 AND j.worker_id = ANY (ARRAY(SELECT d.worker_id FROM dead AS d)) THEN 0.1
                   ELSE power(2, least(j.attempts - 1, 12)) END) * interval '1 second',
        last_error = format(CASE WHEN j.worker_id = ANY (ARRAY(SELECT d.worker_id FROM dead AS d))
                                 THEN 'worker %s died in attempt %s of %s'
                                 ELSE 'lease of worker %s ran out in attempt %s of %s' END, j.worker_id, j.attempts, j.max_attempts)
    WHERE j.id = ANY (ARRAY(SELECT l.id FROM l WHERE l.attempts < l.max_attempts))
    RETURNING j.queue, j.run_at
), gone AS (
    DELETE FROM {{schema}}.jobs AS j
    WHERE j.id = ANY (ARRAY(SELECT l.id FROM l WHERE l.attempts >= l.max_attempts))
    -- Not the dead worker's fence: finding that one in finished would tell it
    -- that its own outcome was stored.
    RETURNING j.id, j.fence + 1 AS fence, j.run_at, j.created_at, j.attempts, j.max_attempts, j.snoozes, j.priority,
              'dead' AS status, j.queue, j.kind, j.worker_id, j.payload, j.progress,
              format(CASE WHEN j.worker_id = ANY (ARRAY(SELECT d.worker_id FROM dead AS d))
                          THEN 'worker %s died in attempt %s of %s, the last one'
                          ELSE 'lease of worker %s ran out in attempt %s of %s, the last one' END,
                     j.worker_id, j.attempts, j.max_attempts) AS last_error
), kept AS (` + sqlKeep + `
), rung AS (
    SELECT {{schema}}.ring(b.queue, min(b.run_at)) FROM back AS b GROUP BY b.queue
    UNION ALL
    SELECT pg_notify($4::text, $5::text)
)
SELECT q.name,
       -- Nothing is due in a paused queue, or it would be looked at all the time.
       CASE WHEN (SELECT s.paused_at FROM {{schema}}.queues AS s WHERE s.name = q.name) IS NULL THEN (extract(epoch FROM least(
           (SELECT min(n.run_at)
            FROM ` + sqlPriorities + `
            CROSS JOIN LATERAL (
                SELECT r.run_at FROM {{schema}}.jobs AS r
                WHERE r.queue = q.name AND r.priority = p.priority AND r.status = 'ready'
                  AND ` + sqlUnspent + `
                  AND ($2::text[] IS NULL OR r.kind = ANY ($2::text[]))
                ORDER BY r.run_at, r.id LIMIT 1) AS n),
           (SELECT min(b.run_at) FROM back AS b WHERE b.queue = q.name)) - clock_timestamp()) * 1000000)::bigint END,
       (extract(epoch FROM least(
           (SELECT min(c.look_at) FROM {{schema}}.claims AS c WHERE c.look_at >= (SELECT clock_timestamp())),
           (SELECT min(o.look_at) FROM opened AS o)) - clock_timestamp()) * 1000000)::bigint,
       (SELECT count(*) FROM l),
       (SELECT count(*) FROM due) < (SELECT count(*) FROM dues) OR (SELECT count(*) FROM dues) >= 500,
       -- By min, not EXISTS: that would read the whole table for a row that is
       -- most often not there.
       coalesce((SELECT min(f.keep_until) FROM {{schema}}.finished AS f) < clock_timestamp(), false),
       clock_timestamp(),
       (SELECT coalesce(json_agg(json_build_object('worker', x.worker_id, 'jobs', x.jobs)), '[]')
        FROM (SELECT l.worker_id, count(*) AS jobs FROM l JOIN dead AS d ON d.worker_id = l.worker_id GROUP BY l.worker_id) AS x),
       r.silent, r.rank, r.others, r.registered, r.stale, r.adopt,
       coalesce((SELECT array_agg(p.worker_id) FROM peers AS p WHERE p.queue = q.name), '{}'),
       (SELECT count(*) FROM rung)
FROM unnest($1::text[]) AS q (name)
CROSS JOIN roster AS r`

// TickRequest says what a process looks for.
type TickRequest struct {
	Queues []string // at least one
	Kinds  []string // kinds that the caller can run; nil means every kind
	// Reap ends leases that are over. It is off after the database's clock
	// stepped, when a lease may only seem to be over.
	Reap bool
	// Latest is the latest time that the database's clock can show by what the
	// caller knows of it: leases that end after it are not reaped, even if that
	// clock says that they are over. Zero: the caller knows nothing.
	Latest time.Time
	// Worker is the id under which the caller has registered; "" if it has not,
	// and knows others by their leases alone.
	Worker string
	// Dead are the workers that the caller takes for dead: it has seen each
	// silent, twice and long enough apart. Whoever is still silent, under the
	// same key, loses his jobs now.
	Dead []Suspect
	// Own and Token are the channel and payload of this process's own bell.
	Own, Token string
}

// Ticked is what one tick saw and did.
type Ticked struct {
	Next     map[string]time.Duration // per queue: until its earliest ready job is due; ≤ 0: due; absent: none
	Lease    time.Duration            // until the earliest lease of a running job may end, if HasLease
	HasLease bool
	Reaped   int // jobs whose lease was over
	// More says that another tick may reap more at once.
	More bool
	// Refused is why some of them were not reaped: the database does not let
	// them end, because of a foreign key or a trigger of somebody's.
	Refused error
	Expired bool // finished has rows whose time is up, for Prune
	Now     time.Time

	// Died are the workers of TickRequest.Dead whose jobs were reaped, with the
	// number of jobs, all of them in Reaped.
	Died []Died
	// Silent are workers that hold running jobs and not their lock. They may be
	// dead, or about to come back with another key.
	Silent []Suspect
	// Rank is the caller's place among those who watch each other: 0 is first.
	Rank int
	// Peers are, per queue, the other workers that can run the same kinds.
	Peers map[string][]string
	// Others says that workers whose death would be noticed, other than the
	// caller, hold running jobs.
	Others bool
	// Registered says that the caller's row is there.
	Registered bool
	// Stale says that there are rows of workers for Sweep.
	Stale bool
	// Adopt says that a program works that writes no claims: its jobs are found by
	// Adopt alone.
	Adopt bool
}

// Tick reaps, looks and rings, in one statement and one commit.
func (t *Table) Tick(ctx context.Context, db DB, r TickRequest) (Ticked, error) {
	ticked, err := t.tick(ctx, db, r, ReapBatch, 0)
	if isDataError(err) {
		ticked, err = t.tickAround(ctx, db, r)
	}
	return ticked, classify("tick", err)
}

// tryFor bounds how long tickAround tries, so that it ends within a statement's
// time, far from the server too.
const tryFor = 2 * time.Second

// tickAround reaps around the jobs that the database does not let end, so that
// they keep no other from being reaped. A batch that fails is halved until the
// refused job stands alone, and that one is passed over. Behind it batches grow
// again from one, since those that are refused may stand side by side.
func (t *Table) tickAround(ctx context.Context, db DB, r TickRequest) (Ticked, error) {
	reaped, skip := 0, 0
	limit := ReapBatch / 2
	failed := ReapBatch // one of the next so many is refused; 0: none, as far as is known
	died := make(map[string]int)
	var refused error
	begun := time.Now()
	for n := 1; ; n++ {
		if n > ReapBatch || reaped >= ReapBatch || time.Since(begun) > tryFor {
			limit, skip = 0, 0 // the rest is put off: it is the turn of others
		}
		one, err := t.tick(ctx, db, r, limit, skip)
		switch {
		case isDataError(err) && limit > 1:
			refused, failed, limit = err, limit, limit/2
			continue
		case isDataError(err) && limit == 1:
			refused, failed = err, 0
			skip++
			continue
		case err != nil:
			return Ticked{}, err
		}
		reaped += one.Reaped
		for _, d := range one.Died {
			died[d.Worker] += d.Jobs
		}
		if one.Reaped > 0 {
			if failed = max(failed-one.Reaped, 0); failed > 0 {
				limit = max(failed/2, 1)
			} else {
				limit = min(2*limit, ReapBatch/2)
			}
			continue
		}
		one.Reaped, one.Refused = reaped, refused
		one.More = one.More || reaped >= ReapBatch
		for worker, jobs := range died {
			one.Died = append(one.Died, Died{worker, jobs})
		}
		return one, nil
	}
}

// tick passes over the given number of jobs whose lease is over, and reaps up
// to limit others.
func (t *Table) tick(ctx context.Context, db DB, r TickRequest, limit, skip int) (Ticked, error) {
	var latest *time.Time
	switch {
	case !r.Reap:
		latest = new(time.Unix(0, 0)) // before every lease
	case !r.Latest.IsZero():
		latest = &r.Latest
	}
	statement := sqlTick
	if r.Worker == "" {
		statement = sqlTickByLeases
	}
	ids, keys := make([]string, len(r.Dead)), make([]int32, len(r.Dead))
	for i, d := range r.Dead {
		ids[i], keys[i] = d.Worker, d.Key
	}
	ticked := Ticked{Next: make(map[string]time.Duration), Peers: make(map[string][]string)}
	// Without sqlSettings: an idle process is to cost one statement. What a
	// reap has done may be lost in a crash: the lease is over still, and the
	// job is reaped again.
	rows, err := db.Query(ctx, t.sql(statement), r.Queues, r.Kinds, int64(limit), r.Own, r.Token, latest, int64(skip), ids, keys, r.Worker)
	if err != nil {
		return Ticked{}, err
	}
	var queue string
	var next, lease *int64
	var peers []string
	var rung int64
	_, err = pgx.ForEachRow(rows, []any{
		&queue, &next, &lease, &ticked.Reaped, &ticked.More, &ticked.Expired, &ticked.Now,
		&ticked.Died, &ticked.Silent, &ticked.Rank, &ticked.Others, &ticked.Registered, &ticked.Stale, &ticked.Adopt, &peers, &rung,
	}, func() error {
		ticked.Peers[queue] = peers
		if next != nil {
			ticked.Next[queue] = micros(*next)
		}
		if lease != nil {
			ticked.Lease, ticked.HasLease = micros(*lease), true
		}
		return nil
	})
	if err != nil {
		return Ticked{}, err
	}
	ticked.More = ticked.More || ticked.Reaped == ReapBatch
	return ticked, nil
}

// sqlPrune deletes up to $1 finished rows whose time is up. Two processes that
// prune at once take different rows.
const sqlPrune = `
DELETE FROM {{schema}}.finished AS f
WHERE f.ctid = ANY (ARRAY(
    SELECT e.ctid FROM {{schema}}.finished AS e
    WHERE e.keep_until < (SELECT clock_timestamp())
    ORDER BY e.keep_until
    LIMIT $1::bigint
    FOR UPDATE SKIP LOCKED))`

// Prune deletes finished jobs that have been kept for as long as they should,
// at most PruneBatch of them, and returns how many it deleted.
func (t *Table) Prune(ctx context.Context, db DB) (deleted int, err error) {
	b := inOneGo(t)
	b.Queue(t.sql(sqlPrune), int64(PruneBatch)).Exec(func(tag pgconn.CommandTag) error {
		deleted = int(tag.RowsAffected())
		return nil
	})
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return 0, classify("prune", err)
	}
	return deleted, nil
}
