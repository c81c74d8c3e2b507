package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// sqlSetKeep stores how long done jobs of queue $1 stay, in microseconds.
const sqlSetKeep = `
INSERT INTO {{schema}}.queues (name, keep) VALUES ($1::text, $2::bigint * interval '1 microsecond')
ON CONFLICT (name) DO UPDATE SET keep = excluded.keep`

// sqlSetBell stores whether an INSERT into queue $1 rings its bell.
const sqlSetBell = `
INSERT INTO {{schema}}.queues (name, bell) VALUES ($1::text, $2::text)
ON CONFLICT (name) DO UPDATE SET bell = excluded.bell`

// sqlPause stores that nothing is to be claimed from queue $1. One that is
// paused already keeps its time.
const sqlPause = `
INSERT INTO {{schema}}.queues AS q (name, paused_at) VALUES ($1::text, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(q.paused_at, excluded.paused_at)`

// sqlResume ends the pause of queue $1 and rings for all that has become due
// meanwhile.
const sqlResume = `
WITH resumed AS (
    UPDATE {{schema}}.queues AS q SET paused_at = NULL
    WHERE q.name = $1::text AND q.paused_at IS NOT NULL
    RETURNING q.name
)
SELECT {{schema}}.ring(r.name) FROM resumed AS r`

// sqlQueues shows every queue that has a setting, a live job or a worker. It
// reads all live jobs.
const sqlQueues = `
SELECT n.name, q.paused_at, (extract(epoch FROM coalesce(q.keep, '24 hours')) * 1000000)::bigint, coalesce(q.bell, 'auto'),
       coalesce(j.ready, 0), coalesce(j.scheduled, 0), coalesce(j.running, 0), j.oldest
FROM (SELECT q.name FROM {{schema}}.queues AS q
      UNION SELECT j.queue FROM {{schema}}.jobs AS j
      UNION SELECT jsonb_object_keys(w.queues) FROM {{schema}}.workers AS w WHERE jsonb_typeof(w.queues) = 'object') AS n (name)
LEFT JOIN {{schema}}.queues AS q ON q.name = n.name
LEFT JOIN (
    SELECT j.queue,
           count(*) FILTER (WHERE j.status = 'ready' AND j.run_at <= c.now) AS ready,
           count(*) FILTER (WHERE j.status = 'ready' AND j.run_at > c.now) AS scheduled,
           count(*) FILTER (WHERE j.status = 'running') AS running,
           min(j.run_at) FILTER (WHERE j.status = 'ready' AND j.run_at <= c.now) AS oldest
    FROM {{schema}}.jobs AS j, (SELECT clock_timestamp() AS now) AS c
    GROUP BY j.queue
) AS j ON j.queue = n.name
ORDER BY n.name`

// QueueInfo is a queue as an operator sees it.
type QueueInfo struct {
	Name string
	// PausedAt is since when nothing is claimed from it; zero: it is not paused.
	PausedAt time.Time
	Keep     time.Duration // how long its done jobs stay; 0: not at all
	Bell     Bell          // when an INSERT rings
	// Live jobs: due, due later (also those that wait for another attempt), and
	// in the hands of a worker.
	Ready, Scheduled, Running int64
	// OldestReady is since when the first of the ready jobs has been due; zero
	// if there is none.
	OldestReady time.Time
}

// Bell says when an INSERT of jobs wakes those who work the queue.
type Bell string

const (
	// BellAuto rings unless somebody looks into the queue all the time.
	BellAuto Bell = "auto"
	// BellAlways rings for each INSERT.
	BellAlways Bell = "always"
	// BellNever never rings: jobs wait for somebody to look.
	BellNever Bell = "never"
)

// SetKeep sets how long done jobs of a queue stay.
func (t *Table) SetKeep(ctx context.Context, db DB, queue string, keep time.Duration) error {
	return t.set(ctx, db, fmt.Sprintf("set keep of queue %q", queue), sqlSetKeep, queue, keep.Microseconds())
}

// SetBell sets when an INSERT into a queue wakes those who work it, and wakes them
// once.
func (t *Table) SetBell(ctx context.Context, db DB, queue string, bell Bell) error {
	b := inOneGo(t)
	b.Queue(t.sql(sqlSetBell), queue, string(bell))
	b.Queue(t.sql(sqlRing), queue)
	return classify(fmt.Sprintf("set bell of queue %q", queue), db.SendBatch(ctx, b).Close())
}

// Pause lets nobody claim from a queue, which need not exist yet. What runs
// goes on.
func (t *Table) Pause(ctx context.Context, db DB, queue string) error {
	return t.set(ctx, db, fmt.Sprintf("pause queue %q", queue), sqlPause, queue)
}

// Resume ends a pause, if there is one.
func (t *Table) Resume(ctx context.Context, db DB, queue string) error {
	return t.set(ctx, db, fmt.Sprintf("resume queue %q", queue), sqlResume, queue)
}

func (t *Table) set(ctx context.Context, db DB, op, statement string, args ...any) error {
	b := inOneGo(t)
	b.Queue(t.sql(statement), args...)
	return classify(op, db.SendBatch(ctx, b).Close())
}

// Queues returns every queue, by name.
func (t *Table) Queues(ctx context.Context, db DB) ([]QueueInfo, error) {
	rows, err := db.Query(ctx, t.sql(sqlQueues))
	if err != nil {
		return nil, classify("list queues", err)
	}
	queues, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (q QueueInfo, err error) {
		var paused, oldest *time.Time
		var keep int64
		err = row.Scan(&q.Name, &paused, &keep, &q.Bell, &q.Ready, &q.Scheduled, &q.Running, &oldest)
		q.Keep = micros(keep)
		if paused != nil {
			q.PausedAt = *paused
		}
		if oldest != nil {
			q.OldestReady = *oldest
		}
		return q, err
	})
	return queues, classify("list queues", err)
}
