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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
	"github.com/fencepost-go/fencepost/internal/peer"
)

// Client enqueues jobs and, with Run, works them. It may be used by any number
// of goroutines.
type Client struct {
	pool   *pgxpool.Pool
	config Config
	table  *claim.Table

	sqlInsert, sqlInsertMany, sqlCopy string
	// workerID names this process in the rows it holds. It is new at every
	// start, so that a process does not mistake its former life's jobs for its
	// own.
	workerID string
	// completed are claims that a handler has ended in its own transaction, which
	// may have been rolled back. They tell a job that its handler has ended in a
	// queue that keeps none from one that was taken from us: neither has left a
	// trace.
	completed leaseSet
	health    healthBook

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
	lastReset    atomic.Int64 // of the pool, by metReadOnly; in ns since 1970
	// Ways of our own connections: as the pool's, and as Config.ListenConfig says.
	route, listenRoute peer.Route
}

// New returns a client on the pool, which stays the caller's. It does not
// connect.
//
// The pool is used to enqueue, to inspect and by handlers. Run opens up to
// four connections of its own, made from the pool's configuration, so that
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
		pool:          pool,
		config:        config,
		table:         claim.In(config.Schema),
		sqlInsert:     inSchema(sqlInsert, config.Schema),
		sqlInsertMany: inSchema(sqlInsertMany, config.Schema),
		sqlCopy:       inSchema(sqlCopy, config.Schema),
		workerID:      newWorkerID(),
		handlers:      make(map[string]handler),
		needsSession:  needsSession(pool.Config().ConnConfig.DefaultQueryExecMode),
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

// Filter selects jobs for List, IDs and Count; its zero value selects all, of
// which List and IDs return 100.
type Filter = claim.Filter

// Get returns a job, live or ended, or ErrNotFound.
func (c *Client) Get(ctx context.Context, id int64) (Info, error) {
	return fromPool(ctx, c, func(db poolDB) (Info, error) { return c.table.Get(ctx, db, id) })
}

// List returns the jobs that match, newest first.
func (c *Client) List(ctx context.Context, f Filter) ([]Info, error) {
	return fromPool(ctx, c, func(db poolDB) ([]Info, error) { return c.table.List(ctx, db, f) })
}

// IDs returns the ids of the jobs that match and are above the given one, in
// ascending order, up to Limit: to go through all of them, ask again with the
// last one until there are none.
func (c *Client) IDs(ctx context.Context, f Filter, after int64) ([]int64, error) {
	return fromPool(ctx, c, func(db poolDB) ([]int64, error) { return c.table.IDs(ctx, db, f, after) })
}

// Count returns how many jobs match, whatever the Limit. It reads them all.
func (c *Client) Count(ctx context.Context, f Filter) (int64, error) {
	return fromPool(ctx, c, func(db poolDB) (int64, error) { return c.table.Count(ctx, db, f) })
}
