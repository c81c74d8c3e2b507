// Package witness is the record of a run as the database saw it: triggers write
// every change of a job into a log of its own, in the transaction that makes
// the change. The lines of one job are in the order in which they happened,
// since each is written under the row's lock.
package witness

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// SQL makes the log and its triggers, on the schema fencepost. It is run once,
// by the owner of everything, after the migrations. With a transition that is
// rolled back its line goes too; the sequence leaves a gap.
const SQL = `
CREATE SCHEMA witness;
CREATE TABLE witness.log (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    pid integer NOT NULL DEFAULT pg_backend_pid(),
    app text NOT NULL DEFAULT current_setting('application_name'),
    place text NOT NULL,  -- jobs or finished
    op text NOT NULL,     -- INSERT, UPDATE, DELETE
    id bigint NOT NULL,
    token text,
    kind text, queue text,
    old_status text, status text,
    old_fence bigint, fence bigint,
    old_attempts integer, attempts integer, max_attempts integer,
    old_snoozes integer, snoozes integer,
    old_run_at timestamptz, run_at timestamptz,
    old_lease timestamptz, lease timestamptz,
    old_worker text, worker text,
    created_at timestamptz,
    error text);
CREATE FUNCTION witness.see() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, witness, pg_temp
AS $see$
DECLARE
    o jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - 'payload' - 'progress' END;
    n jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - 'payload' - 'progress' END;
    r record;
BEGIN
    IF TG_OP = 'DELETE' THEN r := OLD; ELSE r := NEW; END IF;
    INSERT INTO log (place, op, id, token, kind, queue, old_status, status, old_fence, fence,
        old_attempts, attempts, max_attempts, old_snoozes, snoozes, old_run_at, run_at,
        old_lease, lease, old_worker, worker, created_at, error)
    VALUES (TG_TABLE_NAME, TG_OP, r.id, r.payload ->> 'token', r.kind, r.queue,
        o ->> 'status', n ->> 'status', (o ->> 'fence')::bigint, (n ->> 'fence')::bigint,
        (o ->> 'attempts')::integer, (n ->> 'attempts')::integer, r.max_attempts,
        (o ->> 'snoozes')::integer, (n ->> 'snoozes')::integer,
        (o ->> 'run_at')::timestamptz, (n ->> 'run_at')::timestamptz,
        (o ->> 'lease_until')::timestamptz, (n ->> 'lease_until')::timestamptz,
        o ->> 'worker_id', n ->> 'worker_id', r.created_at, left(r.last_error, 200));
    RETURN NULL;
END
$see$;
CREATE TRIGGER witness AFTER INSERT OR UPDATE OR DELETE ON fencepost.jobs
    FOR EACH ROW EXECUTE FUNCTION witness.see();
CREATE TRIGGER witness AFTER INSERT OR UPDATE OR DELETE ON fencepost.finished
    FOR EACH ROW EXECUTE FUNCTION witness.see();
ALTER TABLE fencepost.jobs ENABLE ALWAYS TRIGGER witness;
ALTER TABLE fencepost.finished ENABLE ALWAYS TRIGGER witness;`

// Line is one change of one job. What a state has not is zero.
type Line struct {
	Seq   int64     `json:"seq"`
	At    time.Time `json:"at"` // the database's clock
	XID   int64     `json:"xid"`
	PID   int32     `json:"pid"`
	App   string    `json:"app"`
	Place string    `json:"place"` // jobs, finished
	Op    string    `json:"op"`    // INSERT, UPDATE, DELETE

	ID     int64  `json:"id"`
	Token  string `json:"token"`
	Kind   string `json:"kind"`
	Queue  string `json:"queue"`
	Before State  `json:"before"` // zero at an INSERT
	After  State  `json:"after"`  // zero at a DELETE
	// Max is the newer max_attempts.
	Max       int       `json:"max"`
	CreatedAt time.Time `json:"created_at"`
	Error     string    `json:"error,omitempty"`
}

// State is what a row said.
type State struct {
	Status   string    `json:"status,omitempty"`
	Fence    int64     `json:"fence,omitempty"`
	Attempts int       `json:"attempts,omitempty"`
	Snoozes  int       `json:"snoozes,omitempty"`
	RunAt    time.Time `json:"run_at,omitzero"`
	Lease    time.Time `json:"lease,omitzero"`
	Worker   string    `json:"worker,omitempty"`
}

// DB is what Read needs: a pool or a connection.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Read returns the whole log, in order.
func Read(ctx context.Context, db DB) ([]Line, error) {
	rows, err := db.Query(ctx, `
SELECT seq, at, xid::text::bigint, pid, app, place, op, id, coalesce(token, ''), coalesce(kind, ''), coalesce(queue, ''),
    coalesce(old_status, ''), coalesce(old_fence, 0), coalesce(old_attempts, 0), coalesce(old_snoozes, 0),
    old_run_at, old_lease, coalesce(old_worker, ''),
    coalesce(status, ''), coalesce(fence, 0), coalesce(attempts, 0), coalesce(snoozes, 0),
    run_at, lease, coalesce(worker, ''),
    coalesce(max_attempts, 0), created_at, coalesce(error, '')
FROM witness.log ORDER BY seq`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Line, err error) {
		var times [5]*time.Time
		err = row.Scan(&l.Seq, &l.At, &l.XID, &l.PID, &l.App, &l.Place, &l.Op, &l.ID, &l.Token, &l.Kind, &l.Queue,
			&l.Before.Status, &l.Before.Fence, &l.Before.Attempts, &l.Before.Snoozes, &times[0], &times[1], &l.Before.Worker,
			&l.After.Status, &l.After.Fence, &l.After.Attempts, &l.After.Snoozes, &times[2], &times[3], &l.After.Worker,
			&l.Max, &times[4], &l.Error)
		for i, to := range []*time.Time{&l.Before.RunAt, &l.Before.Lease, &l.After.RunAt, &l.After.Lease, &l.CreatedAt} {
			if times[i] != nil {
				*to = *times[i]
			}
		}
		return l, err
	})
}
