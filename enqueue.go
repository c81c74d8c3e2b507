package fencepost

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/payload"
)

// Kinder is a payload that knows the kind of its jobs. Kind must return the
// same for every value of the type, also for the zero value.
type Kinder interface{ Kind() string }

// NewJob describes a job to enqueue. Only a kind is needed, which a payload
// that is a Kinder brings along.
type NewJob struct {
	// Kind says which handler runs the job. Default: Payload.Kind().
	Kind string
	// Payload is stored as JSON, at most 1 MiB of it. A json.RawMessage is
	// taken as it is. It is stored as jsonb, which keeps every digit of a
	// number but not the order of keys. Default: {}.
	Payload any
	// Queue is DefaultQueue by default.
	Queue string
	// Priority is between -2 and 2; lower runs first. Default 0.
	Priority int
	// RunAt is when the job is due, between the years 1970 and 9999. Default:
	// now, by the database's clock.
	RunAt time.Time
	// Delay is how long from now the job is due, by the database's clock. Set
	// it or RunAt, not both.
	Delay time.Duration
	// MaxAttempts is after how many failed attempts the job is dead. Default 20.
	MaxAttempts int
}

// An Enqueuer inserts jobs in one particular way; see Client.In and
// Client.InSQL. It may be used as long, and by as many goroutines, as what it
// stands on.
type Enqueuer struct {
	insert func(ctx context.Context, batches []string) ([]int64, error)
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
	query := c.sqlEnqueue
	return Enqueuer{insert: func(ctx context.Context, batches []string) (ids []int64, err error) {
		each := func(db PgxDB) error {
			ids = ids[:0]
			for _, batch := range batches {
				args := []any{batch}
				if c.nameless() {
					args = withoutName(args)
				}
				rows, err := db.Query(ctx, query, args...)
				if err != nil {
					return err
				}
				ids, err = pgx.AppendRows(ids, rows, pgx.RowTo[int64])
				if err != nil {
					return err
				}
			}
			return nil
		}
		insert := func(db PgxDB) error {
			if len(batches) == 1 {
				return each(db)
			}
			return inTx(ctx, db, func(tx pgx.Tx) error { return each(tx) })
		}
		// The error first: in a return of both, ids might be read before they are filled.
		if db == PgxDB(c.pool) {
			err = c.onPool(ctx, func(db poolDB) error { return insert(db.pool) }) // which says itself what has no name
		} else if err = insert(db); err != nil {
			err = c.learn(ctx, claim.RouteError(err))
		}
		return ids, err
	}}
}

