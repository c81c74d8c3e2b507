package fencepost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-go/fencepost/claim"
)

// EnqueueCopy inserts jobs by COPY through the client's pool, all or none, and
// returns how many they were. It is the fastest way to enqueue thousands, and
// holds a few of them at a time, however many there are. It gives no ids.
//
// See Enqueuer.EnqueueCopy for what it asks of the jobs. As with Enqueue, when
// it returns an error that is neither ErrInvalid nor ErrReadOnly, and the
// connection broke, the jobs may have been committed.
func (c *Client) EnqueueCopy(ctx context.Context, jobs iter.Seq[NewJob]) (int64, error) {
	return c.In(c.pool).EnqueueCopy(ctx, jobs)
}

// EnqueueCopy inserts jobs by COPY, all or none, and returns how many they
// were. In a transaction it does so behind a savepoint: when it returns an
// error the transaction goes on untouched, unless its connection is lost.
//
// Each job is checked as it comes. The first that is refused ends the COPY;
// the error wraps ErrInvalid and says which it was, counting from 1, and why.
//
// Where neither RunAt nor Delay is set a job is due at once. "Now" is the
// database's clock, which is asked once, at the start, and the time that has
// passed since.
//
// The sequence is walked once at most, in the caller's goroutine, between the
// beginning and the end of a transaction, so it should not wait long for
// others, and must not use the connection that the jobs go to. A source that
// may fail ends ctx with its error as the cause (context.WithCancelCause) and
// stops: nothing is stored then, and that error is returned.
//
// COPY needs INSERT on the table jobs and no other right, and is refused by
// PostgreSQL where row security applies to the role. An Enqueuer of InSQL
// cannot do it: ErrInvalid.
func (e Enqueuer) EnqueueCopy(ctx context.Context, jobs iter.Seq[NewJob]) (int64, error) {
	if e.copy == nil {
		return 0, fmt.Errorf("enqueue: %w: database/sql has no COPY; use In with a transaction of pgx, or Enqueue", ErrInvalid)
	}
	n, err := e.copy(ctx, jobs)
	if isDenied(err) {
		err = fmt.Errorf("%w; a role that enqueues by COPY needs INSERT on the table jobs, as \"fencepost migrate grants --producer\" gives it", err)
	}
	if err != nil {
		return 0, fmt.Errorf("enqueue: %w", err)
	}
	return n, nil
}

// copyTo copies the jobs in a transaction of its own, or behind a savepoint of
// the caller's.
func (c *Client) copyTo(ctx context.Context, db PgxDB, jobs iter.Seq[NewJob]) (n int64, err error) {
	var copying copying
	if db == PgxDB(c.pool) {
		err = c.onPool(ctx, func(db poolDB) error { return copying.begin(ctx, db.pool) })
	} else {
		err = c.learn(ctx, claim.RouteError(copying.begin(ctx, db)))
	}
	if err != nil {
		return 0, err
	}
	// From here on nothing is tried again: the sequence may not be walked twice.
	err = errUnfinished // stays if the sequence panics
	defer func() {
		err = c.learn(ctx, claim.RouteError(endTx(ctx, copying.tx, err)))
	}()
	return copying.run(ctx, c.sqlCopy, jobs)
}

// sqlCopy is sent as it is: CopyFrom of pgx would first prepare a statement to
// learn the types of the columns, which a pooler may lose. They are in the
// schema's contract, and the binary format, which needs them, takes a sixth
// less of the server's time than text.
const sqlCopy = `COPY {{schema}}.jobs (kind, payload, queue, priority, run_at, max_attempts) FROM STDIN (FORMAT binary)`

// sqlNow asks for the time, in microseconds since 1970, and whether a COPY
// would be refused: it has to be known before the first job is taken from the
// sequence.
const sqlNow = `
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, current_setting('transaction_read_only') = 'on'`

// copying is a transaction in which jobs are copied.
type copying struct {
	tx    pgx.Tx
	now   time.Time // by the database's clock,
	asked time.Time // when it was this by ours
}

