package rival

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
	"github.com/fencepost-go/fencepost/migrations"
)

// fencepostQueue is Fencepost, in its default schema.
type fencepostQueue struct{}

func (fencepostQueue) name() string { return "Fencepost" }

func (fencepostQueue) version(*debug.BuildInfo) string { return "this tree" }

func (fencepostQueue) settings() string {
	return fmt.Sprintf("Lease %v, PollInterval %v, JobTimeout %v, %d slots in each of %d processes, pools of %d; the rest by default",
		rescue, rescue, timeout, slots, crewed, conns)
}

func (fencepostQueue) prepare(ctx context.Context, conn *pgx.Conn) error {
	if _, err := migrations.Up(ctx, conn, fencepost.DefaultSchema); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, witness.SQL)
	return err
}

const fencepostKind = "order"

func (fencepostQueue) enqueuer(pool *pgxpool.Pool) (func(context.Context, pgx.Tx, script.Order) error, error) {
	client, err := fencepost.New(pool, fencepost.Config{})
	return func(ctx context.Context, tx pgx.Tx, o script.Order) error {
		_, err := client.In(tx).Enqueue(ctx, fencepost.NewJob{Kind: fencepostKind, Payload: o})
		return err
	}, err
}

func (fencepostQueue) work(ctx context.Context, pool *pgxpool.Pool, _ string, h handlers) error {
	client, err := fencepost.New(pool, fencepost.Config{
		Queues:       map[string]fencepost.Queue{fencepost.DefaultQueue: {Slots: slots}},
		Lease:        rescue,
		PollInterval: rescue,
		JobTimeout:   timeout,
		Observer:     fencepost.Observer{Refused: func(job, _ int64) { h.refused(job) }},
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	fencepost.HandleKind(client, fencepostKind, func(ctx context.Context, job *fencepost.Job[script.Order]) error {
		return h.run(ctx, job.ID, job.Attempt, job.Payload)
	})
	return client.Run(ctx)
}

func (fencepostQueue) changes(ctx context.Context, pool *pgxpool.Pool) ([]change, error) {
	lines, err := witness.Read(ctx, pool)
	var changes []change
	for _, l := range lines {
		if c, ok := fencepostChange(l); ok {
			changes = append(changes, c)
		}
	}
	return changes, err
}

// fencepostChange translates a line about a live job. One that ends leaves that
// table.
func fencepostChange(l witness.Line) (change, bool) {
	if l.Place != "jobs" || l.Op == "INSERT" {
		return change{}, false
	}
	c := change{
		At: l.At.UnixNano(), App: l.App, Job: l.ID, Token: l.Token,
		From: fencepostState(l.Before.Status), To: fencepostState(l.After.Status),
		Before: l.Before.Attempts, After: l.After.Attempts,
	}
	if c.From == running && c.To == waiting { // or the error may be that of an attempt before
		attempt := fmt.Sprintf(" in attempt %d of ", c.Before)
		c.Rescue = strings.Contains(l.Error, " died"+attempt) || strings.Contains(l.Error, " ran out"+attempt)
	}
	if l.Op == "DELETE" {
		c.After = c.Before
	}
	return c, true
}

func fencepostState(status string) state {
	switch status {
	case fencepost.StatusRunning:
		return running
	case fencepost.StatusReady:
		return waiting
	}
	return ended
}

func (fencepostQueue) ended(ctx context.Context, pool *pgxpool.Pool) (map[string]bool, error) {
	return tokens(ctx, pool, `SELECT payload ->> 'token', finished_at IS NOT NULL FROM fencepost.all_jobs`)
}

// leader: there is none.
func (fencepostQueue) leader(context.Context, *pgxpool.Pool) (leader, error) { return leader{}, nil }
