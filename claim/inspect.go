package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Info is a job as an operator sees it, live or ended.
type Info struct {
	ID    int64
	Queue string
	Kind  string
	// Status is ready, scheduled (ready, but only later), retrying (the same
	// after a failed attempt), running, done, dead or cancelled.
	Status      string
	Priority    int
	RunAt       time.Time
	CreatedAt   time.Time
	FinishedAt  time.Time // zero while the job lives
	LeaseUntil  time.Time // zero unless it is running
	Attempts    int
	MaxAttempts int
	Snoozes     int
	Fence       int64
	WorkerID    string // who holds it, or ended it
	LastError   string
	Payload     json.RawMessage
	Progress    json.RawMessage
}

// sqlStatus is the status of an Info, of the job j.
const sqlStatus = `CASE WHEN j.status <> 'ready' OR j.run_at <= clock_timestamp() THEN j.status
                WHEN j.last_error IS NULL THEN 'scheduled' ELSE 'retrying' END`

// The columns of an Info, from the view of all jobs.
const sqlInfo = `
    SELECT j.id, j.queue, j.kind,
           ` + sqlStatus + ` AS status,
           j.priority, j.run_at, j.created_at, j.finished_at, j.lease_until,
           j.attempts, j.max_attempts, j.snoozes, j.fence, coalesce(j.worker_id, '') AS worker_id,
           coalesce(j.last_error, '') AS last_error,
           j.payload, j.progress
    FROM {{schema}}.all_jobs AS j`

const sqlGet = sqlInfo + `
    WHERE j.id = $1::bigint
    ORDER BY j.finished_at DESC NULLS FIRST, j.fence DESC
    LIMIT 1`

// sqlMatching picks what a Filter wants. The status is a label that depends on
// the clock, so it is compared outside.
const sqlMatching = `
FROM (` + sqlInfo + `
    WHERE ($1::text = '' OR j.queue = $1::text)
      AND ($2::text = '' OR j.kind = $2::text)
) AS i
WHERE ($3::text = '' OR i.status = $3::text)`

// Newest first.
const sqlList = `
SELECT i.id, i.queue, i.kind, i.status, i.priority, i.run_at, i.created_at, i.finished_at, i.lease_until,
       i.attempts, i.max_attempts, i.snoozes, i.fence, i.worker_id, i.last_error, i.payload, i.progress` + sqlMatching + `
ORDER BY i.id DESC
LIMIT $4::bigint`

// An id may be there twice, live and ended.
const (
	sqlIDs = `
SELECT DISTINCT i.id` + sqlMatching + ` AND i.id > $4::bigint
ORDER BY i.id
LIMIT $5::bigint`

	sqlCount = `
SELECT count(DISTINCT i.id)` + sqlMatching
)

// Get returns one job, or ErrNotFound.
func (t *Table) Get(ctx context.Context, db DB, id int64) (Info, error) {
	rows, err := db.Query(ctx, t.sql(sqlGet), id)
	if err != nil {
		return Info{}, fmt.Errorf("get job %d: %w", id, err)
	}
	found, err := pgx.CollectRows(rows, scanInfo)
	if err == nil && len(found) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Info{}, fmt.Errorf("get job %d: %w", id, err)
	}
	return found[0], nil
}

// Filter selects jobs; empty fields match every job.
type Filter struct {
	Queue  string
	Kind   string
	Status string // a status of Info
	Limit  int    // of List and IDs; default 100
}

func (f Filter) limit() int64 {
	if f.Limit == 0 {
		return 100
	}
	return int64(f.Limit)
}

// IDs returns the ids above the given one of matching jobs, in ascending order.
func (t *Table) IDs(ctx context.Context, db DB, f Filter, after int64) ([]int64, error) {
	rows, err := db.Query(ctx, t.sql(sqlIDs), f.Queue, f.Kind, f.Status, after, f.limit())
	if err != nil {
		return nil, classify("list ids", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	return ids, classify("list ids", err)
}

// Count returns how many jobs match, whatever the limit of the filter.
func (t *Table) Count(ctx context.Context, db DB, f Filter) (n int64, err error) {
	err = db.QueryRow(ctx, t.sql(sqlCount), f.Queue, f.Kind, f.Status).Scan(&n)
	return n, classify("count", err)
}

// List returns matching jobs, newest first.
func (t *Table) List(ctx context.Context, db DB, f Filter) ([]Info, error) {
	rows, err := db.Query(ctx, t.sql(sqlList), f.Queue, f.Kind, f.Status, f.limit())
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanInfo)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	return found, nil
}

func scanInfo(row pgx.CollectableRow) (i Info, err error) {
	var finished, lease *time.Time
	err = row.Scan(&i.ID, &i.Queue, &i.Kind, &i.Status, &i.Priority, &i.RunAt, &i.CreatedAt, &finished, &lease,
		&i.Attempts, &i.MaxAttempts, &i.Snoozes, &i.Fence, &i.WorkerID, &i.LastError, &i.Payload, &i.Progress)
	if finished != nil {
		i.FinishedAt = *finished
	}
	if lease != nil {
		i.LeaseUntil = *lease
	}
	return i, err
}

// States of a worker.
const (
	WorkerLive    = "live"    // its connection holds its lock
	WorkerSilent  = "silent"  // nobody holds its lock: it is dead, or about to connect again
	WorkerUnknown = "unknown" // it has no lock; its leases alone tell
)

// sqlWorkers shows the workers that have a row or hold a job. That somebody
// has the lock of one is seen by not getting it, shared, for the time of this
// statement.
const sqlWorkers = `
SELECT coalesce(w.worker_id, j.worker_id), coalesce(w.version, ''), coalesce(w.queues, '{}')::text, w.kinds, w.started_at,
       coalesce(j.running, 0),
       CASE WHEN w.lock_key IS NULL THEN '` + WorkerUnknown + `'
            WHEN pg_try_advisory_xact_lock_shared(w.tableoid::int4, w.lock_key) THEN '` + WorkerSilent + `'
            ELSE '` + WorkerLive + `' END
FROM {{schema}}.workers AS w
FULL JOIN (
    SELECT j.worker_id, count(*) AS running FROM {{schema}}.jobs AS j WHERE j.status = 'running' GROUP BY j.worker_id
) AS j ON j.worker_id = w.worker_id
ORDER BY w.started_at, 1`

// WorkerInfo is a process that works, or did, as an operator sees it.
type WorkerInfo struct {
	ID      string
	Version string         // of the program
	Queues  map[string]int // that it works, with its slots there
	Kinds   []string       // that it can run; nil: every kind
	// StartedAt is zero for a worker that holds jobs but has no row, as programs
	// of version 1 do.
	StartedAt time.Time
	Running   int64  // jobs in its hands
	State     string // WorkerLive, WorkerSilent or WorkerUnknown
}

// Workers returns the workers, in the order in which they started.
func (t *Table) Workers(ctx context.Context, db DB) ([]WorkerInfo, error) {
	rows, err := db.Query(ctx, t.sql(sqlWorkers))
	if err != nil {
		return nil, classify("list workers", err)
	}
	workers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w WorkerInfo, err error) {
		var queues string
		var started *time.Time
		if err := row.Scan(&w.ID, &w.Version, &queues, &w.Kinds, &started, &w.Running, &w.State); err != nil {
			return w, err
		}
		if started != nil {
			w.StartedAt = *started
		}
		// What a hand has written there is left out: it must not hide the others.
		_ = json.Unmarshal([]byte(queues), &w.Queues)
		return w, nil
	})
	return workers, classify("list workers", err)
}
