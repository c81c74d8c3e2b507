package migrations_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost/migrations"
)

// Any name that PostgreSQL takes for a schema works: up, a job with its bell
// on the channel of that name, the version check, and down.
func TestAnySchemaNameWorks(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, name := range []string{
		"public", "MyQueue", `My "Queue"`, "it's", "a.b", "with space", "schön 🙂", "select", "1", "two\nlines", "$bell$", "$$", "$1",
		"{{schema}}", "{{channel}}", "%s%d", "--", "/*", ";", "a, b", "pg", "\"", strings.Repeat("x", 63), strings.Repeat("ä", 31),
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{t, b.ctx, b.dsn, b.conn}
			wantCommand(t, name, migrations.Check(b.ctx, b.conn, name))
			if applied := b.up(name); len(applied) != migrations.Latest {
				t.Fatalf("applied %+v", applied)
			}
			if err := migrations.Check(b.ctx, b.conn, name); err != nil {
				t.Error(err)
			}
			e := b.listen(name)
			b.script(named("INSERT INTO {{schema}}.jobs (kind, queue) VALUES ('test', 'a')", name))
			e.wantBells("the INSERT", "1:0:a")
			b.script(named("SELECT {{schema}}.ring('b')", name))
			e.wantBells("ring()", "1:0:b")
			if reverted, err := migrations.Down(b.ctx, b.conn, name, 0); err != nil || len(reverted) != migrations.Latest {
				t.Errorf("reverted %+v, %v", reverted, err)
			}
		})
	}
}

// wantCommand makes a shell say what it would run if somebody pasted what the
// error proposes.
func wantCommand(t *testing.T, schema string, err error) {
	t.Helper()
	if err == nil {
		t.Error("no error without tables")
		return
	}
	_, command, _ := strings.Cut(err.Error(), "run: fencepost ")
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s|' `+command).Output()
	if want := "migrate|up|--schema|" + schema + "|"; err != nil || string(out) != want {
		t.Errorf("a shell takes %q for %q, %v; want %q", command, out, err, want)
	}
}

// B96: two installs in one database whose names differ in case alone do not
// meet, in tables, functions or bells.
func TestTwoInstallsDoNotMeet(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.up("MyQueue")
	b.up("myqueue")
	upper, lower := b.listen("MyQueue"), b.listen("myqueue")
	b.script(`INSERT INTO "MyQueue".jobs (kind) VALUES ('test')`)
	upper.wantBells("the INSERT", "1:0:default")
	lower.wantBells("the INSERT into the other schema")
	expect(b, int64(0), "SELECT count(*) FROM myqueue.all_jobs")
	expect(b, int64(1), `SELECT count(*) FROM "MyQueue".all_jobs`)

	before := b.catalog("myqueue")
	if _, err := migrations.Down(b.ctx, b.conn, "MyQueue", 0); err != nil {
		t.Fatal(err)
	}
	if b.catalog("myqueue") != before {
		t.Error("taking one down changed the other")
	}
	b.script("INSERT INTO myqueue.jobs (kind) VALUES ('test')")
	lower.wantBells("the INSERT", "1:0:default")
}

// Names that PostgreSQL refuses or cuts are refused before any SQL.
func TestBadSchemaNamesAreRefused(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, name := range []string{"", "pg_x", "pg_", strings.Repeat("x", 64), strings.Repeat("ä", 32), "a\x00b"} {
		if _, err := migrations.Up(b.ctx, b.conn, name); err == nil {
			t.Errorf("up with schema %q: no error", name)
		}
		if _, err := migrations.Down(b.ctx, b.conn, name, 0); err == nil {
			t.Errorf("down with schema %q: no error", name)
		}
		if _, err := migrations.Status(b.ctx, b.conn, name); err == nil {
			t.Errorf("status of schema %q: no error", name)
		}
		if err := migrations.Check(b.ctx, b.conn, name); err == nil {
			t.Errorf("check of schema %q: no error", name)
		}
		var out strings.Builder
		if err := migrations.Print(&out, name, 0, migrations.Latest); err == nil || out.Len() > 0 {
			t.Errorf("print for schema %q: %v, %d bytes", name, err, out.Len())
		}
	}
	expect(b, int64(0), "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'x%' OR nspname LIKE 'ä%'")
}

// B98, B100: nothing is looked for on the search path, and no schema but ours
// is needed.
func TestSearchPathDoesNotMatter(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.script("DROP SCHEMA public")
	for _, path := range []string{"''", "pg_temp", "decoy, pg_catalog"} {
		b.script("SET search_path = DEFAULT; CREATE SCHEMA IF NOT EXISTS decoy; DROP TABLE IF EXISTS decoy.jobs; CREATE TABLE decoy.jobs (kind text); SET search_path = " + path)
		b.up(schema)
		if applied := b.up(schema); applied != nil {
			t.Errorf("the second Up applied %+v", applied)
		}
		e := b.listen(schema)
		b.script("INSERT INTO fencepost.jobs (kind) VALUES ('test')")
		e.wantBells("the INSERT", "1:0:default")
		if list, err := migrations.Status(b.ctx, b.conn, schema); err != nil || list[0].AppliedAt.IsZero() {
			t.Error(list, err)
		}
		if _, err := migrations.Down(b.ctx, b.conn, schema, 0); err != nil {
			t.Error(err)
		}
	}
}
