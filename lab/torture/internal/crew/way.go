package crew

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
)

// way is a transaction of a producer's, of one of the ways to enqueue.
type way interface {
	rows(ctx context.Context, orders []order, via string) error
	jobs(ctx context.Context, orders []order) (ids []int64, err error) // nil: not known
	commit(ctx context.Context) error
	rollback(ctx context.Context)
}

// begin begins a transaction.
func (p *producer) begin(ctx context.Context, via string) (way, error) {
	// For pgx, which keeps no context for later, unlike database/sql.
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch via {
	case "stdlib":
		// The context must outlive this call: its end rolls back.
		tx, err := p.db.BeginTx(ctx, nil)
		return sqlWay{tx, p.client}, err
	case "rr":
		tx, err := p.pool.BeginTx(limited, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		return pgxWay{tx, p.client, goJobs}, err
	}
	tx, err := p.pool.Begin(limited)
	return pgxWay{tx, p.client, map[string]jobsFunc{
		"go": goJobs, "sql": plainJobs, "func": funcJobs, "copy": copyJobs, "bulk": bulkJobs,
	}[via]}, err
}

type jobsFunc func(context.Context, pgx.Tx, *fencepost.Client, []order) ([]int64, error)

// pgxWay is a transaction of pgx.
type pgxWay struct {
	tx      pgx.Tx
	client  *fencepost.Client
	enqueue jobsFunc
}

func (w pgxWay) rows(ctx context.Context, orders []order, via string) error {
	return insertRows(ctx, w.tx, orders, via)
}

func (w pgxWay) jobs(ctx context.Context, orders []order) ([]int64, error) {
	return w.enqueue(ctx, w.tx, w.client, orders)
}

func (w pgxWay) commit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return w.tx.Commit(ctx)
}

func (w pgxWay) rollback(ctx context.Context) { rollback(ctx, w.tx) }

func goJobs(ctx context.Context, tx pgx.Tx, client *fencepost.Client, orders []order) ([]int64, error) {
	return client.In(tx).Enqueue(ctx, newJobs(orders)...)
}

// plainJobs inserts as any program may that knows nothing but the table.
func plainJobs(ctx context.Context, tx pgx.Tx, _ *fencepost.Client, orders []order) ([]int64, error) {
	const insert = `
INSERT INTO fencepost.jobs (kind, payload, queue, priority, run_at, max_attempts)
VALUES ($1, $2::text::jsonb, $3, $4, clock_timestamp() + $5::bigint * interval '1 microsecond', $6)`
	for _, o := range orders {
		_, err := tx.Exec(ctx, insert, unnamed, o.kind, o.payload(), o.queue, o.priority, o.delay.Microseconds(), o.attempts())
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func funcJobs(ctx context.Context, tx pgx.Tx, _ *fencepost.Client, orders []order) (ids []int64, err error) {
	const call = `
SELECT fencepost.enqueue($1, $2::text::jsonb, queue => $3, priority => $4,
    run_at => CASE WHEN $5::bigint > 0 THEN clock_timestamp() + $5::bigint * interval '1 microsecond' END, max_attempts => $6)`
	for _, o := range orders {
		var id int64
		err := tx.QueryRow(ctx, call, unnamed, o.kind, o.payload(), o.queue, o.priority, o.delay.Microseconds(), o.attempts()).Scan(&id)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func copyJobs(ctx context.Context, tx pgx.Tx, _ *fencepost.Client, orders []order) ([]int64, error) {
	columns := []string{"kind", "payload", "queue", "priority", "max_attempts"}
	n, err := tx.CopyFrom(ctx, pgx.Identifier{"fencepost", "jobs"}, columns,
		pgx.CopyFromSlice(len(orders), func(i int) ([]any, error) {
			o := orders[i]
			return []any{o.kind, o.Order, o.queue, o.priority, o.attempts()}, nil
		}))
	if err == nil && n != int64(len(orders)) {
		err = fmt.Errorf("%d of %d rows copied", n, len(orders))
	}
	return nil, err
}

func bulkJobs(ctx context.Context, tx pgx.Tx, client *fencepost.Client, orders []order) ([]int64, error) {
	n, err := client.In(tx).EnqueueCopy(ctx, slices.Values(newJobs(orders)))
	if err == nil && n != int64(len(orders)) {
		err = fmt.Errorf("%d of %d jobs counted", n, len(orders))
	}
	return nil, err
}

// sqlWay is a transaction of database/sql.
type sqlWay struct {
	tx     *sql.Tx
	client *fencepost.Client
}

func (w sqlWay) rows(ctx context.Context, orders []order, via string) error {
	_, err := w.tx.ExecContext(ctx, sqlRows, unnamed, tokens(orders), via)
	if err != nil {
		return fmt.Errorf("business rows: %w", err)
	}
	return nil
}

func (w sqlWay) jobs(ctx context.Context, orders []order) ([]int64, error) {
	return w.client.InSQL(w.tx).Enqueue(ctx, newJobs(orders)...)
}

// commit and rollback go by the context of the beginning.
func (w sqlWay) commit(context.Context) error { return w.tx.Commit() }
func (w sqlWay) rollback(context.Context)     { _ = w.tx.Rollback() }
