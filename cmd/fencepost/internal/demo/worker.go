package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
)

const (
	slots       = 8 // jobs at once in one worker
	workerConns = 4 // in the pool of a worker, for its handlers
	queueName   = "invoices"
)

// invoice is the payload of the jobs that count.
type invoice struct {
	ID    int64 `json:"id"`
	Cents int64 `json:"cents"`
}

func (invoice) Kind() string { return "invoice" }

// probe is the payload of the jobs that measure the pick-up.
type probe struct{}

func (probe) Kind() string { return "probe" }

// Work is the life of one worker process: it reads its assignment from in,
// works until in or the context ends, and reports to out. One call of a
// process; a read of in is left behind if the context ends first.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return fmt.Errorf("read the assignment: %w", lines.Err())
	}
	var job assignment
	if err := json.Unmarshal(lines.Bytes(), &job); err != nil {
		return fmt.Errorf("read the assignment: %w", err)
	}
	config, err := poolConfig(job.DatabaseURL, sessionName(job.Schema, job.Name), workerConns)
	if err != nil {
		return err
	}
	var statements counter
	config.ConnConfig.Tracer = &statements
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	say := (&voice{out: out}).say
	go func() {
		for lines.Scan() { // there is only one question
			say(eventStatements, statements.n.Load())
		}
		stop()
	}()
	if job.Naive {
		return (&naiveWorker{job: job, pool: pool}).run(ctx, func() { say(eventWorking, 0) })
	}
	return work(ctx, pool, job, say)
}

// sessionName is the application_name of all sessions of a worker, at most 63
// bytes long.
func sessionName(schema, worker string) string { return schema + " worker " + worker }

func work(ctx context.Context, pool *pgxpool.Pool, job assignment, say func(event, int64)) error {
	var begun sync.Once
	client, err := fencepost.New(pool, fencepost.Config{
		Schema:       job.Schema,
		Queues:       map[string]fencepost.Queue{queueName: {Slots: slots}},
		Lease:        job.Lease,
		PollInterval: job.Poll,
		Observer: fencepost.Observer{
			Refused: func(int64, int64) { say(eventRefused, 0) },
			Hearing: func(bool) { begun.Do(func() { say(eventWorking, 0) }) },
		},
	})
	if err != nil {
		return err
	}
	effects := effects{pool: pool, schema: job.Schema}
	fencepost.Handle(client, func(ctx context.Context, j *fencepost.Job[invoice]) error {
		return effects.cause(ctx, j.ID, j.Fence, j.Payload.ID, job.Effort)
	})
	fencepost.Handle(client, func(context.Context, *fencepost.Job[probe]) error {
		say(eventStarted, time.Now().UnixNano())
		return nil
	})
	return client.Run(ctx)
}

// effects is the outside world of the handlers.
type effects struct {
	pool   *pgxpool.Pool
	schema string
}

// sqlEffect notes a handler that began $4 microseconds ago.
const sqlEffect = `
INSERT INTO {{schema}}.effects (job_id, fence, invoice_id, started_at, ended_at)
SELECT $1, $2, $3, c.now - $4::bigint * interval '1 microsecond', c.now FROM (SELECT clock_timestamp() AS now) AS c`

// cause is a handler: it takes its time and leaves its mark. It is as stubborn
// as code in the field and does not look at its context, so that nothing but
// the queue keeps a late one from doing harm to the job.
func (e effects) cause(ctx context.Context, job, fence, invoice int64, effort time.Duration) error {
	begun := time.Now()
	time.Sleep(effort)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, err := e.pool.Exec(ctx, inSchema(sqlEffect, e.schema), job, fence, invoice, time.Since(begun).Microseconds())
	if err != nil {
		return fmt.Errorf("the effect of job %d: %w", job, err)
	}
	return nil
}
