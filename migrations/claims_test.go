package migrations_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/migrations"
)

// beforeClaims makes a schema as it was when claims had no table.
func (b *bench) beforeClaims(schema string) {
	b.t.Helper()
	var script strings.Builder
	if err := migrations.Print(&script, schema, 0, 3); err != nil {
		b.t.Fatal(err)
	}
	b.script(script.String())
}

// Whoever could claim a job before the migration can do so after it, however
// he came by the right; and nobody else gets one.
func TestWhoMayClaimMayWriteClaims(t *testing.T) {
	t.Parallel()
	for _, name := range []string{schema, `My "Queue"`, "it's %s%I", "$rights$", "1"} {
		b := setUp(t)
		b.beforeClaims(name)
		odd := pgx.Identifier{"\"odd\"; '%s' " + b.role()}.Sanitize()
		b.script("CREATE ROLE " + odd)
		worker, member, owner, producer, reader := b.role(), b.role(), b.role(), b.role(), b.role()
		b.script(named(`GRANT UPDATE ON {{schema}}.jobs TO `+odd+`, `+worker+`; GRANT `+worker+` TO `+member+`;
			GRANT INSERT ON {{schema}}.jobs TO `+producer+`; GRANT SELECT ON {{schema}}.jobs TO `+reader+`;
			GRANT USAGE ON SCHEMA {{schema}} TO PUBLIC; ALTER TABLE {{schema}}.jobs OWNER TO `+owner, name))
		b.up(name)
		const may = `SELECT bool_and(has_table_privilege($1::text, format('%I.claims', $2::text), p)) FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS p`
		const mayNothing = `SELECT NOT bool_or(has_table_privilege($1::text, format('%I.claims', $2::text), p)) FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS p`
		for _, role := range []string{worker, member, owner} {
			expect(b, true, may, role, name)
		}
		expect(b, true, `SELECT bool_and(has_table_privilege(r.oid, format('%I.claims', $1::text), 'INSERT')) FROM pg_roles AS r WHERE quote_ident(r.rolname) = $2::text`, name, odd)
		for _, role := range []string{producer, reader} {
			expect(b, true, mayNothing, role, name)
		}
		conn := b.become(worker) // the rights are enough for what a claim does
		if _, err := conn.Exec(b.ctx, named("INSERT INTO {{schema}}.claims (look_at, worker_id, ids) VALUES (now(), 'w', '{1}')", name)); err != nil {
			t.Error(err)
		}
		b.script("DROP OWNED BY " + odd + "; DROP ROLE " + odd)
	}
}

// Where everybody could claim, everybody can.
func TestEverybodyMayWriteClaims(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.beforeClaims(schema)
	b.script("GRANT ALL ON fencepost.jobs TO PUBLIC; GRANT USAGE ON SCHEMA fencepost TO PUBLIC")
	b.up(schema)
	if _, err := b.as("").Exec(b.ctx, "INSERT INTO fencepost.claims (look_at, worker_id, ids) VALUES (now(), 'w', '{1}')"); err != nil {
		t.Error(err)
	}
}

// And where nobody was given anything, the owner of the tables, though another
// one migrates.
func TestTheOwnerMayWriteClaims(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	owner := b.role()
	b.script(`GRANT CREATE ON DATABASE "` + ask[string](b, "SELECT current_database()::text") + `" TO ` + owner + "; SET ROLE " + owner)
	b.beforeClaims(schema)
	b.script("RESET ROLE")
	expect(b, true, "SELECT relacl IS NULL FROM pg_class WHERE oid = 'fencepost.jobs'::regclass")
	b.up(schema)
	if _, err := b.become(owner).Exec(b.ctx, "INSERT INTO fencepost.claims (look_at, worker_id, ids) VALUES (now(), 'w', '{1}')"); err != nil {
		t.Error(err)
	}
}

// What runs while the schema is migrated is found by its lease afterwards: each
// job is in one row, of its worker, that is looked into before its lease ends.
func TestRunningJobsGetAClaim(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.beforeClaims(schema)
	b.script(`INSERT INTO fencepost.jobs (id, kind, status, attempts, worker_id, lease_until)
		SELECT 1000000 + n, 'test', 'running', 1, CASE WHEN n % 4 = 0 THEN 'a' ELSE 'b' END, clock_timestamp() + (n * 7919 % 1000 - 100) * interval '1 second'
		FROM generate_series(1, 3000) AS n;
		INSERT INTO fencepost.jobs (kind) SELECT 'test' FROM generate_series(1, 100)`)
	b.up(schema)
	expect(b, int64(3000), `SELECT count(*) FROM fencepost.jobs AS j JOIN (SELECT c.look_at, c.worker_id, unnest(c.ids) AS id FROM fencepost.claims AS c) AS k
		ON k.id = j.id AND k.worker_id = j.worker_id AND k.look_at <= j.lease_until WHERE j.status = 'running'`)
	expect(b, int64(3000), "SELECT sum(cardinality(ids)) FROM fencepost.claims")
	expect(b, int64(2+5), "SELECT count(*) FROM fencepost.claims")
	expect(b, true, "SELECT max(cardinality(ids)) = 500 AND bool_and(look_at = (SELECT min(j.lease_until) FROM fencepost.jobs AS j WHERE j.id = ANY (ids))) FROM fencepost.claims")
}

// Who has many jobs builds the index before, and then nobody waits for it.
func TestAnIndexThatIsThereIsNotBuiltAgain(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.beforeClaims(schema)
	b.script("CREATE INDEX CONCURRENTLY jobs_order ON fencepost.jobs (queue, priority, run_at, id)")
	before := ask[uint32](b, "SELECT relfilenode FROM pg_class WHERE oid = 'fencepost.jobs_order'::regclass")
	b.up(schema)
	expect(b, before, "SELECT relfilenode FROM pg_class WHERE oid = 'fencepost.jobs_order'::regclass")
	made := b.catalog(schema)
	b.script("DROP SCHEMA fencepost CASCADE")
	b.up(schema)
	if plain := b.catalog(schema); made != plain {
		t.Errorf("with the index made before the catalog is\n%s\ninstead of\n%s", made, plain)
	}
}

// But not one that no claim could use.
func TestAnIndexThatCannotBeUsedIsNotTaken(t *testing.T) {
	t.Parallel()
	for _, name := range []string{schema, "it's %s%I"} {
		for wrong, ddl := range map[string]string{
			"invalid": `CREATE INDEX jobs_order ON {{schema}}.jobs (queue, priority, run_at, id);
				UPDATE pg_index SET indisvalid = false WHERE indexrelid = (SELECT oid FROM pg_class WHERE relname = 'jobs_order')`,
			"another order": "CREATE INDEX jobs_order ON {{schema}}.jobs (queue, run_at, id)",
			"of a part":     "CREATE INDEX jobs_order ON {{schema}}.jobs (queue, priority, run_at, id) WHERE status = 'ready'",
			"backwards":     "CREATE INDEX jobs_order ON {{schema}}.jobs (queue, priority, run_at, id DESC)",
		} {
			t.Run(wrong, func(t *testing.T) {
				b := setUp(t)
				b.beforeClaims(name)
				b.script(named(ddl, name))
				if _, err := migrations.Up(b.ctx, b.conn, name); err == nil || !strings.Contains(err.Error(), "DROP it") {
					t.Errorf("migrates with such an index: %v", err)
				}
				b.script(named("DROP INDEX {{schema}}.jobs_order", name))
				b.up(name)
			})
		}
	}
}
