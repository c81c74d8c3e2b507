package migrations_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// role makes a role without rights; it ends with the test.
func (b *bench) role() string {
	b.t.Helper()
	conn := b.as("")
	var role string
	if err := conn.QueryRow(b.ctx, "SELECT current_role::text").Scan(&role); err != nil {
		b.t.Fatal(err)
	}
	return role
}

// become connects with the rights of a role.
func (b *bench) become(role string) *pgx.Conn {
	b.t.Helper()
	conn := pgtest.Conn(b.t, b.dsn)
	if _, err := conn.Exec(b.ctx, "SET ROLE "+pgx.Identifier{role}.Sanitize()); err != nil {
		b.t.Fatal(err)
	}
	return conn
}

// grant runs the printed grants, twice: the second time changes nothing.
func (b *bench) grant(schema string, roles migrations.Roles) {
	b.t.Helper()
	script, err := migrations.Grants(schema, roles)
	if err != nil {
		b.t.Fatal(err)
	}
	b.script(script)
	once := b.rights(schema)
	b.script(script)
	if again := b.rights(schema); again != once {
		b.t.Errorf("running the grants again changes\n%s\nto\n%s", once, again)
	}
}

// rights is everything that is granted on the schema and what is in it, and
// who owns it.
func (b *bench) rights(schema string) string {
	b.t.Helper()
	return ask[string](b, `
		WITH s AS (SELECT oid, nspowner, nspacl FROM pg_namespace WHERE nspname = $1::text),
		lines (line) AS (
			SELECT format('schema %s %s', s.nspowner::regrole, s.nspacl) FROM s
			UNION ALL SELECT format('relation %s %s %s', c.relname, c.relowner::regrole, c.relacl) FROM pg_class AS c, s WHERE c.relnamespace = s.oid
			UNION ALL SELECT format('column %s.%s %s', c.relname, a.attname, a.attacl) FROM pg_class AS c, s, pg_attribute AS a
				WHERE c.relnamespace = s.oid AND a.attrelid = c.oid AND a.attacl IS NOT NULL
			UNION ALL SELECT format('function %s %s %s', p.oid::regprocedure, p.proowner::regrole, p.proacl) FROM pg_proc AS p, s WHERE p.pronamespace = s.oid
			UNION ALL SELECT format('default of %s: %s %s', d.defaclrole::regrole, d.defaclobjtype, d.defaclacl) FROM pg_default_acl AS d, s WHERE d.defaclnamespace = s.oid)
		SELECT string_agg(line, E'\n' ORDER BY line COLLATE "C") FROM lines`, schema)
}

