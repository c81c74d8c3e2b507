package migrations

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Roles are the roles of a database that have to do with a schema. One may be
// in several lists and then has the rights of each.
type Roles struct {
	Producers []string // enqueue, and nothing else
	Workers   []string // work, and everything that an operator does; no DDL
	Monitors  []string // read everything
	// Owner, unless it is empty, becomes the owner of the schema and of all
	// that is in it by our migrations: the role that migrates.
	Owner string
}

func (r Roles) all() []string {
	list := slices.Concat(r.Producers, r.Workers, r.Monitors)
	if r.Owner != "" {
		list = append(list, r.Owner)
	}
	return list
}

// grant is a part of the script for the roles of one list. In it {{roles}}
// stands for these, {{maker}} for the words that say whose later tables are
// meant. No name is in a comment, since it may have a line break.
type grant struct {
	of  func(Roles) []string
	sql string
}

// What each kind of role may do: the least with which everything works that it
// is there for. Each object is named, so that what somebody else has put into
// the schema is left alone. A migration that makes a new one adds it here.
var grants = []grant{
	{func(r Roles) []string { return one(r.Owner) }, `
-- Owner: the role that migrates. It needs no CREATE on the database. Sequences
-- of identity columns, indexes and triggers follow their tables.
ALTER SCHEMA {{schema}} OWNER TO {{roles}};
ALTER TABLE {{schema}}.schema_migrations OWNER TO {{roles}};
ALTER TABLE {{schema}}.jobs OWNER TO {{roles}};
ALTER TABLE {{schema}}.finished OWNER TO {{roles}};
ALTER TABLE {{schema}}.queues OWNER TO {{roles}};
ALTER TABLE {{schema}}.workers OWNER TO {{roles}};
ALTER TABLE {{schema}}.claims OWNER TO {{roles}};
ALTER VIEW {{schema}}.all_jobs OWNER TO {{roles}};
ALTER SEQUENCE {{schema}}.worker_keys OWNER TO {{roles}};
ALTER SEQUENCE {{schema}}.quiet_slots OWNER TO {{roles}};
` + forEachSlot("ALTER SEQUENCE {{schema}}.quiet_%02d OWNER TO {{roles}};\n") + `ALTER FUNCTION {{schema}}.ring(text, timestamptz) OWNER TO {{roles}};
ALTER FUNCTION {{schema}}.bell() OWNER TO {{roles}};
ALTER FUNCTION {{schema}}.recall(text) OWNER TO {{roles}};
ALTER FUNCTION {{schema}}.enqueue(text, jsonb, text, integer, timestamptz, integer) OWNER TO {{roles}};
ALTER FUNCTION {{schema}}.hush(text, bigint) OWNER TO {{roles}};
ALTER FUNCTION {{schema}}.promised(integer) OWNER TO {{roles}};
ALTER FUNCTION {{schema}}.promise(integer, bigint) OWNER TO {{roles}};
`},
	{func(r Roles) []string { return r.Producers }, `
-- Producers: INSERT by hand or through the client, which reads the id back, and
-- the function. The bell rings with its owner's rights.
GRANT USAGE ON SCHEMA {{schema}} TO {{roles}};
GRANT INSERT, SELECT (id) ON {{schema}}.jobs TO {{roles}};
GRANT EXECUTE ON FUNCTION {{schema}}.enqueue(text, jsonb, text, integer, timestamptz, integer) TO {{roles}};
`},
	{func(r Roles) []string { return r.Workers }, `
-- Workers: every row, and nothing of the schema itself. They need what
-- operators need as well: to retry, cancel, delete, pause.
GRANT USAGE ON SCHEMA {{schema}} TO {{roles}};
GRANT SELECT, INSERT, UPDATE, DELETE ON {{schema}}.jobs, {{schema}}.finished, {{schema}}.queues, {{schema}}.workers, {{schema}}.claims TO {{roles}};
GRANT SELECT ON {{schema}}.schema_migrations, {{schema}}.all_jobs TO {{roles}};
GRANT USAGE ON SEQUENCE {{schema}}.worker_keys, {{schema}}.quiet_slots TO {{roles}};
-- The first four are everybody's unless that was taken away.
GRANT EXECUTE ON FUNCTION {{schema}}.ring(text, timestamptz) TO {{roles}};
GRANT EXECUTE ON FUNCTION {{schema}}.recall(text) TO {{roles}};
GRANT EXECUTE ON FUNCTION {{schema}}.hush(text, bigint) TO {{roles}};
GRANT EXECUTE ON FUNCTION {{schema}}.promised(integer) TO {{roles}};
GRANT EXECUTE ON FUNCTION {{schema}}.promise(integer, bigint) TO {{roles}};
GRANT EXECUTE ON FUNCTION {{schema}}.enqueue(text, jsonb, text, integer, timestamptz, integer) TO {{roles}};
-- And what later migrations make, so that an upgrade needs no second script.
ALTER DEFAULT PRIVILEGES {{maker}}IN SCHEMA {{schema}} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {{roles}};
ALTER DEFAULT PRIVILEGES {{maker}}IN SCHEMA {{schema}} GRANT USAGE ON SEQUENCES TO {{roles}};
ALTER DEFAULT PRIVILEGES {{maker}}IN SCHEMA {{schema}} GRANT EXECUTE ON FUNCTIONS TO {{roles}};
`},
	{func(r Roles) []string { return r.Monitors }, `
-- Monitors: read everything, payloads included.
GRANT USAGE ON SCHEMA {{schema}} TO {{roles}};
GRANT SELECT ON {{schema}}.schema_migrations, {{schema}}.jobs, {{schema}}.finished, {{schema}}.queues, {{schema}}.workers, {{schema}}.claims, {{schema}}.all_jobs TO {{roles}};
-- Everybody's unless that was taken away.
GRANT EXECUTE ON FUNCTION {{schema}}.promised(integer) TO {{roles}};
ALTER DEFAULT PRIVILEGES {{maker}}IN SCHEMA {{schema}} GRANT SELECT ON TABLES TO {{roles}};
`},
}

