package bench

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	prefix  = "fencepost_bench_"
	comment = "made by fencepost bench, which drops it at its end"
)

// LeftOver is a schema of another run of the bench.
type LeftOver struct {
	Schema string
	// InUse: that run goes on. Otherwise it was killed before it could drop the
	// schema.
	InUse bool
}

// keep locks the name of the schema for as long as the bench runs: by an open
// transaction, since a pooler does not keep the locks of a session. It reads
// nothing, so it has no snapshot and keeps no dead row from being removed.
func (s *stage) keep(ctx context.Context) error {
	for _, sql := range []string{
		"BEGIN",
		// What ends open transactions would free the name. Not every version
		// knows both settings.
		`SELECT set_config(name, '0', true) FROM pg_settings
		 WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')`,
		"SELECT pg_advisory_xact_lock(" + sqlKey("'"+s.schema+"'") + ")", // of letters and digits
	} {
		if _, err := s.keeper.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// sqlKey is the key of the lock of a schema; the seed is ours.
func sqlKey(name string) string { return "hashtextextended(" + name + "::text, 7072)" }

var sqlLeftOvers = `
SELECT n.nspname::text, NOT pg_try_advisory_xact_lock_shared(` + sqlKey("n.nspname") + `)
FROM pg_namespace AS n
WHERE n.nspname ~ '^` + prefix + `[a-z2-7]{10}$' AND obj_description(n.oid, 'pg_namespace') = '` + comment + `'
ORDER BY n.nspname`

// LeftOvers lists the schemas of other runs in the database.
func LeftOvers(ctx context.Context, conn *pgx.Conn) ([]LeftOver, error) {
	rows, err := conn.Query(ctx, sqlLeftOvers)
	if err == nil {
		var list []LeftOver
		if list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[LeftOver]); err == nil {
			return list, nil
		}
	}
	return nil, fmt.Errorf("look for schemas of other runs: %w", err)
}

// Clean drops the schemas of runs that were killed, and returns all that were
// there.
func Clean(ctx context.Context, conn *pgx.Conn) ([]LeftOver, error) {
	list, err := LeftOvers(ctx, conn)
	for i, l := range list {
		if l.InUse {
			continue
		}
		if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{l.Schema}.Sanitize()+" CASCADE"); err != nil {
			return list[:i], fmt.Errorf("drop schema %s: %w", l.Schema, err)
		}
	}
	return list, err
}
