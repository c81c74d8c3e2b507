package suite

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// unfinished says where each queue has the jobs whose outcome it has not
// stored: what follows FROM. A job that has run counts when it is gone from
// there, whatever the queue's handlers, metrics or events have said.
var unfinished = map[string]string{
	"fencepost": "fencepost.jobs",
	"floor":     "fencepost.jobs",
	"wakefloor": "fencepost.jobs",
	"river":     "river_job WHERE state <> 'completed'",
	"graphile":  "graphile_worker._private_jobs",
	"pgboss":    "pgboss.job WHERE name NOT LIKE '\\_\\_pgboss\\_\\_%' AND state <> 'completed'",
	"gue":       "gue_jobs",
}

// ledger reads a queue's own tables.
type ledger struct {
	conn *pgx.Conn
	from string
}

func openLedger(ctx context.Context, peer, dsn string) (*ledger, error) {
	from, ok := unfinished[peer]
	if !ok {
		return nil, fmt.Errorf("it is not known where %s has its jobs", peer)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	l := &ledger{conn: conn, from: from}
	// After a drain the planner takes the table for full of unfinished jobs, of
	// which it would soon meet one. An index forgets the dead ones once it has
	// met them.
	if _, err := conn.Exec(ctx, "SET enable_seqscan = off"); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// tidy does what autovacuum would do some time after so many jobs were loaded:
// now, and for every queue, so that the planner knows the tables' sizes and so
// that it does not come in one drain and not in the next. It stays on.
func (l *ledger) tidy(ctx context.Context) error {
	_, err := l.conn.Exec(ctx, "VACUUM (ANALYZE)")
	return err
}

// left counts the jobs whose outcome is not stored.
func (l *ledger) left(ctx context.Context) (n int, err error) {
	err = l.conn.QueryRow(ctx, "SELECT count(*) FROM "+l.from).Scan(&n)
	return n, err
}

// empty says whether there is none.
func (l *ledger) empty(ctx context.Context) (yes bool, err error) {
	err = l.conn.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM "+l.from+")").Scan(&yes)
	return yes, err
}

// emptied waits until there is none, or until the given time of wire.Now. It
// returns the time at which that was so, and how many are left.
func (l *ledger) emptied(ctx context.Context, limit int64) (at int64, left int, err error) {
	for {
		at = wire.Now() // before the look: the look is of no later moment
		yes, err := l.empty(ctx)
		if err != nil || yes {
			return at, 0, err
		}
		if at >= limit {
			at = wire.Now()
			left, err = l.left(ctx)
			return at, left, err
		}
		until(at + watchEvery)
	}
}

// watched is emptied with one look after the other, and the time at which the
// last of them had its answer: not too early for anybody.
func (l *ledger) watched(ctx context.Context, limit int64) (at int64, left int, err error) {
	for {
		yes, err := l.empty(ctx)
		at = wire.Now()
		if err != nil || yes {
			return at, 0, err
		}
		if at >= limit {
			left, err = l.left(ctx)
			return at, left, err
		}
	}
}

func (l *ledger) close() error { return l.conn.Close(context.Background()) }
