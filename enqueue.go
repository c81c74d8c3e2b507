package fencepost

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-go/fencepost/claim"
)

// An Enqueuer inserts jobs in one particular way; see Client.In and
// Client.InSQL. It may be used as long, and by as many goroutines, as what it
// stands on.
type Enqueuer struct {
	insert func(ctx context.Context, batches [][]row) ([]int64, error)
	copy   func(ctx context.Context, jobs iter.Seq[NewJob]) (int64, error) // nil: it cannot
}

// PgxDB is what *pgxpool.Pool, *pgx.Conn and pgx.Tx have in common.
type PgxDB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Enqueue inserts jobs through the client's pool, all or none, and returns
// their ids in the order given. When it returns they are committed; when it
// returns an error that is neither ErrInvalid nor ErrReadOnly, and the
// connection broke, they may be.
func (c *Client) Enqueue(ctx context.Context, jobs ...NewJob) ([]int64, error) {
	return c.In(c.pool).Enqueue(ctx, jobs...)
}

// In returns an Enqueuer that uses the given pool, connection or transaction
// of pgx. In a transaction the jobs become visible to workers with its commit,
// together with whatever else it did, and never if it rolls back.
func (c *Client) In(db PgxDB) Enqueuer {
	return Enqueuer{
		insert: func(ctx context.Context, batches [][]row) ([]int64, error) { return c.insertTo(ctx, db, batches) },
		copy:   func(ctx context.Context, jobs iter.Seq[NewJob]) (int64, error) { return c.copyTo(ctx, db, jobs) },
	}
}

// InSQL returns an Enqueuer for a transaction of database/sql, with pgx's or
// any other driver for PostgreSQL. See In. It has no EnqueueCopy.
func (c *Client) InSQL(tx *sql.Tx) Enqueuer {
	return Enqueuer{insert: func(ctx context.Context, batches [][]row) ([]int64, error) {
		ids, err := c.insertToSQL(ctx, tx, batches)
		return ids, c.learn(ctx, claim.RouteError(err))
	}}
}

// Enqueue inserts jobs, all or none, and returns their ids in the order given.
// Every job is checked before any SQL: if one is refused the error wraps
// ErrInvalid and says which and why, and the transaction goes on untouched.
func (e Enqueuer) Enqueue(ctx context.Context, jobs ...NewJob) ([]int64, error) {
	batches, err := check(jobs)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if len(batches) == 0 {
		return nil, nil
	}
	ids, err := e.insert(ctx, batches)
	if isDenied(err) {
		err = fmt.Errorf("%w; a role that enqueues needs INSERT and SELECT (id) on the table jobs, as \"fencepost migrate grants --producer\" gives them", err)
	}
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if len(ids) != len(jobs) {
		return nil, fmt.Errorf("enqueue: %w", errLostRows(int64(len(jobs)), int64(len(ids))))
	}
	return ids, nil
}

// isDenied says that the role lacks a right.
func isDenied(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "42501"
}

func errLostRows(jobs, rows int64) error {
	return fmt.Errorf("%d jobs became %d rows; is there a rule or a trigger on the table jobs that keeps rows out?", jobs, rows)
}

// inTx runs do in a transaction.
func inTx(ctx context.Context, db PgxDB, do func(pgx.Tx) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	return endTx(ctx, tx, do(tx))
}

// endTx commits if there is no error, or rolls back and returns it.
func endTx(ctx context.Context, tx pgx.Tx, err error) error {
	if err == nil {
		err = ctx.Err() // found by Commit it would cost the connection
	}
	if err == nil {
		return tx.Commit(ctx)
	}
	// With the caller's context, which may be why we are here, the rollback
	// would cost the pool the connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return errors.Join(err, tx.Rollback(ctx))
}
