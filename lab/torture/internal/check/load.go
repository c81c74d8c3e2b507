package check

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// Load reads the record of a run: the histories under dir, and the rest from
// the server that is the primary at the end. Lost, Offset and Limits are the
// caller's to fill in.
func Load(ctx context.Context, db witness.DB, dir string) (in Input, err error) {
	if in.Events, err = history.Read(dir); err != nil {
		return in, fmt.Errorf("read histories: %w", err)
	}
	if in.Lines, err = witness.Read(ctx, db); err != nil {
		return in, fmt.Errorf("read the witness: %w", err)
	}
	if in.Final, err = read(ctx, db, finalJob, `
SELECT id, coalesce(payload ->> 'token', ''), kind, queue, status, fence, attempts, max_attempts, created_at
FROM fencepost.all_jobs ORDER BY id, created_at`); err != nil {
		return in, fmt.Errorf("read jobs: %w", err)
	}
	if in.Orders, err = read(ctx, db, pgx.RowToStructByPos[FinalOrder],
		`SELECT token, fence, via, xid::text::bigint FROM shop.orders ORDER BY token`); err != nil {
		return in, fmt.Errorf("read orders: %w", err)
	}
	if in.Effects, err = read(ctx, db, pgx.RowToStructByPos[FinalEffect],
		`SELECT token, job, fence FROM shop.effects ORDER BY token, fence`); err != nil {
		return in, fmt.Errorf("read effects: %w", err)
	}
	return in, nil
}

func finalJob(row pgx.CollectableRow) (j FinalJob, err error) {
	err = row.Scan(&j.ID, &j.Token, &j.Kind, &j.Queue, &j.Status, &j.Fence, &j.Attempts, &j.Max, &j.CreatedAt)
	return j, err
}

func read[T any](ctx context.Context, db witness.DB, to pgx.RowToFunc[T], sql string) ([]T, error) {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, to)
}
