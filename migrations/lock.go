package migrations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// DDL waits this long for a table lock. While it waits, everybody else
	// queues up behind it, so it gives up soon and comes back.
	ddlWait  = 300 * time.Millisecond
	ddlPause = time.Second
)

// lockWait is how long a migration waits for another one to end. Tests wait for
// less.
var lockWait = time.Minute

// ddlAttempts is about a minute of them. Tests take fewer.
var ddlAttempts = 50

// One migrator at a time and schema. A transaction-level lock needs no session
// of its own, so it is safe behind a pooler and gone with the transaction.
const sqlLock = `SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('fencepost migrate ' || $1::text, 0))`

// locked runs do in a transaction that holds the migration lock, and again for
// as long as a lock on a table cannot be had, for about a minute in all.
func locked(ctx context.Context, conn *pgx.Conn, schema string, do func(tx pgx.Tx) error) error {
	// Whatever the role's default is: what do reads must be as it is after the
	// wait for the lock, not as it was before.
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	wait := ddlWait
	for attempt := 1; ; attempt++ {
		mine := false
		err := pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", lockWait.Milliseconds())); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, sqlLock, schema); err != nil {
				return fmt.Errorf("waiting for another migration to end: %w", err)
			}
			mine = true
			if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", wait.Milliseconds())); err != nil {
				return err
			}
			return do(tx)
		})
		var server *pgconn.PgError
		if err == nil || !errors.As(err, &server) || server.Code != "55P03" && server.Code != "40P01" {
			return err
		}
		if !mine {
			held, herr := readHolders(ctx, conn, sqlMigrator, schema)
			return errors.Join(fmt.Errorf("%w, after %v; the lock of those who migrate is %s", err, lockWait, held.by()), herr)
		}
		held, herr := readHolders(ctx, conn, sqlHolders, schema, ddlWait.Microseconds())
		if attempt == ddlAttempts {
			return errors.Join(fmt.Errorf("%w, %d times; %s", err, attempt, held), herr)
		}
		wait = ddlWait
		if held.autovacuum() {
			// It steps back for us, but only once we have waited this long.
			wait += held.deadlockTimeout
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, after: %w; %s", context.Cause(ctx), err, held)
		case <-time.After(ddlPause):
		}
	}
}

// holders are the sessions that hold what is waited for: the lock of those who
// migrate; or, for longer than DDL waits, so that they are probably why, one on
// a table of the schema.
type holders struct {
	list            []holder
	deadlockTimeout time.Duration
}

type holder struct {
	PID        *int32 // nil: a prepared transaction
	Role       *string
	State      *string
	Age        *int64 // of the transaction, in seconds
	QueryStart *time.Time
}

// Roles that do not see others' sessions get their process ids all the same.
const sqlHolders = `
SELECT l.pid, a.usename::text, a.state, extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)::bigint, a.query_start
FROM (SELECT DISTINCT k.pid
      FROM pg_catalog.pg_locks AS k
      JOIN pg_catalog.pg_class AS c ON c.oid = k.relation
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
      WHERE k.locktype = 'relation' AND k.granted AND n.nspname = $1::text
        AND k.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
        AND k.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()) AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE a.xact_start IS NULL OR a.xact_start < pg_catalog.clock_timestamp() - $2::bigint * interval '1 microsecond'
ORDER BY a.xact_start NULLS LAST, l.pid
LIMIT 5`

// sqlMigrator finds who has the lock of sqlLock, whose key is in two halves.
const sqlMigrator = `
SELECT l.pid, a.usename::text, a.state, extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)::bigint, a.query_start
FROM pg_catalog.pg_locks AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
  AND (l.classid::bigint << 32 | l.objid::bigint) = pg_catalog.hashtextextended('fencepost migrate ' || $1::text, 0)`

func readHolders(ctx context.Context, conn *pgx.Conn, sql string, args ...any) (h holders, err error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err == nil {
		h.list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[holder])
	}
	if err == nil {
		var ms int64
		err = conn.QueryRow(ctx, "SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'deadlock_timeout'").Scan(&ms)
		h.deadlockTimeout = time.Duration(ms) * time.Millisecond
	}
	if err != nil {
		return h, fmt.Errorf("ask who holds the locks: %w", err)
	}
	return h, nil
}

// autovacuum reports that a process of the server's own is among them, which
// for a table lock is autovacuum.
func (h holders) autovacuum() bool {
	for _, s := range h.list {
		if s.PID != nil && s.Role == nil {
			return true
		}
	}
	return false
}

// String names the sessions, but not what they do: a statement may hold secrets.
func (h holders) String() string {
	if len(h.list) == 0 {
		return "who held the table is gone: try again"
	}
	return "tables of the schema are " + h.by()
}

// by is the end of a sentence about what they hold.
func (h holders) by() string {
	if len(h.list) == 0 {
		return "free by now: try again"
	}
	var each []string
	for _, s := range h.list {
		switch {
		case s.PID == nil:
			each = append(each, "a prepared transaction (see pg_prepared_xacts)")
		case s.Role == nil:
			each = append(each, fmt.Sprintf("process %d (autovacuum)", *s.PID))
		case s.Age == nil:
			each = append(each, fmt.Sprintf("process %d of role %q (a member of pg_read_all_stats would see since when)", *s.PID, *s.Role))
		default:
			text := fmt.Sprintf("process %d of role %q, in a transaction for %v", *s.PID, *s.Role, time.Duration(*s.Age)*time.Second)
			if s.State != nil {
				text += ", " + *s.State
			}
			if s.QueryStart != nil {
				text += ", its last statement began at " + s.QueryStart.UTC().Format(time.RFC3339)
			}
			each = append(each, text)
		}
	}
	return "held by " + strings.Join(each, "; ") + "; end that transaction or try again later"
}