// InSQL returns an Enqueuer for a transaction of database/sql, with pgx's or
// any other driver for PostgreSQL. See In.
func (c *Client) InSQL(tx *sql.Tx) Enqueuer {
	query := c.sqlEnqueue
	insert := func(ctx context.Context, batches []string) (ids []int64, err error) {
		for _, batch := range batches {
			rows, err := tx.QueryContext(ctx, query, batch)
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
	return Enqueuer{insert: func(ctx context.Context, batches []string) ([]int64, error) {
		ids, err := insert(ctx, batches)
		return ids, c.learn(ctx, claim.RouteError(err))
	}}
}

// Enqueue inserts jobs, all or none, and returns their ids in the order given.
// Every job is checked before any SQL: if one is refused the error wraps
// ErrInvalid and says which and why, and the transaction goes on untouched.
func (e Enqueuer) Enqueue(ctx context.Context, jobs ...NewJob) ([]int64, error) {
	batches, err := encode(jobs)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if len(batches) == 0 {
		return nil, nil
	}
	ids, err := e.insert(ctx, batches)
	if refused := new(pgconn.PgError); errors.As(err, &refused) && refused.Code == "42501" {
		return nil, fmt.Errorf("enqueue: %w; a role that enqueues needs INSERT and SELECT (id) on the table jobs, as \"fencepost migrate grants --producer\" gives them", err)
	}
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if len(ids) != len(jobs) {
		return nil, fmt.Errorf("enqueue: %d jobs became %d rows; is there a rule or a trigger on the table jobs that keeps rows out?", len(jobs), len(ids))
	}
	return ids, nil
}

// sqlEnqueue inserts the jobs of one JSON array, in its order, so that the ids
// come back in the order of the input. One text parameter is the one form that
// every driver and every query execution mode carries.
//
// jsonb keeps every digit of a number. Each row's run_at is taken from the
// clock on its own, by the column's default or here.
const sqlEnqueue = `
INSERT INTO {{schema}}.jobs (kind, payload, queue, priority, run_at, max_attempts)
SELECT j.doc ->> 'kind', j.doc -> 'payload', j.doc ->> 'queue', (j.doc ->> 'priority')::smallint,
       coalesce((j.doc ->> 'run_at')::timestamptz,
                clock_timestamp() + coalesce((j.doc ->> 'delay')::bigint, 0) * interval '1 microsecond'),
       (j.doc ->> 'max_attempts')::integer
FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY AS j (doc, n)
ORDER BY j.n
RETURNING id`

// A batch is sent as one statement: bounded so that neither side has to hold
// much more than a batch at once.
const (
	batchJobs  = 1000
	batchBytes = 4 << 20
)

// document is one job in the parameter of sqlEnqueue.
type document struct {
	Kind        string          `json:"kind"`
	Payload     json.RawMessage `json:"payload"`
	Queue       string          `json:"queue"`
	Priority    int             `json:"priority"`
	RunAt       *time.Time      `json:"run_at,omitempty"`
	Delay       int64           `json:"delay,omitempty"` // microseconds
	MaxAttempts int             `json:"max_attempts"`
}

// encode checks every job and renders them as the parameters of sqlEnqueue.
func encode(jobs []NewJob) ([]string, error) {
	var (
		batches []string
		errs    []error
		b       strings.Builder
		inBatch int
	)
	flush := func() {
		if inBatch > 0 {
			batches = append(batches, "["+b.String()+"]")
			b.Reset()
			inBatch = 0
		}
	}
	for i, job := range jobs {
		doc, err := job.document()
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
		text, err := json.Marshal(doc)
		if err != nil {
			return nil, err
		}
		if inBatch == batchJobs || b.Len()+len(text) > batchBytes {
			flush()
		}
		if inBatch > 0 {
			b.WriteByte(',')
		}
		b.Write(text)
		inBatch++
	}
	flush()
	return batches, errors.Join(errs...)
}

// Validate says whether the job can be enqueued: nil, or an error that wraps
// ErrInvalid and names every reason. Enqueue does the same for each job.
func (j NewJob) Validate() error {
	if _, err := j.document(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

const maxJobDelay = 100 * 365 * 24 * time.Hour

// document applies the defaults, or returns every reason why the job cannot be
// stored.
func (j NewJob) document() (document, error) {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	doc := document{
		Kind:        j.Kind,
		Queue:       orDefault(j.Queue, DefaultQueue),
		Priority:    j.Priority,
		MaxAttempts: orDefault(j.MaxAttempts, 20),
		Delay:       j.Delay.Microseconds(),
	}
	if v := reflect.ValueOf(j.Payload); v.Kind() == reflect.Pointer && v.IsNil() {
		fail("Payload is a nil %T", j.Payload)
	} else if k, ok := j.Payload.(Kinder); ok {
		if own := k.Kind(); doc.Kind == "" {
			doc.Kind = own
		} else if doc.Kind != own {
			fail("Kind is %q but its payload, %T, is of kind %q", doc.Kind, j.Payload, own)
		}
	}
	if err := checkName(doc.Kind); err != nil {
		fail("Kind %q %w", doc.Kind, err)
	}
	if err := checkName(doc.Queue); err != nil {
		fail("Queue %q %w", doc.Queue, err)
	}
	if j.Priority < -2 || j.Priority > 2 {
		fail("Priority is %d; must be between -2 and 2", j.Priority)
	}
	if doc.MaxAttempts < 1 || doc.MaxAttempts > 1_000_000 {
		fail("MaxAttempts is %d; must be between 1 and 1000000", doc.MaxAttempts)
	}
	if j.Delay < 0 || j.Delay > maxJobDelay {
		fail("Delay is %v; must be between 0 and 100 years", j.Delay)
	}
	if !j.RunAt.IsZero() {
		at := j.RunAt.UTC().Round(time.Microsecond) // as the database will
		doc.RunAt = &at
		if j.Delay != 0 {
			fail("RunAt and Delay are both set")
		}
		if at.Year() < 1970 || at.Year() > 9999 {
			fail("RunAt is in the year %d; must be between 1970 and 9999", at.Year())
		}
	}
	raw, err := encodePayload(j.Payload)
	if err != nil {
		fail("Payload: %w", err)
	}
	doc.Payload = raw
	return doc, errors.Join(errs...)
}

// encodePayload renders a payload as JSON that can be stored exactly.
func encodePayload(v any) (json.RawMessage, error) {
	var raw json.RawMessage
	switch v := v.(type) {
	case nil:
		return json.RawMessage("{}"), nil
	case json.RawMessage:
		raw = v
	default:
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return raw, payload.Check(raw)
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

func cleanText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
