package rival

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// What both queues are told. Jobs take up to longest; River's documentation
// wants the timeout of jobs above that, and the rescue above the timeout.
// Fencepost's lease is as long as River's rescue, and its poll interval is as
// long as its lease, as by default.
const (
	longest = 4 * time.Second
	timeout = 5 * time.Second
	rescue  = 6 * time.Second
	slots   = 10 // of each of the processes, the default of Fencepost
	crewed  = 4  // processes
	conns   = slots
)

// queue is what the measurement asks of a queue.
type queue interface {
	name() string
	version(worker *debug.BuildInfo) string
	settings() string

	// prepare makes the tables of an empty database, and the witness that
	// changes reads.
	prepare(ctx context.Context, conn *pgx.Conn) error
	// enqueuer returns a func that enqueues a job in a transaction.
	enqueuer(pool *pgxpool.Pool) (func(context.Context, pgx.Tx, script.Order) error, error)
	// work is the life of one worker process, until ctx ends.
	work(ctx context.Context, pool *pgxpool.Pool, name string, h handlers) error

	// changes returns how jobs came to run and ceased to, in order, with times
	// by the wall clock.
	changes(ctx context.Context, pool *pgxpool.Pool) ([]change, error)
	// ended tells of each job that is there, by token, whether it has ended.
	ended(ctx context.Context, pool *pgxpool.Pool) (map[string]bool, error)
	// leader returns the process that has a part which the others have not.
	leader(ctx context.Context, pool *pgxpool.Pool) (leader, error)
}

// leader is a process that leads, and since when. Its name is empty if there
// is none.
type leader struct {
	name  string
	since time.Time
}

// handlers is what a worker process calls.
type handlers struct {
	run     func(ctx context.Context, job int64, attempt int, o script.Order) error
	refused func(job int64)
}

var queues = []queue{riverQueue{}, fencepostQueue{}}
