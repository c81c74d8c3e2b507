package fencepost

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost-go/fencepost/claim"
)

// sqlInsert inserts one job. Casts name what a driver could take for something
// else; a payload travels as text, so that neither side turns a number into a
// float on the way.
const sqlInsert = `
INSERT INTO {{schema}}.jobs (kind, payload, queue, priority, run_at, max_attempts)
VALUES ($1::text, $2::text::jsonb, $3::text, $4::smallint,
        coalesce($5::text::timestamptz, clock_timestamp() + $6::bigint * interval '1 microsecond'), $7::integer)
RETURNING id`

// sqlInsertMany inserts the jobs of a batch in their order, so that the ids
// come back in the order of the input; an array for each column.
//
// Each row's run_at is taken from the clock on its own, as by the column's
// default.
const sqlInsertMany = `
INSERT INTO {{schema}}.jobs (kind, payload, queue, priority, run_at, max_attempts)
SELECT j.kind, j.payload::jsonb, j.queue, j.priority,
       coalesce(j.run_at, clock_timestamp() + j.delay * interval '1 microsecond'), j.max_attempts
FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::timestamptz[], $6::bigint[], $7::integer[])
     WITH ORDINALITY AS j (kind, payload, queue, priority, run_at, delay, max_attempts, n)
ORDER BY j.n -- which unnest promises: nothing is sorted
RETURNING id`

// A batch is sent as one statement: bounded so that neither side has to hold
// much more than a batch at once.
const (
	batchJobs  = 1000
	batchBytes = 4 << 20
)

// check checks every job and returns their rows in batches.
func check(jobs []NewJob) ([][]row, error) {
	var (
		rows    = make([]row, 0, len(jobs))
		batches [][]row
		errs    []error
		first   int // row of the last batch
		bytes   int // of the last batch
	)
	for i, job := range jobs {
		r, err := job.row()
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrInvalid, err)
			if len(jobs) > 1 {
				err = fmt.Errorf("job %d of %d: %w", i+1, len(jobs), err)
			}
			errs = append(errs, err)
			if len(errs) == 10 {
				errs = append(errs, errors.New("and perhaps more"))
				break
			}
			continue
		}
		size := len(r.kind) + len(r.queue) + len(r.payload)
		if inBatch := len(rows) - first; inBatch == batchJobs || inBatch > 0 && bytes+size > batchBytes {
			batches = append(batches, rows[first:])
			first, bytes = len(rows), 0
		}
		rows = append(rows, r)
		bytes += size
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if first < len(rows) {
		batches = append(batches, rows[first:])
	}
	return batches, nil
}

// insertTo inserts the batches in one statement, or in a transaction or behind
// a savepoint.
func (c *Client) insertTo(ctx context.Context, db PgxDB, batches [][]row) (ids []int64, err error) {
	insert := func(db PgxDB) error {
		ids = ids[:0] // of a first try
		if len(batches) == 1 {
			return c.insertBatch(ctx, db, batches[0], &ids)
		}
		return inTx(ctx, db, func(tx pgx.Tx) error {
			for _, batch := range batches {
				if err := c.insertBatch(ctx, tx, batch, &ids); err != nil {
					return err
				}
			}
			return nil
		})
	}
	// The error first: in a return of both, ids might be read before they are filled.
	if db == PgxDB(c.pool) {
		err = c.onPool(ctx, func(db poolDB) error { return insert(db.pool) }) // insertBatch says itself what has no name
	} else {
		err = c.learn(ctx, claim.RouteError(insert(db)))
	}
	return ids, err
}

func (c *Client) insertBatch(ctx context.Context, db PgxDB, batch []row, ids *[]int64) error {
	sql, args := c.insertion(batch)
	if c.nameless() {
		args = withoutName(args)
	}
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	var id int64
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		*ids = append(*ids, id)
		return nil
	})
	return err
}

func (c *Client) insertToSQL(ctx context.Context, tx *sql.Tx, batches [][]row) (ids []int64, err error) {
	for _, batch := range batches {
		query, args := c.insertion(batch)
		args, err := inText(args)
		if err != nil {
			return nil, err
		}
		rows, err := tx.QueryContext(ctx, query, args...)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return nil, errors.Join(err, rows.Close())
			}
			ids = append(ids, id)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// insertion returns the statement that inserts the rows, of which there is at
// least one, and its parameters.
func (c *Client) insertion(rows []row) (sql string, args []any) {
	if len(rows) > 1 {
		return c.sqlInsertMany, arrays(rows)
	}
	r := rows[0]
	var runAt any
	if !r.runAt.IsZero() {
		runAt = r.runAt.Format(time.RFC3339Nano)
	}
	return c.sqlInsert, []any{r.kind, string(r.payload), r.queue, r.priority, runAt, r.delay.Microseconds(), r.maxAttempts}
}

// arrays returns the rows as the parameters of sqlInsertMany.
func arrays(rows []row) []any {
	var (
		kinds       = make([]string, len(rows))
		payloads    = make([]string, len(rows))
		queues      = make([]string, len(rows))
		priorities  = make([]int16, len(rows))
		runAts      = make([]*time.Time, len(rows)) // nil: null
		delays      = make([]int64, len(rows))
		maxAttempts = make([]int32, len(rows))
	)
	for i := range rows {
		r := &rows[i]
		kinds[i], payloads[i], queues[i] = r.kind, string(r.payload), r.queue
		priorities[i], maxAttempts[i] = int16(r.priority), int32(r.maxAttempts)
		if delays[i] = r.delay.Microseconds(); !r.runAt.IsZero() {
			runAts[i] = &r.runAt
		}
	}
	return []any{kinds, payloads, queues, priorities, runAts, delays, maxAttempts}
}

// inText returns the parameters with each array as its text, which is the one
// form of it that every driver carries.
func inText(args []any) ([]any, error) {
	types := pgtype.NewMap()
	for i, arg := range args {
		oid := uint32(0)
		switch arg.(type) {
		case []string:
			oid = pgtype.TextArrayOID
		case []int16:
			oid = pgtype.Int2ArrayOID
		case []*time.Time:
			oid = pgtype.TimestamptzArrayOID
		case []int64:
			oid = pgtype.Int8ArrayOID
		case []int32:
			oid = pgtype.Int4ArrayOID
		default:
			continue
		}
		text, err := types.Encode(oid, pgtype.TextFormatCode, arg, nil)
		if err != nil {
			return nil, err
		}
		args[i] = string(text)
	}
	return args, nil
}
