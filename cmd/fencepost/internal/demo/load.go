package demo

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost"
)

const (
	producers = 16 // connections that enqueue at the same time
	batch     = 10 // invoices, with their jobs, in one transaction
)

// produce makes the invoices with the given numbers, both included, and the
// job of each, in one transaction.
type produce func(ctx context.Context, from, to int) error

// load makes the plan's invoices, using the given ways in turn. It returns how
// many the database has acknowledged.
func load(ctx context.Context, p Plan, ways ...produce) (acknowledged int, err error) {
	var next, done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range producers {
		group.Go(func() error {
			for {
				n := int(next.Add(1)) - 1
				from, to := n*batch+1, min((n+1)*batch, p.Jobs)
				if from > p.Jobs {
					return nil
				}
				if err := ways[n%len(ways)](ctx, from, to); err != nil {
					return fmt.Errorf("produce invoices %d to %d: %w", from, to, err)
				}
				p.Progress("enqueued", int(done.Add(int64(to-from+1))), p.Jobs)
			}
		})
	}
	err = group.Wait()
	return int(done.Load()), err
}

const sqlInvoices = `
INSERT INTO {{schema}}.invoices (cents)
SELECT n * 100 + 99 FROM generate_series($1::bigint, $2::bigint) AS n
RETURNING id, cents`

// inTransaction is the way of a Go program: jobs are enqueued in the
// transaction that makes their invoices.
func inTransaction(s *stage, client *fencepost.Client) produce {
	return func(ctx context.Context, from, to int) error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, s.sql(sqlInvoices), from, to)
			if err != nil {
				return err
			}
			invoices, err := pgx.CollectRows(rows, pgx.RowToStructByPos[invoice])
			if err != nil {
				return err
			}
			jobs := make([]fencepost.NewJob, len(invoices))
			for i, inv := range invoices {
				jobs[i] = fencepost.NewJob{Queue: queueName, Payload: inv}
			}
			_, err = client.In(tx).Enqueue(ctx, jobs...)
			return err
		})
	}
}

// sqlPlain is the way of every other program: an INSERT into the table.
const sqlPlain = `
WITH i AS (` + sqlInvoices + `)
INSERT INTO {{schema}}.jobs (queue, kind, payload)
SELECT '` + queueName + `', 'invoice', jsonb_build_object('id', i.id, 'cents', i.cents) FROM i`

func inPlainSQL(s *stage, statement string) produce {
	return func(ctx context.Context, from, to int) error {
		_, err := s.pool.Exec(ctx, s.sql(statement), from, to)
		return err
	}
}
