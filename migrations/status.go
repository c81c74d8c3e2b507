package migrations

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrSchema means that this code must not run on the schema as it is. The
// message says what to do about it.
var ErrSchema = errors.New("schema does not fit this program")

// Querier is what a pool, a connection and a transaction have in common.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// State is one migration as a database has it.
type State struct {
	Migration
	AppliedAt time.Time // zero if it is not applied
	// Changed means that what was applied is not the text that this code
	// holds under that number.
	Changed bool
	// Unknown means that it was applied by a newer program.
	Unknown bool
}

// Status lists every migration that this code or the database knows.
func Status(ctx context.Context, db Querier, schema string) ([]State, error) {
	if err := checkSchema(schema); err != nil {
		return nil, fmt.Errorf("migrate status: %w", err)
	}
	var list []State
	for _, m := range all {
		list = append(list, State{Migration: m})
	}
	rows, err := db.Query(ctx, fill("SELECT version, name, checksum, oldest_code, applied_at FROM {{schema}}.schema_migrations ORDER BY version", schema))
	if err == nil {
		var m Migration
		var sum string
		var at time.Time
		_, err = pgx.ForEachRow(rows, []any{&m.Version, &m.Name, &sum, &m.OldestCode, &at}, func() error {
			if m.Version > len(all) {
				list = append(list, State{Migration: m, AppliedAt: at, Unknown: true})
				return nil
			}
			known := &list[m.Version-1]
			known.AppliedAt, known.Changed = at, sum != known.checksum()
			return nil
		})
	}
	if err != nil && !missing(err) {
		return nil, fmt.Errorf("migrate status: %w", err)
	}
	return list, nil
}

// Check says whether this code may run on the schema. It wraps ErrSchema if
// not. It only reads.
func Check(ctx context.Context, db Querier, schema string) error {
	if err := checkSchema(schema); err != nil {
		return fmt.Errorf("check schema: %w", err)
	}
	var current, oldest int
	err := db.QueryRow(ctx, fill("SELECT coalesce(max(version), 0), coalesce(max(oldest_code), 0) FROM {{schema}}.schema_migrations", schema)).Scan(&current, &oldest)
	switch {
	case missing(err):
		return fmt.Errorf("%w: there is no Fencepost in schema %q of this database; run: %s", ErrSchema, schema, upCommand(schema))
	case refused(err):
		return fmt.Errorf("check schema %q: %w; see \"fencepost migrate grants\" for what roles need", schema, err)
	case err != nil:
		return fmt.Errorf("check schema %q: %w", schema, err)
	case current < Latest:
		return fmt.Errorf("%w: schema %q is at version %d and this program needs %d; run: %s", ErrSchema, schema, current, Latest, upCommand(schema))
	case oldest > Latest:
		return fmt.Errorf("%w: schema %q is at version %d, which works with programs from version %d on, and this one is at %d; install a newer one", ErrSchema, schema, current, oldest, Latest)
	}
	return nil
}

// upCommand is what to run, as a shell takes it.
func upCommand(schema string) string {
	if !plainWord.MatchString(schema) {
		schema = "'" + strings.ReplaceAll(schema, "'", `'\''`) + "'"
	}
	return "fencepost migrate up --schema " + schema
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_.,:@%+/-]+$`)

// version returns the newest applied version, 0 if there is none.
func version(ctx context.Context, db Querier, schema string) (int, error) {
	// Look first: reading a table that does not exist would end the transaction
	// in which this may run.
	has, err := hasBooks(ctx, db, schema)
	if err != nil || !has {
		return 0, err
	}
	var v int
	err = db.QueryRow(ctx, fill("SELECT coalesce(max(version), 0) FROM {{schema}}.schema_migrations", schema)).Scan(&v)
	return v, err
}

// hasBooks reports whether the bookkeeping table is there. It reads the
// catalog with a snapshot. to_regclass would answer from this session's cache,
// which may not have heard of what another migrator has just committed.
func hasBooks(ctx context.Context, db Querier, schema string) (has bool, err error) {
	err = db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_tables
		WHERE schemaname = $1::text AND tablename = 'schema_migrations')`, schema).Scan(&has)
	return has, err
}

// refused reports that a right is missing.
func refused(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "42501"
}

// missing reports that the bookkeeping table, or its schema, does not exist.
func missing(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && (server.Code == "42P01" || server.Code == "3F000")
}

// Print writes the migrations after version from up to version to as plain SQL
// with the bookkeeping rows, for people who apply SQL by other means. With
// from > to it writes the way back.
func Print(w io.Writer, schema string, from, to int) error {
	if err := checkSchema(schema); err != nil {
		return fmt.Errorf("migrate print: %w", err)
	}
	if from < 0 || to < 0 || from > Latest || to > Latest {
		return fmt.Errorf("migrate print: versions %d to %d: must be between 0 and %d", from, to, Latest)
	}
	text := "BEGIN;\n\n"
	if from == 0 && to > 0 {
		text += "-- Needs the right to create schemas even where it exists: leave it out then.\n" +
			fill("CREATE SCHEMA IF NOT EXISTS {{schema}};\n\n"+sqlCreateTable+";\n\n", schema)
	}
	for v := from + 1; v <= to; v++ {
		text += fill(all[v-1].up, schema) + "\n" + all[v-1].record(schema) + ";\n\n"
	}
	for v := from; v > to; v-- {
		text += fill(all[v-1].down, schema) + "\n" + all[v-1].forget(schema) + ";\n\n"
	}
	_, err := io.WriteString(w, text+"COMMIT;\n")
	return err
}
