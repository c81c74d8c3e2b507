package crew

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
	"github.com/fencepost-go/fencepost/migrations"
)

// floor is no queue: it is what Fencepost's tables let one do by hand. It
// commits what it says it has done, guards each completion by the fence, and
// does nothing else: no lease is renewed, nothing comes back after a crash,
// nothing wakes it. At its best the bell is off; otherwise the tables are as
// the migrations make them.
type floor struct {
	pool   *pgxpool.Pool
	batch  int // of each claim
	queues []string
	finish string // floorDelete or floorMove
}

const (
	// Connections that work each queue. A third gains nothing on two cores.
	floorConns     = 2
	floorBestBatch = 500
	floorBatch     = 100
	// How long a worker that found nothing waits before it looks again.
	floorPoll = 5 * time.Millisecond
	// The lease of a claim, which nobody looks at in the bench.
	floorLease = "1 minute"
)

func (q *floor) Open(ctx context.Context, o wire.Options) (d wire.Described, err error) {
	if q.pool, err = floorPool(ctx, o.DSN); err != nil {
		return d, err
	}
	bell := "the bell rings"
	if o.Best {
		bell = "no bell"
		if err := dropBell(ctx, q.pool); err != nil {
			return d, err
		}
	}
	q.batch = cmp.Or(o.Batch, floorBatch)
	if o.Best {
		q.batch = cmp.Or(o.Batch, floorBestBatch)
	}
	q.queues = orOne(o.Queues, fencepost.DefaultQueue)
	kept := "done jobs deleted"
	if q.finish = floorDelete; o.Keep {
		q.finish, kept = floorMove, "done jobs moved to the history"
	}
	return wire.Described{
		Version: "hand-written SQL, tables of this checkout " + revision(),
		Settings: fmt.Sprintf("%d connections, claims of %d, the jobs of each at once, the last batch ended in the commit of the next claim, which is durable; "+
			"a look each %v when there is nothing; %s; %s", floorConns, q.batch, floorPoll, bell, kept),
	}, nil
}

// floorPool connects as a queue's own connections may: its plans are known to
// be good ones, so they need not be made again for each statement.
func floorPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	config.ConnConfig.RuntimeParams["jit"] = "off"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return pool, pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := migrations.Up(ctx, c.Conn(), fencepost.DefaultSchema)
		return err
	})
}

func dropBell(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `DROP TRIGGER IF EXISTS bell ON fencepost.jobs`)
	return err
}

func (q *floor) One(ctx context.Context, job Job) error {
	payload, err := json.Marshal(job.Payload)
	if err != nil {
		return err
	}
	var id int64
	if job.RunAt.IsZero() {
		return q.pool.QueryRow(ctx, `
INSERT INTO fencepost.jobs (queue, kind, payload) VALUES ($1, $2, $3) RETURNING id`,
			queueOf(job), kind, payload).Scan(&id)
	}
	return q.pool.QueryRow(ctx, `
INSERT INTO fencepost.jobs (queue, kind, payload, run_at) VALUES ($1, $2, $3, $4) RETURNING id`,
		queueOf(job), kind, payload, job.RunAt).Scan(&id)
}

func queueOf(job Job) string {
	if job.Queue == "" {
		return fencepost.DefaultQueue
	}
	return job.Queue
}

// Many gets the ids, which COPY does not give. The jobs of one call are all for
// one queue, and all of them have a time or none has.
func (q *floor) Many(ctx context.Context, jobs []Job) error {
	payloads, times := make([]json.RawMessage, len(jobs)), make([]time.Time, len(jobs))
	for i, job := range jobs {
		var err error
		if payloads[i], err = json.Marshal(job.Payload); err != nil {
			return err
		}
		times[i] = job.RunAt
	}
	sql, args := `
INSERT INTO fencepost.jobs (queue, kind, payload) SELECT $1, $2, n.payload FROM unnest($3::jsonb[]) AS n (payload) RETURNING id`,
		[]any{queueOf(jobs[0]), kind, payloads}
	if !jobs[0].RunAt.IsZero() {
		sql, args = `
INSERT INTO fencepost.jobs (queue, kind, payload, run_at) SELECT $1, $2, n.payload, n.run_at
FROM unnest($3::jsonb[], $4::timestamptz[]) AS n (payload, run_at) RETURNING id`, append(args, times)
	}
	rows, err := q.pool.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err == nil && len(ids) != len(jobs) {
		err = fmt.Errorf("%d ids for %d jobs", len(ids), len(jobs))
	}
	return err
}

func (q *floor) Copy(ctx context.Context, jobs []Job) error {
	columns := []string{"queue", "kind", "payload"}
	scheduled := !jobs[0].RunAt.IsZero()
	if scheduled {
		columns = append(columns, "run_at")
	}
	row := make([]any, len(columns))
	n, err := q.pool.CopyFrom(ctx, pgx.Identifier{fencepost.DefaultSchema, "jobs"}, columns,
		pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) {
			payload, err := json.Marshal(jobs[i].Payload)
			row[0], row[1], row[2] = queueOf(jobs[i]), kind, payload
			if scheduled {
				row[3] = jobs[i].RunAt
			}
			return row, err
		}))
	if err == nil && int(n) != len(jobs) {
		err = fmt.Errorf("%d of %d jobs copied", n, len(jobs))
	}
	return err
}

func (q *floor) Close() {
	if q.pool != nil {
		q.pool.Close()
	}
}
