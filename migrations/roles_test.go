package migrations_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// as connects with the rights of a new role, which {{role}} stands for in the
// script that gives it some.
func (b *bench) as(grants string) *pgx.Conn {
	b.t.Helper()
	role := ask[string](b, "SELECT 'fencepost_test_' || md5(random()::text || clock_timestamp()::text)")
	b.script("CREATE ROLE " + role)
	b.t.Cleanup(func() {
		// Roles outlive the database. The test's context is over.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, b.dsn)
		if err != nil {
			b.t.Error(err)
			return
		}
		defer conn.Close(ctx)
		if err := runScript(ctx, conn, "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role); err != nil {
			b.t.Error(err)
		}
	})
	b.script(strings.ReplaceAll(grants, "{{role}}", role))
	conn := pgtest.Conn(b.t, b.dsn)
	if _, err := conn.Exec(b.ctx, "SET ROLE "+role); err != nil {
		b.t.Fatal(err)
	}
	return conn
}

// B101: a role that may not create schemas migrates into one that was made for
// it. Without one it is told what it needs.
func TestMigrateWithoutTheRightToCreateSchemas(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	_, err := migrations.Up(b.ctx, b.as(""), schema)
	if code(err) != "42501" || !strings.Contains(err.Error(), "CREATE on the database") {
		t.Errorf("without a schema: %v", err)
	}
	b.script("CREATE SCHEMA fencepost") // of somebody else
	for _, grants := range []string{"", "GRANT USAGE ON SCHEMA fencepost TO {{role}}"} {
		if _, err := migrations.Up(b.ctx, b.as(grants), schema); code(err) != "42501" || !strings.Contains(err.Error(), `USAGE and CREATE on the schema "fencepost"`) {
			t.Errorf("in a schema of somebody else, with %q: %v", grants, err)
		}
	}
	b.script("DROP SCHEMA fencepost")
	owner := b.as("CREATE SCHEMA fencepost AUTHORIZATION {{role}}")
	if applied, err := migrations.Up(b.ctx, owner, schema); err != nil || len(applied) != migrations.Latest {
		t.Errorf("applied %+v, %v", applied, err)
	}
	if _, err := migrations.Down(b.ctx, owner, schema, 0); err != nil {
		t.Error(err)
	}
	if _, err := migrations.Up(b.ctx, owner, schema); err != nil {
		t.Error(err)
	}
}

// B102: on a schema that is up to date, a worker needs no more than to read
// the version.
func TestUpToDateSchemaNeedsNoRightToChange(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	conn := b.as("GRANT USAGE ON SCHEMA fencepost TO {{role}}; GRANT SELECT ON fencepost.schema_migrations TO {{role}}")
	if applied, err := migrations.Up(b.ctx, conn, schema); err != nil || applied != nil {
		t.Errorf("applied %+v, %v", applied, err)
	}
	if err := migrations.Check(b.ctx, conn, schema); err != nil {
		t.Error(err)
	}
	if list, err := migrations.Status(b.ctx, conn, schema); err != nil || list[0].AppliedAt.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	// Without that right the error says so; it is not taken for an empty database.
	if err := migrations.Check(b.ctx, b.as(""), schema); code(err) != "42501" {
		t.Errorf("without rights: %v", err)
	}
	if _, err := migrations.Up(b.ctx, b.as(""), schema); code(err) != "42501" {
		t.Errorf("without rights: %v", err)
	}
}

