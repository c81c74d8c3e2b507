package host

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Position is a place in the write-ahead log.
type Position string

// WAL is what was written to the log between two positions, by whomever: one
// round runs on the server at a time, and what autovacuum writes for its tables
// is part of what it costs.
type WAL struct {
	// Bytes is all of it, with the headers of pages and what aligns records.
	Bytes int64
	// Images is how many of Bytes are images of whole pages. They are written
	// at the first change of a page after a checkpoint: how many there are says
	// when the checkpoint was and not what a job costs.
	Images int64
	// Commits is how many transactions were committed that had changed
	// something. Those that only looked write nothing.
	Commits int64
}

// Plain is how many bytes were written without images.
func (w WAL) Plain() int64 { return w.Bytes - w.Images }

// Position returns the end of what is on disk. Whatever was committed durably
// before is in front of it.
func (h *Host) Position(ctx context.Context) (p Position, err error) {
	err = h.admin(ctx, func(c *pgx.Conn) error {
		if _, err := c.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_walinspect"); err != nil {
			return err
		}
		return c.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&p)
	})
	return p, err
}

// Hush lets the reading of the log and of the counters write nothing itself:
// what it needs has been created by then, and the catalogues that name it have
// been tidied. Otherwise whoever looks at them does so, and with checksums that
// goes to the log.
func (h *Host) Hush(ctx context.Context) error {
	if _, err := h.Position(ctx); err != nil {
		return err
	}
	return h.admin(ctx, func(c *pgx.Conn) error { _, err := c.Exec(ctx, "VACUUM (ANALYZE)"); return err })
}

// WithoutAutovacuum keeps autovacuum away until undo is called. In the first
// minutes of a server and of a database it writes more to the log, about their
// catalogues, than whoever has nothing to do does in a day.
func (h *Host) WithoutAutovacuum(ctx context.Context) (undo func() error, err error) {
	set := func(ctx context.Context, sql string) error {
		return h.admin(ctx, func(c *pgx.Conn) error {
			if _, err := c.Exec(ctx, sql); err != nil { // by itself: it cannot be in a transaction
				return err
			}
			_, err := c.Exec(ctx, "SELECT pg_reload_conf()")
			return err
		})
	}
	undo = func() error { return set(context.WithoutCancel(ctx), "ALTER SYSTEM RESET autovacuum") }
	return undo, set(ctx, "ALTER SYSTEM SET autovacuum = off")
}

// sqlWAL reads the log itself. The server's counters (pg_stat_wal,
// pg_stat_database) would not do: a connection adds what it did up to ten
// seconds later, and they count images without saying how large they were,
// which is a page less the free room in it.
const sqlWAL = `
SELECT pg_wal_lsn_diff($2::text::pg_lsn, $1::text::pg_lsn)::bigint,
       coalesce(sum(fpi_size), 0)::bigint,
       coalesce(sum(count) FILTER (WHERE "resource_manager/record_type" = 'Transaction/COMMIT'), 0)::bigint
FROM pg_get_wal_stats($1::text::pg_lsn, $2::text::pg_lsn, per_record => true)`

// WAL reads what was written between two positions. It has to be called before
// the next checkpoint, which removes the files.
func (h *Host) WAL(ctx context.Context, from, to Position) (w WAL, err error) {
	if from == to {
		return w, nil // the server would look for a record and find none
	}
	err = h.admin(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, sqlWAL, string(from), string(to)).Scan(&w.Bytes, &w.Images, &w.Commits)
	})
	return w, err
}
