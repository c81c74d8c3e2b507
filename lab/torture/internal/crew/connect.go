package crew

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	dialTimeout = 5 * time.Second
	// patience is for one statement, or one round of few: a silent network must
	// not hold anybody for ever.
	patience = 10 * time.Second
	// conns are in a pool of which nobody has said how large it is to be.
	conns = 8
	// unnamed is the mode of our own statements: it leaves nothing with a
	// session, so that any pooler may sit between.
	unnamed = pgx.QueryExecModeExec
)

// connect makes a pool on the way to the database. It does not connect yet.
//
// A client that stands on the pool makes its own connections from the pool's
// configuration, and names those that come without a name. So the name of the
// pool's is not in the configuration, but given by AfterConnect, which leaves
// those of the client alone: they have one by then.
func connect(m member) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(m.DSN)
	if err != nil {
		return nil, fmt.Errorf("read the DSN: %w", err)
	}
	config.MaxConns = conns
	if m.MaxConns > 0 {
		config.MaxConns = int32(m.MaxConns)
	}
	config.ConnConfig.ConnectTimeout = dialTimeout
	delete(config.ConnConfig.RuntimeParams, "application_name")
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if conn.Config().RuntimeParams["application_name"] != "" {
			return nil
		}
		_, err := conn.Exec(ctx, `SELECT set_config('application_name', $1, false)`, unnamed, m.Name)
		return err
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

// reachable waits until the database answers: a process that begins during an
// outage waits for its end. It returns false if ctx ended first.
func reachable(ctx context.Context, pool *pgxpool.Pool) bool {
	for ctx.Err() == nil {
		if ping(ctx, pool) == nil {
			return true
		}
		rest(ctx, 200*time.Millisecond)
	}
	return false
}

func ping(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return pool.Ping(ctx)
}

// leaveReadOnly has the pool make new connections if err says that the server
// takes no writes any more, as after a failover: a new one may lead to the one
// that does.
func leaveReadOnly(pool *pgxpool.Pool, err error) {
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "25006" {
		pool.Reset()
	}
}

// rest waits, and returns the cause of the context's end if that came first.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
