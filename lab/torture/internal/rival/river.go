package rival

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// riverQueue is River, in the schema public.
type riverQueue struct{}

func (riverQueue) name() string { return "River" }

func (riverQueue) version(worker *debug.BuildInfo) string {
	for _, m := range worker.Deps {
		if m.Path == "github.com/riverqueue/river" {
			return m.Version
		}
	}
	return "unknown"
}

func (riverQueue) settings() string {
	return fmt.Sprintf("RescueStuckJobsAfter %v, JobTimeout %v, MaxWorkers %d in each of %d processes, pools of %d; the rest by default: "+
		"FetchPollInterval %v, FetchCooldown %v; no option: the leader looks for stuck jobs every 30 s, and for retries that are due every 5 s",
		rescue, timeout, slots, crewed, conns, river.FetchPollIntervalDefault, river.FetchCooldownDefault)
}

// riverWitness logs each change of a row in the transaction that makes it. A
// rescue is told by the count that River keeps of them in the job's metadata.
const riverWitness = `
CREATE SCHEMA witness;
CREATE TABLE witness.log (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    app text NOT NULL DEFAULT current_setting('application_name'),
    id bigint NOT NULL, token text,
    old_state text NOT NULL, state text NOT NULL,
    old_attempt integer NOT NULL, attempt integer NOT NULL,
    rescued boolean NOT NULL);
CREATE FUNCTION witness.see() RETURNS trigger LANGUAGE plpgsql AS $see$
BEGIN
    INSERT INTO witness.log (id, token, old_state, state, old_attempt, attempt, rescued)
    VALUES (OLD.id, OLD.args ->> 'token', OLD.state, CASE TG_OP WHEN 'DELETE' THEN 'gone' ELSE NEW.state::text END,
        OLD.attempt, CASE TG_OP WHEN 'DELETE' THEN OLD.attempt ELSE NEW.attempt END,
        TG_OP = 'UPDATE' AND OLD.metadata -> 'river:rescue_count' IS DISTINCT FROM NEW.metadata -> 'river:rescue_count');
    RETURN NULL;
END
$see$;
CREATE TRIGGER witness AFTER UPDATE OR DELETE ON river_job FOR EACH ROW EXECUTE FUNCTION witness.see();`

func (riverQueue) prepare(ctx context.Context, conn *pgx.Conn) error {
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig(conn.Config(), 2))
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, riverWitness)
	return err
}

// riverArgs is the payload.
type riverArgs struct{ script.Order }

func (riverArgs) Kind() string { return "order" }

func (riverQueue) enqueuer(*pgxpool.Pool) (func(context.Context, pgx.Tx, script.Order) error, error) {
	client, err := river.NewClient(riverpgxv5.New(nil), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	return func(ctx context.Context, tx pgx.Tx, o script.Order) error {
		_, err := client.InsertTx(ctx, tx, riverArgs{o}, nil)
		return err
	}, err
}

func (riverQueue) work(ctx context.Context, pool *pgxpool.Pool, name string, h handlers) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[riverArgs]) error {
		return h.run(ctx, job.ID, job.Attempt, job.Args.Order)
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		ID:                   name, // so that the leader can be told
		Queues:               map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}},
		Workers:              workers,
		JobTimeout:           timeout,
		RescueStuckJobsAfter: rescue,
		Logger:               slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return client.Stop(stop)
}

func (riverQueue) changes(ctx context.Context, pool *pgxpool.Pool) ([]change, error) {
	rows, err := pool.Query(ctx, `
SELECT at, app, id, coalesce(token, ''), old_state, state, old_attempt, attempt, rescued FROM witness.log ORDER BY seq`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c change, err error) {
		var at time.Time
		var before, after string
		err = row.Scan(&at, &c.App, &c.Job, &c.Token, &before, &after, &c.Before, &c.After, &c.Rescue)
		c.At, c.From, c.To = at.UnixNano(), riverState(before), riverState(after)
		return c, err
	})
}

func riverState(state string) state {
	switch state {
	case "running":
		return running
	case "completed", "discarded", "cancelled", "gone":
		return ended
	}
	return waiting
}

func (riverQueue) ended(ctx context.Context, pool *pgxpool.Pool) (map[string]bool, error) {
	return tokens(ctx, pool, `SELECT args ->> 'token', finalized_at IS NOT NULL FROM river_job`)
}

// leader asks the table of the election, as rows of it are the only sign that
// other processes see.
func (riverQueue) leader(ctx context.Context, pool *pgxpool.Pool) (l leader, err error) {
	err = pool.QueryRow(ctx, `SELECT leader_id, elected_at FROM river_leader WHERE expires_at > now()`).Scan(&l.name, &l.since)
	if errors.Is(err, pgx.ErrNoRows) {
		return leader{}, nil
	}
	return l, err
}