func (c *copying) begin(ctx context.Context, db PgxDB) (err error) {
	if c.tx, err = db.Begin(ctx); err != nil {
		return err
	}
	var micros int64
	var readOnly bool
	err = c.tx.QueryRow(ctx, sqlNow, pgx.QueryExecModeExec).Scan(&micros, &readOnly)
	if err == nil && readOnly {
		err = ErrReadOnly
	}
	if err != nil {
		return endTx(ctx, c.tx, err)
	}
	c.now, c.asked = time.UnixMicro(micros).UTC(), time.Now()
	return nil
}

// errUnfinished is what the server is told, and logs, of a COPY that is given
// up: nothing of any job.
var errUnfinished = errors.New("not all jobs came")

// run sends the jobs and returns how many were copied. The sequence is walked
// by the caller's goroutine, where a panic of it belongs.
func (c *copying) run(ctx context.Context, sql string, jobs iter.Seq[NewJob]) (int64, error) {
	r, w := io.Pipe()
	var tag pgconn.CommandTag
	var copyErr error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tag, copyErr = c.tx.Conn().PgConn().CopyFrom(ctx, r, sql)
		_ = r.Close() // nothing more is wanted
	}()
	defer func() { <-ended }() // also after a panic: a rollback follows on the same connection
	n, err := c.send(ctx, w, jobs)
	<-ended
	switch {
	case errors.Is(err, ErrInvalid):
		return 0, err
	case ctx.Err() != nil: // which may be how the sequence says that it has failed
		return 0, context.Cause(ctx)
	case copyErr != nil:
		return 0, copyErr
	case err != nil:
		return 0, err
	case tag.RowsAffected() != n:
		return 0, errLostRows(n, tag.RowsAffected())
	}
	return n, nil
}

// copyChunk is how much is sent at once: with one more job it still fits into
// the buffer that it is read into.
const copyChunk = 60 << 10

// send writes the jobs, and ends the COPY: for good only if all have been
// written.
func (c *copying) send(ctx context.Context, w *io.PipeWriter, jobs iter.Seq[NewJob]) (n int64, err error) {
	err = errUnfinished
	defer func() {
		if err != nil {
			_ = w.CloseWithError(errUnfinished)
		} else {
			_ = w.Close()
		}
	}()
	chunk := append(make([]byte, 0, copyChunk+4<<10), copyHead...)
	for job := range jobs {
		n++
		row, err := job.row()
		if err != nil {
			return 0, fmt.Errorf("job %d: %w: %w", n, ErrInvalid, err)
		}
		chunk = row.appendCopy(chunk, c.now.Add(time.Since(c.asked)))
		if len(chunk) >= copyChunk {
			if _, err := w.Write(chunk); err != nil {
				return 0, err
			}
			chunk = chunk[:0]
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	_, err = w.Write(append(chunk, copyTail...))
	return n, err
}

// What a COPY in binary format begins with, and ends with.
const (
	copyHead = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" // no flags, nothing more in the header
	copyTail = "\xff\xff"
)

// appendCopy appends the row as sqlCopy has it, given the time that it is.
func (r *row) appendCopy(b []byte, now time.Time) []byte {
	at := r.runAt
	if at.IsZero() {
		at = now.Add(r.delay)
	}
	const columns, jsonbVersion = 6, 1
	b = binary.BigEndian.AppendUint16(b, columns)
	b = append(appendLength(b, len(r.kind)), r.kind...)
	b = append(append(appendLength(b, 1+len(r.payload)), jsonbVersion), r.payload...)
	b = append(appendLength(b, len(r.queue)), r.queue...)
	b = binary.BigEndian.AppendUint16(appendLength(b, 2), uint16(r.priority))
	b = binary.BigEndian.AppendUint64(appendLength(b, 8), uint64(at.UnixMicro()-year2000))
	return binary.BigEndian.AppendUint32(appendLength(b, 4), uint32(r.maxAttempts))
}

// year2000 is when PostgreSQL's time begins, in microseconds since 1970.
const year2000 = 946_684_800_000_000

func appendLength(b []byte, n int) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }
