package fencepost

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-go/fencepost/claim"
)

// maxProgress bounds what SetProgress stores, in bytes of JSON.
const maxProgress = 64 << 10

// Job is one claimed job, as a handler gets it. Its methods may be called from
// any goroutine while the handler runs.
type Job[T any] struct {
	ID          int64
	Queue       string
	Kind        string
	Priority    int
	Attempt     int // this attempt, counted from 1
	MaxAttempts int
	// Fence is new with every claim of the job and larger than all before it.
	// Writes to other tables can be guarded with it: see Fenced.
	Fence     int64
	RunAt     time.Time
	CreatedAt time.Time
	Payload   T

	lease    claim.Lease
	progress json.RawMessage
	client   *Client
}

// Key returns an idempotency key for the outside world, such as a payment
// provider: the same on every attempt of the job, and never that of another
// job, also when ids are given a second time after a failover that lost
// commits. It consists of schema, id and time of creation.
func (j *Job[T]) Key() string {
	return fmt.Sprintf("%s/%d/%d", j.client.config.Schema, j.ID, j.CreatedAt.UnixMicro())
}

// Progress returns what an earlier run of the job has left with SetProgress;
// nil if nothing. What this run stores is seen by later ones.
func (j *Job[T]) Progress() json.RawMessage { return j.progress }

// SetProgress stores a value with the job, as JSON of at most 64 KiB, for
// later attempts to read with Progress. It uses the client's pool, so after
// CompleteTx it would wait for the handler's own transaction. It returns
// ErrLeaseLost, and has changed nothing, if the lease is over.
func (j *Job[T]) SetProgress(ctx context.Context, v any) error {
	raw, err := encodePayload(v)
	if err == nil && len(raw) > maxProgress {
		err = fmt.Errorf("is %d bytes long; at most %d", len(raw), maxProgress)
	}
	if err != nil {
		return fmt.Errorf("progress of job %d: %w: %w", j.ID, ErrInvalid, err)
	}
	return j.client.onPool(ctx, func(db poolDB) error {
		db.unprepared = true // as in CompleteTx
		return j.client.table.Progress(ctx, db, j.lease, raw)
	})
}

// CompleteTx stores the job's completion in the handler's own transaction: the
// job is done if, and only if, everything else in the transaction happens too.
// The handler returns nil after the commit, and an error if there was none: nil
// would complete the job all the same. CompleteTx returns ErrLeaseLost if the
// lease is over; roll back then.
//
// While the transaction is open the job is neither given to another worker nor
// reported lost, however long it takes. Above READ COMMITTED call it first in
// the transaction: an extension of the lease after the transaction began makes
// it fail with a serialization error.
func (j *Job[T]) CompleteTx(ctx context.Context, tx pgx.Tx) error {
	if j.client.nameless() || keepsPlans(tx) {
		tx = unpreparedTx{tx}
	}
	if err := j.client.table.CompleteTx(ctx, tx, j.lease); err != nil {
		return j.client.learn(ctx, err)
	}
	j.client.completed.add(j.lease)
	return nil
}

// CompleteSQLTx is CompleteTx for a transaction of database/sql.
func (j *Job[T]) CompleteSQLTx(ctx context.Context, tx *sql.Tx) error {
	if err := j.client.table.CompleteSQLTx(ctx, tx, j.lease); err != nil {
		return j.client.learn(ctx, err)
	}
	j.client.completed.add(j.lease)
	return nil
}

// Fenced turns a write that changed no row into ErrLeaseLost. It is meant for
// writes to your own tables that keep the fence of their last writer:
//
//	err := fencepost.Fenced(tx.Exec(ctx,
//		`UPDATE invoices SET sent_at = now(), fence = $2 WHERE id = $1 AND fence < $2`,
//		job.Payload.ID, job.Fence))
//
// A worker that froze, lost its lease and woke up then cannot overwrite what
// its successor wrote. The row must exist, with a fence of 0 at first. A second
// write in the same attempt, or one more try after a broken connection, would be
// refused as well; with fence <= $2 it is let through.
func Fenced(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return fmt.Errorf("fenced write: %w", ErrLeaseLost)
	}
	return err
}

// FencedSQL is Fenced for database/sql.
func FencedSQL(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return fmt.Errorf("fenced write: %w", ErrLeaseLost)
}
