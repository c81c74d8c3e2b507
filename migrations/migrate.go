package migrations

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// The bookkeeping table, created under the migration lock by whoever comes
// first.
const sqlCreateTable = `CREATE TABLE {{schema}}.schema_migrations (
    version     integer     PRIMARY KEY,
    name        text        NOT NULL,
    checksum    text        NOT NULL,
    oldest_code integer     NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
)`

// Up brings the schema, which it creates if missing, to the newest version
// that this code knows, and returns what it applied. On a schema that is up to
// date it takes no lock and needs no right but to read the version.
//
// It is safe to call from many processes at once, also while others work. When
// a table lock cannot be had within 300 ms it steps back for a second and tries
// again, for about a minute in all; the error then names who holds it.
func Up(ctx context.Context, conn *pgx.Conn, schema string) ([]Migration, error) {
	if err := checkSchema(schema); err != nil {
		return nil, fmt.Errorf("migrate up: %w", err)
	}
	var applied []Migration
	for _, m := range all {
		did, err := step(ctx, conn, schema, func(tx pgx.Tx, current int) (bool, error) {
			if current >= m.Version {
				return false, nil
			}
			return true, m.apply(ctx, tx, schema)
		}, m.Version)
		if err != nil {
			return applied, fmt.Errorf("migrate up to version %d: %w", m.Version, err)
		}
		if did {
			applied = append(applied, m)
		}
	}
	return applied, nil
}

// Down reverts the schema to the given version; 0 removes everything but the
// schema itself, and jobs are lost with their tables. It returns what it
// reverted, newest first.
func Down(ctx context.Context, conn *pgx.Conn, schema string, to int) ([]Migration, error) {
	if err := checkSchema(schema); err != nil {
		return nil, fmt.Errorf("migrate down: %w", err)
	}
	if to < 0 || to > Latest {
		return nil, fmt.Errorf("migrate down: version %d: must be between 0 and %d", to, Latest)
	}
	var reverted []Migration
	for i := len(all) - 1; i >= to; i-- {
		m := all[i]
		did, err := step(ctx, conn, schema, func(tx pgx.Tx, current int) (bool, error) {
			if current > Latest {
				return false, fmt.Errorf("the schema is at version %d and this program knows only %d: use the program that applied it", current, Latest)
			}
			if current < m.Version {
				return false, nil
			}
			return true, m.revert(ctx, tx, schema)
		}, -1)
		if err != nil {
			return reverted, fmt.Errorf("migrate down from version %d: %w", m.Version, err)
		}
		if did {
			reverted = append(reverted, m)
		}
	}
	return reverted, nil
}

// step runs do in a transaction that holds the migration lock, with the version
// read under it. If want is not negative and the version is there already, it
// does nothing and takes no lock.
func step(ctx context.Context, conn *pgx.Conn, schema string, do func(tx pgx.Tx, current int) (bool, error), want int) (did bool, err error) {
	if want >= 0 {
		if current, err := version(ctx, conn, schema); err != nil {
			return false, err
		} else if current >= want {
			return false, nil
		}
	}
	err = locked(ctx, conn, schema, func(tx pgx.Tx) error {
		current, err := version(ctx, tx, schema)
		if err == nil {
			did, err = do(tx, current)
		}
		return err
	})
	return did && err == nil, err
}

func (m Migration) apply(ctx context.Context, tx pgx.Tx, schema string) error {
	if m.Version == 1 {
		if err := prepare(ctx, tx, schema); err != nil {
			return err
		}
	}
	if err := run(ctx, tx, fill(m.up, schema)); err != nil {
		return err
	}
	return run(ctx, tx, m.record(schema))
}

func (m Migration) revert(ctx context.Context, tx pgx.Tx, schema string) error {
	if err := run(ctx, tx, fill(m.down, schema)); err != nil {
		return err
	}
	return run(ctx, tx, m.forget(schema))
}

// record and forget are plain SQL without parameters, as Print shows them too.
func (m Migration) record(schema string) string {
	return fill("INSERT INTO {{schema}}.schema_migrations (version, name, checksum, oldest_code) VALUES (", schema) +
		fmt.Sprintf("%d, %s, %s, %d)", m.Version, quoteText(m.Name), quoteText(m.checksum()), m.OldestCode)
}

func (m Migration) forget(schema string) string {
	if m.Version == 1 {
		return fill("DROP TABLE {{schema}}.schema_migrations", schema)
	}
	return fill("DELETE FROM {{schema}}.schema_migrations WHERE version = ", schema) + fmt.Sprint(m.Version)
}

// prepare makes the schema and the bookkeeping table. It looks before it
// creates: IF NOT EXISTS asks for the right to create even when there is
// nothing to do.
func prepare(ctx context.Context, tx pgx.Tx, schema string) error {
	var hasSchema bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1::text)", schema).Scan(&hasSchema)
	if err != nil {
		return err
	}
	if !hasSchema {
		if err := run(ctx, tx, fill("CREATE SCHEMA {{schema}}", schema)); err != nil {
			return fmt.Errorf("create schema %q, which needs CREATE on the database (or have it created by someone who may, owned by this role): %w", schema, err)
		}
	}
	if has, err := hasBooks(ctx, tx, schema); err != nil || has {
		return err
	}
	err = run(ctx, tx, fill(sqlCreateTable, schema))
	if refused(err) {
		return fmt.Errorf("create tables, which needs USAGE and CREATE on the schema %q, best as its owner: %w", schema, err)
	}
	return err
}

// run executes a script of several statements.
func run(ctx context.Context, tx pgx.Tx, script string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, script).ReadAll()
	return err
}
