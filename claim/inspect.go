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

// The columns of an Info, from the view of all jobs.
const sqlInfo = `
    SELECT a.id, a.queue, a.kind,
           CASE WHEN a.status <> 'ready' OR a.run_at <= clock_timestamp() THEN a.status
                WHEN a.last_error IS NULL THEN 'scheduled' ELSE 'retrying' END AS status,
           a.priority, a.run_at, a.created_at, a.finished_at, a.lease_until,
           a.attempts, a.max_attempts, a.snoozes, a.fence, coalesce(a.worker_id, '') AS worker_id,
           coalesce(a.last_error, '') AS last_error,
           a.payload, a.progress
    FROM {{schema}}.all_jobs AS a`

const sqlGet = sqlInfo + `
    WHERE a.id = $1::bigint
    ORDER BY a.finished_at DESC NULLS FIRST
    LIMIT 1`

// Newest first. The status is a label that depends on the clock, so it is
// compared outside.
const sqlList = `
SELECT i.id, i.queue, i.kind, i.status, i.priority, i.run_at, i.created_at, i.finished_at, i.lease_until,
       i.attempts, i.max_attempts, i.snoozes, i.fence, i.worker_id, i.last_error, i.payload, i.progress
FROM (` + sqlInfo + `
    WHERE ($1::text = '' OR a.queue = $1::text)
      AND ($2::text = '' OR a.kind = $2::text)
) AS i
WHERE $3::text = '' OR i.status = $3::text
ORDER BY i.id DESC
LIMIT $4::bigint`

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

// Filter selects jobs for List; empty fields match every job.
type Filter struct {
	Queue  string
	Kind   string
	Status string // a status of Info
	Limit  int    // default 100
}

// List returns matching jobs, newest first.
func (t *Table) List(ctx context.Context, db DB, f Filter) ([]Info, error) {
	if f.Limit == 0 {
		f.Limit = 100
	}
	rows, err := db.Query(ctx, t.sql(sqlList), f.Queue, f.Kind, f.Status, int64(f.Limit))
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
