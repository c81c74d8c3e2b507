package fencepost

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
)

// Client enqueues jobs and, with Run, works them. It may be used by any number
// of goroutines.
type Client struct {
	pool   *pgxpool.Pool
	config Config
	table  *claim.Table

	sqlEnqueue string
	// workerID names this process in the rows it holds. It is new at every
	// start, so that a process does not mistake its former life's jobs for its
	// own.
	workerID string
	// completed are claims that a handler has ended in its own transaction.
	completed leaseSet

	mu       sync.Mutex
	handlers map[string]handler
	started  bool

	// Not under mu, which a Run that begins may hold for long.
	dispatcher atomic.Pointer[dispatcher.Dispatcher] // set by Run
	hurry      atomic.Bool                           // StopNow has been called
	// unprepared is set once a pooler was met: from then on our statements have
	// no names.
	unprepared   atomic.Bool
	needsSession bool         // of the pool's mode
	lastReset    atomic.Int64 // of the pool, by onPool; in ns since 1970
}

// New returns a client on the pool, which stays the caller's. It does not
// connect.
//
// The pool is used to enqueue, to inspect and by handlers. Run opens up to
// three connections of its own, made from the pool's configuration, so that
// busy handlers cannot keep the queue from the database.
func New(pool *pgxpool.Pool, config Config) (*Client, error) {
	if pool == nil {
		return nil, errors.New("fencepost: pool is nil")
	}
	config, err := config.resolve()
	if err != nil {
		return nil, err
	}
	return &Client{
		pool:         pool,
		config:       config,
		table:        claim.In(config.Schema),
		sqlEnqueue:   inSchema(sqlEnqueue, config.Schema),
		workerID:     newWorkerID(),
		handlers:     make(map[string]handler),
		needsSession: needsSession(pool.Config().ConnConfig.DefaultQueryExecMode),
	}, nil
}

func inSchema(template, schema string) string {
	return strings.ReplaceAll(template, "{{schema}}", pgx.Identifier{schema}.Sanitize())
}

func newWorkerID() string {
	host, err := os.Hostname()
	if err != nil || !cleanText(host) {
		host = "unknown"
	}
	return fmt.Sprintf("%.64s:%d:%s", host, os.Getpid(), rand.Text()[:8])
}

// Job statuses, as Info and Filter name them.
const (
	StatusReady     = "ready"
	StatusScheduled = "scheduled" // ready, but only later
	StatusRetrying  = "retrying"  // the same after a failed attempt
	StatusRunning   = "running"
	StatusDone      = "done"
	StatusDead      = "dead"
	StatusCancelled = "cancelled"
)

// Info is a job as an operator sees it, live or ended.
type Info = claim.Info

// Filter selects jobs for List; its zero value selects the newest 100.
type Filter = claim.Filter

// Get returns a job, live or ended, or ErrNotFound.
func (c *Client) Get(ctx context.Context, id int64) (Info, error) {
	var info Info
	err := c.onPool(ctx, func(db poolDB) (err error) {
		info, err = c.table.Get(ctx, db, id)
		return err
	})
	return info, err
}

// List returns the jobs that match, newest first.
func (c *Client) List(ctx context.Context, f Filter) ([]Info, error) {
	var list []Info
	err := c.onPool(ctx, func(db poolDB) (err error) {
		list, err = c.table.List(ctx, db, f)
		return err
	})
	return list, err
}

// sqlSetKeep stores a setting of a queue.
const sqlSetKeep = `
INSERT INTO {{schema}}.queues (name, keep) VALUES ($1::text, $2::bigint * interval '1 microsecond')
ON CONFLICT (name) DO UPDATE SET keep = excluded.keep`

// maxKeep is what the table allows.
const maxKeep = 100 * 365 * 24 * time.Hour

// SetKeep sets, for all processes, how long done jobs of a queue stay to be
// looked at: 24 h unless set, at most 100 years. With 0 they are deleted in the
// statement that ends them. It applies to jobs that end from now on; dead ones
// stay 30 days, cancelled ones 24 h.
func (c *Client) SetKeep(ctx context.Context, queue string, keep time.Duration) error {
	if err := checkName(queue); err != nil {
		return fmt.Errorf("set keep: queue %q: name %w", queue, err)
	}
	if keep < 0 || keep > maxKeep {
		return fmt.Errorf("set keep of queue %q: %v: must be between 0 and 100 years", queue, keep)
	}
	err := c.onPool(ctx, func(db poolDB) error {
		_, err := db.Exec(ctx, inSchema(sqlSetKeep, c.config.Schema), queue, keep.Microseconds())
		return err
	})
	if err != nil {
		return fmt.Errorf("set keep of queue %q: %w", queue, err)
	}
	return nil
}
