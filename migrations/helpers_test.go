package migrations_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

const schema = "fencepost"

// bench is an empty database and one connection to it.
type bench struct {
	t    testing.TB
	ctx  context.Context // bounds the whole test
	dsn  string
	conn *pgx.Conn
}

func setUp(t testing.TB) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	dsn := pgtest.New(t, "empty", func(context.Context, string) error { return nil })
	return &bench{t, ctx, dsn, pgtest.Conn(t, dsn)}
}

// migrated is a database with the newest schema.
func migrated(t testing.TB) *bench {
	t.Helper()
	b := setUp(t)
	b.up(schema)
	return b
}

func (b *bench) up(schema string) []migrations.Migration {
	b.t.Helper()
	applied, err := migrations.Up(b.ctx, b.conn, schema)
	if err != nil {
		b.t.Fatal(err)
	}
	return applied
}

func (b *bench) connect() *pgx.Conn { return pgtest.Conn(b.t, b.dsn) }

// named puts the schema's name into a statement of a test.
func named(sql, schema string) string {
	return strings.ReplaceAll(sql, "{{schema}}", pgx.Identifier{schema}.Sanitize())
}

// script runs statements without parameters.
func (b *bench) script(sql string) {
	b.t.Helper()
	if err := runScript(b.ctx, b.conn, sql); err != nil {
		b.t.Fatalf("%.300s: %v", sql, err)
	}
}

func runScript(ctx context.Context, conn *pgx.Conn, sql string) error {
	_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// ask returns the one value that a statement selects.
func ask[T any](b *bench, sql string, args ...any) (value T) {
	b.t.Helper()
	if err := b.conn.QueryRow(b.ctx, sql, args...).Scan(&value); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// expect compares the one value that a statement selects.
func expect[T comparable](b *bench, want T, sql string, args ...any) {
	b.t.Helper()
	if got := ask[T](b, sql, args...); got != want {
		b.t.Errorf("%s: got %v, want %v", sql, got, want)
	}
}

// until waits for something that has no event, such as a session that waits.
func (b *bench) until(what, sql string, args ...any) {
	b.t.Helper()
	for !ask[bool](b, sql, args...) {
		if b.ctx.Err() != nil {
			b.t.Fatalf("never happened: %s", what)
		}
	}
}

// waiting is the number of sessions of the database that wait for a lock.
const waiting = `(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`

// catalog describes all objects of a schema, one a line.
func (b *bench) catalog(schema string) string {
	b.t.Helper()
	return ask[string](b, `
		WITH r AS (SELECT c.oid, c.relname, c.relkind, c.relpersistence FROM pg_class AS c
		           WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1::text) AND c.relkind IN ('r', 'v', 'S', 'i')),
		lines (line) AS (
			SELECT format('relation %s %s %s', relname, relkind, relpersistence) FROM r
			UNION ALL
			SELECT format('column %s.%s %s: %s not null=%s identity=%s default=%s', r.relname,
				row_number() OVER (PARTITION BY r.oid ORDER BY a.attnum), a.attname,
				format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, pg_get_expr(d.adbin, d.adrelid))
			FROM r JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
			LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
			UNION ALL
			SELECT format('constraint %s %s: %s', r.relname, c.conname, pg_get_constraintdef(c.oid)) FROM r JOIN pg_constraint AS c ON c.conrelid = r.oid
			UNION ALL
			SELECT format('index %s', pg_get_indexdef(oid)) FROM r WHERE relkind = 'i'
			UNION ALL
			SELECT format('view %s: %s', relname, pg_get_viewdef(oid)) FROM r WHERE relkind = 'v'
			UNION ALL
			SELECT format('trigger %s %s', pg_get_triggerdef(t.oid), t.tgenabled) FROM r JOIN pg_trigger AS t ON t.tgrelid = r.oid AND NOT t.tgisinternal
			UNION ALL
			SELECT format('function %s', pg_get_functiondef(p.oid)) FROM pg_proc AS p
			WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1::text)
			UNION ALL
			SELECT format('type %s %s', typname, typtype) FROM pg_type
			WHERE typnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1::text) AND typtype IN ('d', 'e'))
		SELECT coalesce(string_agg(line, E'\n' ORDER BY line COLLATE "C"), '') FROM lines`, schema)
}

// books is what the bookkeeping table says, without the time.
func (b *bench) books(schema string) string {
	b.t.Helper()
	return ask[string](b, named(`SELECT coalesce(string_agg(format('%s %s %s %s', version, name, checksum, oldest_code), E'\n' ORDER BY version), '')
		FROM {{schema}}.schema_migrations`, schema))
}

// code is the SQLSTATE of a server's error, and constraint the one it names.
func code(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}

func constraint(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.ConstraintName
	}
	return ""
}