// B103: a producer may do nothing but INSERT, and its jobs ring all the same,
// also where the right to call functions was taken from everybody.
func TestProducerNeedsOnlyInsert(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	e := b.listen(schema)
	producer := b.as("GRANT USAGE ON SCHEMA fencepost TO {{role}}; GRANT INSERT ON fencepost.jobs TO {{role}}")
	if _, err := producer.Exec(b.ctx, "SELECT fencepost.ring('other')"); err != nil {
		t.Error(err)
	}
	e.wantBells("a producer's ring()", "1:0:other")
	b.script("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA fencepost FROM PUBLIC")
	if _, err := producer.Exec(b.ctx, "INSERT INTO fencepost.jobs (kind) VALUES ('test')"); err != nil {
		t.Error(err)
	}
	e.wantBells("a producer's INSERT", "1:0:default")
	for _, sql := range []string{"SELECT fencepost.ring('other')", "SELECT id FROM fencepost.jobs", "UPDATE fencepost.jobs SET fence = 7", "DELETE FROM fencepost.jobs"} {
		if _, err := producer.Exec(b.ctx, sql); code(err) != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// The trigger runs with its owner's rights, so it must not find anything that
// a producer has put in its way.
func TestTriggerTrustsNoSearchPath(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	e := b.listen(schema)
	producer := b.as(`GRANT USAGE ON SCHEMA fencepost TO {{role}}; GRANT INSERT ON fencepost.jobs TO {{role}};
		CREATE SCHEMA trap AUTHORIZATION {{role}}; GRANT TEMPORARY ON DATABASE "` + ask[string](b, "SELECT current_database()::text") + `" TO {{role}}`)
	if err := runScript(b.ctx, producer, `
		CREATE FUNCTION trap.ring(text, timestamptz) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
		CREATE FUNCTION trap.min(timestamptz) RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
		CREATE FUNCTION trap.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
		CREATE TEMPORARY TABLE inserted (queue text, run_at timestamptz);
		SET search_path = trap, pg_temp, pg_catalog;
		INSERT INTO fencepost.jobs (kind) VALUES ('test')`); err != nil {
		t.Error(err)
	}
	e.wantBells("the INSERT", "1:0:default")
}

// B103: a role that may call the function and do nothing else enqueues, also
// under row security that has no policy for anybody, and its job rings.
func TestEnqueueNeedsOnlyItsFunction(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	e := b.listen(schema)
	const function = "fencepost.enqueue(text, jsonb, text, integer, timestamptz, integer)"
	caller := b.as("GRANT USAGE ON SCHEMA fencepost TO {{role}}; GRANT EXECUTE ON FUNCTION " + function + " TO {{role}}")
	inserter := b.as("GRANT USAGE ON SCHEMA fencepost TO {{role}}; GRANT INSERT ON fencepost.jobs TO {{role}}")
	stranger := b.as("GRANT USAGE ON SCHEMA fencepost TO {{role}}")
	for _, security := range []bool{false, true} {
		if security {
			// The owner of a table is not subject to it; superusers are not either.
			b.script("ALTER TABLE fencepost.jobs ENABLE ROW LEVEL SECURITY; DELETE FROM fencepost.jobs")
			if _, err := inserter.Exec(b.ctx, "INSERT INTO fencepost.jobs (kind) VALUES ('test')"); code(err) != "42501" {
				t.Errorf("an INSERT under row security: %v; the test does not see what it is for", err)
			}
		}
		for call, want := range map[string]string{
			"enqueue('test')": `test {} default 0 20 due`,
			"enqueue('test', '{\"n\": 9007199254740993}', 'q', -2, '2200-01-01Z', 3)": `test {"n": 9007199254740993} q -2 3 later`,
			"enqueue(kind => 'test', queue => 'q2', max_attempts => 1)":               `test {} q2 0 1 due`,
		} {
			var id int64
			if err := caller.QueryRow(b.ctx, "SELECT fencepost."+call).Scan(&id); err != nil {
				t.Errorf("%s: %v", call, err)
				continue
			}
			expect(b, want, `SELECT concat_ws(' ', kind, payload, queue, priority, max_attempts,
				CASE WHEN run_at <= clock_timestamp() THEN 'due' ELSE 'later' END) FROM fencepost.jobs WHERE id = $1::bigint`, id)
		}
		e.wantBells("enqueue()", "1:0:default", "1:7258118400000000:q", "1:0:q2")
		for call, want := range map[string]string{
			"enqueue('')":                                "23514",
			"enqueue(NULL)":                              "23502",
			"enqueue('test', NULL)":                      "23502",
			"enqueue('test', priority => 3)":             "23514",
			"enqueue('test', priority => 1e5)":           "42883",
			"enqueue('test', priority => 100000)":        "22003",
			"enqueue('test', run_at => 'infinity')":      "23514",
			"enqueue('test', max_attempts => 0)":         "23514",
			"enqueue('test', queue => repeat('x', 129))": "23514",
		} {
			if _, err := caller.Exec(b.ctx, "SELECT fencepost."+call); code(err) != want {
				t.Errorf("%s: %v, want code %s", call, err, want)
			}
		}
		if _, err := stranger.Exec(b.ctx, "SELECT fencepost.enqueue('test')"); code(err) != "42501" {
			t.Errorf("a stranger's enqueue(): %v", err)
		}
		if _, err := caller.Exec(b.ctx, "INSERT INTO fencepost.jobs (kind) VALUES ('test')"); code(err) != "42501" {
			t.Errorf("an INSERT of the caller: %v", err)
		}
	}
	b.script("CREATE POLICY fencepost ON fencepost.jobs TO PUBLIC USING (true) WITH CHECK (true)")
	if _, err := inserter.Exec(b.ctx, "INSERT INTO fencepost.jobs (kind) VALUES ('test')"); err != nil {
		t.Errorf("an INSERT by a policy: %v", err)
	}
}

// The function runs with its owner's rights too, and finds nothing that its
// caller has put in its way: neither on a search_path, nor by a type's or an
// operator's name, nor in temporary tables.
func TestEnqueueTrustsNoSearchPath(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	e := b.listen(schema)
	producer := b.as(`GRANT USAGE ON SCHEMA fencepost TO {{role}};
		GRANT EXECUTE ON FUNCTION fencepost.enqueue(text, jsonb, text, integer, timestamptz, integer) TO {{role}};
		CREATE SCHEMA trap AUTHORIZATION {{role}}; GRANT TEMPORARY ON DATABASE "` + ask[string](b, "SELECT current_database()::text") + `" TO {{role}}`)
	if err := runScript(b.ctx, producer, `
		CREATE FUNCTION trap.ring(text, timestamptz) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
		CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
		CREATE FUNCTION trap.octet_length(text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
		CREATE FUNCTION trap.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
		CREATE TEMPORARY TABLE jobs (id bigint, kind text, payload jsonb, queue text, priority int, run_at timestamptz, max_attempts int);
		CREATE TEMPORARY TABLE inserted (queue text, run_at timestamptz);
		CREATE DOMAIN trap.text AS pg_catalog.text CHECK (VALUE = 'trapped');
		SET search_path = trap, pg_temp, pg_catalog;
		SELECT fencepost.enqueue('test')`); err != nil {
		t.Error(err)
	}
	e.wantBells("enqueue()", "1:0:default")
	expect(b, int64(1), "SELECT count(*) FROM fencepost.jobs")
	// Whatever a later version of it will look like: every function that runs
	// with its owner's rights has a path of its own, with the temporary schema last.
	expect(b, "bell, enqueue, promise, promised", `SELECT string_agg(proname, ', ' ORDER BY proname) FROM pg_proc
		WHERE pronamespace = 'fencepost'::regnamespace AND prosecdef
		AND array_length(proconfig, 1) = 1 AND proconfig[1] ~ '^search_path=pg_catalog, .*pg_temp$'`)
	expect(b, "bell, enqueue, promise, promised", "SELECT string_agg(proname, ', ' ORDER BY proname) FROM pg_proc WHERE pronamespace = 'fencepost'::regnamespace AND prosecdef")
}
