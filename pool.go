package fencepost

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/claim"
)

// resetPause is the least time between two resets of the caller's pool, whose
// connections are not only ours.
const resetPause = time.Second

// onPool is the one way of the client's statements to the caller's pool. What
// failed because of the way there, and has changed nothing, is tried once more:
// on new connections if the server takes no writes, as after a failover, and
// without names for statements if a pooler lost them. do must not mind to be
// called twice.
func (c *Client) onPool(ctx context.Context, do func(poolDB) error) error {
	err := do(c.poolDB())
	if err == nil {
		return nil
	}
	err = claim.RouteError(err)
	switch {
	case errors.Is(err, claim.ErrReadOnly):
		c.metReadOnly()
	case errors.Is(err, claim.ErrUnprepared):
		c.metPooler(ctx)
	default:
		return err
	}
	if err = do(c.poolDB()); err != nil {
		return claim.RouteError(err)
	}
	return nil
}

// fromPool is onPool for what has an answer.
func fromPool[T any](ctx context.Context, c *Client, ask func(poolDB) (T, error)) (answer T, err error) {
	err = c.onPool(ctx, func(db poolDB) (err error) {
		answer, err = ask(db)
		return err
	})
	return answer, err
}

// metPooler is called when it is found that a pooler sits between.
func (c *Client) metPooler(ctx context.Context) {
	if c.unprepared.CompareAndSwap(false, true) {
		c.config.Logger.InfoContext(ctx, "a pooler sits between this process and the database: statements are sent without names, and nothing is left with a session")
	}
}

// metReadOnly is called when a server was met that takes no writes: connections
// of the pool that lead there are to be made anew, at most once in resetPause.
func (c *Client) metReadOnly() {
	now := time.Now().UnixNano()
	if last := c.lastReset.Load(); now-last > int64(resetPause) && c.lastReset.CompareAndSwap(last, now) {
		c.pool.Reset()
	}
}

// learn returns the error of a statement in a transaction of the caller's, who
// alone can try again, and whose next one must get through.
func (c *Client) learn(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, claim.ErrUnprepared):
		c.metPooler(ctx)
	case errors.Is(err, claim.ErrReadOnly):
		c.metReadOnly()
	}
	return err
}

// needsSession reports a mode that leaves a statement with a server session
// from one round trip to the next. Behind a pooler that may be another session,
// where a statement of somebody else has that name, or none.
func needsSession(mode pgx.QueryExecMode) bool {
	return mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeDescribeExec
}

// poolDB is the pool, or the pool with statements that have no names. Its mode
// is a setting of the caller's that cannot be changed any more.
type poolDB struct {
	pool       *pgxpool.Pool
	unprepared bool
}

func (c *Client) poolDB() poolDB {
	return poolDB{c.pool, c.nameless()}
}

// nameless says that statements which we send over the caller's connections,
// also in its transactions, must have no names.
func (c *Client) nameless() bool { return c.needsSession && c.unprepared.Load() }

func (p poolDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if p.unprepared {
		args = withoutName(args)
	}
	return p.pool.Query(ctx, sql, args...)
}

func (p poolDB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if p.unprepared {
		args = withoutName(args)
	}
	return p.pool.QueryRow(ctx, sql, args...)
}

// SendBatch returns results of which only Close may be called.
func (p poolDB) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if !p.unprepared {
		return p.pool.SendBatch(ctx, b)
	}
	tx, err := p.pool.Begin(ctx)
	return &oneByOne{ctx: ctx, tx: tx, err: err, left: b.QueuedQueries}
}

func withoutName(args []any) []any { return append([]any{pgx.QueryExecModeExec}, args...) }

// keepsPlans says that the session of a transaction would keep the plan of a
// statement, and use it when the table is another: one that was made while the
// queue was empty reads all jobs. To plan it each time takes a quarter of a
// millisecond.
func keepsPlans(tx pgx.Tx) bool {
	conn := tx.Conn()
	return conn != nil && needsSession(conn.Config().DefaultQueryExecMode)
}

// unpreparedTx is a transaction in which a row is asked for without a name.
type unpreparedTx struct{ pgx.Tx }

func (tx unpreparedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return tx.Tx.QueryRow(ctx, sql, withoutName(args)...)
}

// oneByOne sends the statements of a batch one after the other, in a
// transaction: a batch as pgx sends it takes no mode. Everything happens in
// Close; the other methods are for the funcs of the statements, which it calls.
type oneByOne struct {
	ctx  context.Context
	tx   pgx.Tx
	err  error
	left []*pgx.QueuedQuery
}

func (o *oneByOne) Close() error {
	if o.err != nil {
		return o.err
	}
	for len(o.left) > 0 && o.err == nil {
		if fn := o.left[0].Fn; fn != nil {
			o.err = fn(o)
		} else {
			_, o.err = o.Exec()
		}
	}
	o.err = endTx(o.ctx, o.tx, o.err)
	return o.err
}

func (o *oneByOne) next() (sql string, args []any) {
	q := o.left[0]
	o.left = o.left[1:]
	return q.SQL, withoutName(q.Arguments)
}

func (o *oneByOne) Exec() (pgconn.CommandTag, error) {
	sql, args := o.next()
	return o.tx.Exec(o.ctx, sql, args...)
}

func (o *oneByOne) Query() (pgx.Rows, error) {
	sql, args := o.next()
	return o.tx.Query(o.ctx, sql, args...)
}

func (o *oneByOne) QueryRow() pgx.Row {
	sql, args := o.next()
	return o.tx.QueryRow(o.ctx, sql, args...)
}

func (o *oneByOne) Tx() pgx.Tx { return nil } // the batch began none