// What each role may do and what it may not: exactly what the grants say.
func TestRights(t *testing.T) {
	t.Parallel()
	for _, hardened := range []bool{false, true} {
		b := migrated(t)
		if hardened {
			b.script(`REVOKE ALL ON SCHEMA fencepost FROM PUBLIC; REVOKE ALL ON ALL TABLES IN SCHEMA fencepost FROM PUBLIC;
				REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fencepost FROM PUBLIC; DROP SCHEMA public`)
		}
		owner, worker, producer, monitor, stranger := b.role(), b.role(), b.role(), b.role(), b.role()
		b.grant(schema, migrations.Roles{
			Owner: owner, Workers: []string{worker}, Producers: []string{producer}, Monitors: []string{monitor},
		})
		conns := map[string]*pgx.Conn{
			"owner": b.become(owner), "worker": b.become(worker), "producer": b.become(producer),
			"monitor": b.become(monitor), "stranger": b.become(stranger),
		}
		const finished = "INSERT INTO fencepost.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload) VALUES (1, 1, now(), now(), now(), 1, 1, 0, 0, 'done', 'q', 'k', '{}')"
		for sql, allowed := range map[string]string{
			"INSERT INTO fencepost.jobs (kind) VALUES ('test')":                                                      "owner worker producer",
			"INSERT INTO fencepost.jobs (kind) VALUES ('test') RETURNING id":                                         "owner worker producer",
			"INSERT INTO fencepost.jobs (kind) VALUES ('test') RETURNING kind":                                       "owner worker",
			"INSERT INTO fencepost.jobs (id, kind) VALUES (1, 'test') ON CONFLICT (id) DO UPDATE SET kind = 'other'": "owner worker",
			"SELECT fencepost.enqueue('test')":                                                                       "owner worker producer",
			"SELECT id FROM fencepost.jobs":                                                                          "owner worker producer monitor",
			"SELECT payload FROM fencepost.jobs":                                                                     "owner worker monitor",
			"SELECT id FROM fencepost.jobs FOR UPDATE":                                                               "owner worker",
			"UPDATE fencepost.jobs SET priority = 1":                                                                 "owner worker",
			"DELETE FROM fencepost.jobs":                                                                             "owner worker",
			"SELECT * FROM fencepost.all_jobs":                                                                       "owner worker monitor",
			"SELECT * FROM fencepost.finished":                                                                       "owner worker monitor",
			finished:                                                                                                 "owner worker",
			"UPDATE fencepost.finished SET priority = 1":                                                             "owner worker",
			"DELETE FROM fencepost.finished":                                                                         "owner worker",
			"SELECT * FROM fencepost.queues":                                                                         "owner worker monitor",
			"INSERT INTO fencepost.queues (name) VALUES ('q')":                                                       "owner worker",
			"UPDATE fencepost.queues SET paused_at = now()":                                                          "owner worker",
			"DELETE FROM fencepost.queues":                                                                           "owner worker",
			"SELECT * FROM fencepost.workers":                                                                        "owner worker monitor",
			"INSERT INTO fencepost.workers (worker_id) VALUES ('w')":                                                 "owner worker",
			"UPDATE fencepost.workers SET version = 'v'":                                                             "owner worker",
			"DELETE FROM fencepost.workers":                                                                          "owner worker",
			"SELECT * FROM fencepost.claims":                                                                         "owner worker monitor",
			"INSERT INTO fencepost.claims (look_at, worker_id, ids) VALUES (now(), 'w', '{1}')":                      "owner worker",
			"UPDATE fencepost.claims SET look_at = now()":                                                            "owner worker",
			"DELETE FROM fencepost.claims":                                                                           "owner worker",
			"SELECT nextval('fencepost.claims_id_seq')":                                                              "owner",
			"SELECT nextval('fencepost.worker_keys')":                                                                "owner worker",
			"SELECT setval('fencepost.worker_keys', 1)":                                                              "owner",
			"SELECT nextval('fencepost.quiet_slots')":                                                                "owner worker",
			"SELECT setval('fencepost.quiet_00', 1)":                                                                 "owner",
			"SELECT fencepost.promise(0, 0)":                                                                         "owner worker",
			"SELECT fencepost.promised(0)":                                                                           map[bool]string{false: "owner worker producer monitor", true: "owner worker monitor"}[hardened],
			"SELECT fencepost.hush('q', 0)":                                                                          map[bool]string{false: "owner worker producer monitor", true: "owner worker"}[hardened],
			"SELECT * FROM fencepost.schema_migrations":                                                              "owner worker monitor",
			"UPDATE fencepost.schema_migrations SET oldest_code = 1":                                                 "owner",
			"DELETE FROM fencepost.schema_migrations":                                                                "owner",
			"SELECT pg_try_advisory_xact_lock_shared(tableoid::int4, lock_key) FROM fencepost.workers":               "owner worker monitor",
			// Ringing needs no right but that to see the schema. Without it there is
			// still NOTIFY, which is everybody's.
			"SELECT fencepost.ring('q')":   map[bool]string{false: "owner worker producer monitor", true: "owner worker"}[hardened],
			"SELECT fencepost.recall('w')": map[bool]string{false: "owner worker producer monitor", true: "owner worker"}[hardened],
			"NOTIFY fencepost, '1:0:q'":    "owner worker producer monitor stranger",
			// DDL.
			"TRUNCATE fencepost.jobs":                                                                                 "owner",
			"TRUNCATE fencepost.workers":                                                                              "owner",
			"LOCK TABLE fencepost.jobs IN ROW EXCLUSIVE MODE":                                                         "owner worker producer",
			"LOCK TABLE fencepost.jobs IN ACCESS EXCLUSIVE MODE":                                                      "owner worker",
			"CREATE TABLE fencepost.own (id int)":                                                                     "owner",
			"CREATE FUNCTION fencepost.own() RETURNS int LANGUAGE sql AS 'SELECT 1'":                                  "owner",
			"CREATE TRIGGER own AFTER INSERT ON fencepost.jobs EXECUTE FUNCTION fencepost.bell()":                     "owner",
			"ALTER TABLE fencepost.jobs ADD COLUMN own int":                                                           "owner",
			"ALTER TABLE fencepost.jobs DISABLE TRIGGER bell":                                                         "owner",
			"CREATE INDEX ON fencepost.jobs (kind)":                                                                   "owner",
			"DROP TABLE fencepost.workers":                                                                            "owner",
			"DROP FUNCTION fencepost.recall(text)":                                                                    "owner",
			"ALTER SEQUENCE fencepost.worker_keys RESTART":                                                            "owner",
			"ALTER SCHEMA fencepost RENAME TO other":                                                                  "", // needs CREATE on the database
			"CREATE TABLE fencepost.child (job bigint REFERENCES fencepost.jobs)":                                     "owner",
			"CREATE SCHEMA another":                                                                                   "",
			"GRANT SELECT ON fencepost.jobs TO PUBLIC":                                                                "owner",
			"GRANT EXECUTE ON FUNCTION fencepost.enqueue(text, jsonb, text, integer, timestamptz, integer) TO PUBLIC": "owner",
		} {
			for name, conn := range conns {
				_, err := conn.Exec(b.ctx, "BEGIN")
				if err != nil {
					t.Fatal(err)
				}
				_, err = conn.Exec(b.ctx, sql, pgx.QueryExecModeExec)
				// A GRANT that is not allowed may be a warning only.
				may := err == nil
				if strings.HasPrefix(sql, "GRANT") {
					var granted bool
					if qerr := conn.QueryRow(b.ctx, `SELECT EXISTS (SELECT FROM pg_class WHERE relnamespace = 'fencepost'::regnamespace AND relacl::text ~ '[{,]=')
						OR EXISTS (SELECT FROM pg_proc WHERE proname = 'enqueue' AND proacl::text ~ '[{,]=')`).Scan(&granted); may && qerr == nil {
						may = granted
					}
				}
				if !may && err != nil && code(err) != "42501" {
					t.Errorf("%s as %s: %v", sql, name, err)
				}
				if want := slices.Contains(strings.Fields(allowed), name); may != want {
					t.Errorf("hardened %v: %s as %s: %v; may: %v", hardened, sql, name, err, want)
				}
				if _, err := conn.Exec(b.ctx, "ROLLBACK"); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// Each object that the migrations make is handed over to the owner and belongs
// to it, and each table is readable for workers and monitors: whoever adds one
// must add it to the grants.
func TestGrantsCoverEveryObject(t *testing.T) {
	t.Parallel()
	for _, name := range []string{schema, `My "Queue"`} {
		b := setUp(t)
		b.up(name)
		owner, worker, monitor := b.role(), b.role(), b.role()
		b.script(named("CREATE TABLE {{schema}}.theirs (id int); CREATE FUNCTION {{schema}}.theirs() RETURNS int LANGUAGE sql AS 'SELECT 1'", name))
		b.grant(name, migrations.Roles{Owner: owner, Workers: []string{worker}, Monitors: []string{monitor}})
		for line := range strings.SplitSeq(b.rights(name), "\n") {
			word := strings.Fields(line)
			theirs := strings.Contains(line, "theirs")
			switch word[0] {
			case "relation", "function":
				if strings.Contains(line, owner) == theirs {
					t.Errorf("owned by another: %s", line)
				}
			case "schema":
				if word[1] != owner {
					t.Errorf("owned by another: %s", line)
				}
			}
		}
		const readable = `SELECT coalesce(string_agg(relname, ' ' ORDER BY relname), '') FROM pg_class
			WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1::text) AND relkind IN ('r', 'v') AND NOT has_table_privilege($2::text, oid, 'SELECT')`
		for _, role := range []string{worker, monitor} {
			expect(b, "theirs", readable, name, role)
		}
		expect(b, true, `SELECT bool_and(has_function_privilege($2::text, p.oid, 'EXECUTE')) FROM pg_proc AS p
			WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1::text) AND proname NOT IN ('theirs', 'bell')`, name, worker)
	}
}

// B100: what later migrations make is covered by the rights that were granted
// before, whoever granted them, as long as the owner of the tables migrates.
func TestLaterTablesAreCovered(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"printed, with an owner", "printed, run by the owner", "applied by the owner", "applied by a superuser", "applied by a superuser, with an owner"} {
		t.Run(how, func(t *testing.T) {
			b := setUp(t)
			b.script("DROP SCHEMA public")
			b.t = t
			owner, worker, producer, monitor := b.role(), b.role(), b.role(), b.role()
			roles := migrations.Roles{Workers: []string{worker}, Producers: []string{producer}, Monitors: []string{monitor}}
			if strings.HasSuffix(how, "with an owner") {
				b.up(schema)
				roles.Owner = owner
			} else {
				b.script("CREATE SCHEMA fencepost AUTHORIZATION " + owner)
				if _, err := migrations.Up(b.ctx, b.become(owner), schema); err != nil {
					t.Fatal(err)
				}
			}
			by := b.conn
			if strings.HasSuffix(how, "by the owner") {
				by = b.become(owner)
			}
			if strings.HasPrefix(how, "applied") {
				if err := migrations.Grant(b.ctx, by, schema, roles); err != nil {
					t.Fatal(err)
				}
			} else {
				script, err := migrations.Grants(schema, roles)
				if err != nil {
					t.Fatal(err)
				}
				if err := runScript(b.ctx, by, script); err != nil {
					t.Fatal(err)
				}
			}
			if err := runScript(b.ctx, b.become(owner), `CREATE TABLE fencepost.later (id int); CREATE SEQUENCE fencepost.later_keys;
				CREATE FUNCTION fencepost.later() RETURNS int LANGUAGE sql AS 'SELECT 1'; REVOKE ALL ON FUNCTION fencepost.later() FROM PUBLIC`); err != nil {
				t.Fatal(err)
			}
			for sql, allowed := range map[string]string{
				"SELECT id FROM fencepost.later":            worker + monitor,
				"INSERT INTO fencepost.later VALUES (1)":    worker,
				"UPDATE fencepost.later SET id = 2":         worker,
				"DELETE FROM fencepost.later":               worker,
				"SELECT nextval('fencepost.later_keys')":    worker,
				"SELECT fencepost.later()":                  worker,
				"TRUNCATE fencepost.later":                  "",
				"ALTER TABLE fencepost.later ADD again int": "",
			} {
				for _, role := range []string{worker, producer, monitor} {
					if _, err := b.become(role).Exec(b.ctx, sql); (err == nil) != strings.Contains(allowed, role) || err != nil && code(err) != "42501" {
						t.Errorf("%s as %s: %v (worker %s, monitor %s)", sql, role, err, worker, monitor)
					}
				}
			}
		})
	}
}

// B101, B102: who was made the owner migrates, though it may create nothing
// else in the database.
func TestOwnerMigrates(t *testing.T) { // not parallel: it replaces the migrations
	b := migrated(t)
	b.script("DROP SCHEMA public")
	owner := b.role()
	b.grant(schema, migrations.Roles{Owner: owner})
	conn := b.become(owner)
	migrations.Replace(t, withNext(t, 1))
	if applied, err := migrations.Up(b.ctx, conn, schema); err != nil || len(applied) != 1 {
		t.Errorf("up: %+v, %v", applied, err)
	}
	if reverted, err := migrations.Down(b.ctx, conn, schema, 0); err != nil || len(reverted) != migrations.Latest {
		t.Errorf("down: %+v, %v", reverted, err)
	}
	if applied, err := migrations.Up(b.ctx, conn, schema); err != nil || len(applied) != migrations.Latest {
		t.Errorf("up again: %+v, %v", applied, err)
	}
	if err := migrations.Grant(b.ctx, conn, schema, migrations.Roles{Workers: []string{b.role()}}); err != nil {
		t.Errorf("the owner grants: %v", err)
	}
}

func TestGrantRefuses(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	err := migrations.Grant(b.ctx, b.conn, schema, migrations.Roles{Workers: []string{"postgres"}})
	if err == nil || !strings.Contains(err.Error(), "fencepost migrate up") {
		t.Errorf("without tables: %v", err)
	}
	b.up(schema)
	before := b.rights(schema)
	err = migrations.Grant(b.ctx, b.conn, schema, migrations.Roles{Workers: []string{b.role(), `no "one"`}, Monitors: []string{"nor I"}})
	if err == nil || !strings.Contains(err.Error(), `"no ""one""", "nor I"`) || !strings.Contains(err.Error(), "CREATE ROLE") {
		t.Errorf("roles that do not exist: %v", err)
	}
	if _, err := migrations.Grants(schema, migrations.Roles{}); err == nil {
		t.Error("no role: no error")
	}
	for _, bad := range []string{"", "a\x00", strings.Repeat("x", 64)} {
		for _, roles := range []migrations.Roles{{Workers: []string{bad}}, {Producers: []string{"a", bad}}, {Monitors: []string{bad}}} {
			if text, err := migrations.Grants(schema, roles); err == nil || text != "" {
				t.Errorf("role %.70q: %v", bad, err)
			}
		}
	}
	if after := b.rights(schema); after != before {
		t.Error("a Grant that failed changed something")
	}
}

// Names of roles and schemas are quoted wherever they go, and are in no comment.
func TestGrantsQuoteNames(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, name := range []string{`My "Queue"`, "two\nlines; DROP TABLE x", "{{roles}}", "public", "--"} {
		b.up(name)
		role := fmt.Sprintf("\"a\n\"; %s", b.role())
		b.script("CREATE ROLE " + pgx.Identifier{role}.Sanitize())
		b.grant(name, migrations.Roles{Workers: []string{role}, Producers: []string{role}, Monitors: []string{role}})
		if err := migrations.Grant(b.ctx, b.conn, name, migrations.Roles{Owner: role}); err != nil {
			t.Error(err)
		}
		if _, err := b.become(role).Exec(b.ctx, named("INSERT INTO {{schema}}.jobs (kind) VALUES ('test')", name)); err != nil {
			t.Error(err)
		}
		b.script("DROP OWNED BY " + pgx.Identifier{role}.Sanitize() + " CASCADE; DROP ROLE " + pgx.Identifier{role}.Sanitize())
	}
}