// forEachSlot repeats a line for each slot that a queue may have.
func forEachSlot(line string) string {
	var text strings.Builder
	for slot := range 64 {
		fmt.Fprintf(&text, line, slot)
	}
	return text.String()
}

func one(role string) []string {
	if role == "" {
		return nil
	}
	return []string{role}
}

// Grants returns the SQL that gives the roles their rights on a schema of the
// newest version. It only adds, and running it again changes nothing.
//
// Whoever runs it has to own the schema and all in it, or be a superuser.
// Unless an owner is named, the rights on what later migrations create hold for
// what the role that runs it creates, so that should be the one that migrates.
func Grants(schema string, roles Roles) (string, error) {
	text, err := grantsBy(schema, roles, roles.Owner)
	if err != nil {
		return "", fmt.Errorf("migrate grants: %w", err)
	}
	return text, nil
}

// grantsBy does it for tables that maker will create; if maker is empty, the
// role that runs it.
func grantsBy(schema string, roles Roles, maker string) (string, error) {
	if err := checkSchema(schema); err != nil {
		return "", err
	}
	if len(roles.all()) == 0 {
		return "", fmt.Errorf("no role given")
	}
	for _, role := range roles.all() {
		switch {
		case role == "":
			return "", fmt.Errorf("the name of a role is empty")
		case len(role) > 63 || strings.ContainsRune(role, 0):
			return "", fmt.Errorf("role %.100q: PostgreSQL has no such names", role)
		}
	}
	if maker != "" {
		maker = "FOR ROLE " + pgx.Identifier{maker}.Sanitize() + " "
	}
	var text strings.Builder
	for _, g := range grants {
		if list := g.of(roles); len(list) > 0 {
			text.WriteString(strings.NewReplacer(
				"{{schema}}", pgx.Identifier{schema}.Sanitize(),
				"{{roles}}", quoteNames(list),
				"{{maker}}", maker,
			).Replace(g.sql))
		}
	}
	return strings.TrimPrefix(text.String(), "\n"), nil
}

func quoteNames(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	return strings.Join(quoted, ", ")
}

// Grant gives the roles their rights in one transaction. The schema must be of
// a version that this code works with, and the roles must exist. The rights on
// what later migrations create hold for what the owner of the tables creates.
func Grant(ctx context.Context, conn *pgx.Conn, schema string, roles Roles) error {
	if _, err := Grants(schema, roles); err != nil {
		return err
	}
	if err := Check(ctx, conn, schema); err != nil {
		return err
	}
	err := locked(ctx, conn, schema, func(tx pgx.Tx) error {
		var missing []string
		err := tx.QueryRow(ctx, `SELECT array_agg(DISTINCT r.name) FROM unnest($1::text[]) AS r (name)
			WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = r.name)`, roles.all()).Scan(&missing)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			return fmt.Errorf("there is no role %s; create each with CREATE ROLE … LOGIN first", quoteNames(missing))
		}
		maker := roles.Owner
		if maker == "" {
			err := tx.QueryRow(ctx, `SELECT pg_catalog.pg_get_userbyid(c.relowner)::text FROM pg_catalog.pg_class AS c
				JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
				WHERE n.nspname = $1::text AND c.relname = 'schema_migrations'`, schema).Scan(&maker)
			if err != nil {
				return err
			}
		}
		script, err := grantsBy(schema, roles, maker)
		if err != nil {
			return err
		}
		return run(ctx, tx, script)
	})
	if err != nil {
		return fmt.Errorf("migrate grants: %w", err)
	}
	return nil
}
