package suite

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/bench/internal/crew"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// liar is a queue that runs every job and stores the outcome of each second one.
type liar struct{ conn *pgx.Conn }

func (q *liar) Open(ctx context.Context, o wire.Options) (d wire.Described, err error) {
	if q.conn, err = pgx.Connect(ctx, o.DSN); err != nil {
		return d, err
	}
	_, err = q.conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS lies (n int)")
	return d, err
}

func (q *liar) One(ctx context.Context, job crew.Job) error {
	_, err := q.conn.Exec(ctx, "INSERT INTO lies VALUES ($1)", job.N)
	return err
}

func (q *liar) Many(ctx context.Context, jobs []crew.Job) error {
	for _, job := range jobs {
		if err := q.One(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

func (q *liar) Copy(ctx context.Context, jobs []crew.Job) error { return q.Many(ctx, jobs) }

func (q *liar) Work(ctx context.Context, handle crew.Handle, ready func()) error {
	ready()
	rows, err := q.conn.Query(ctx, "SELECT n FROM lies")
	if err != nil {
		return err
	}
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if err := handle(ctx, crew.Payload{N: n}); err != nil {
			return err
		}
		if n%2 == 0 {
			if _, err := q.conn.Exec(ctx, "DELETE FROM lies WHERE n = $1", n); err != nil {
				return err
			}
		}
	}
	<-ctx.Done()
	return nil
}

func (q *liar) Close() {
	if q.conn != nil {
		_ = q.conn.Close(context.Background()) // the process ends
	}
}
