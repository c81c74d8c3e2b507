package migrations_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fencepost-go/fencepost/migrations"
)

// Down takes back what Up made, and a second Up makes the same again.
func TestUpDownUp(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	if applied := b.up(schema); len(applied) != migrations.Latest || applied[0].Version != 1 || applied[0].Name != "queue" {
		t.Errorf("the first Up applied %+v", applied)
	}
	first, books := b.catalog(schema), b.books(schema)
	for _, part := range []string{"relation jobs", "relation finished", "relation queues", "view all_jobs", "trigger CREATE TRIGGER bell", ".ring("} {
		if !strings.Contains(first, part) {
			t.Errorf("the catalog has no %q", part)
		}
	}
	if applied := b.up(schema); applied != nil {
		t.Errorf("the second Up applied %+v", applied)
	}
	reverted, err := migrations.Down(b.ctx, b.conn, schema, 0)
	if err != nil || len(reverted) != migrations.Latest || reverted[len(reverted)-1].Version != 1 {
		t.Errorf("Down reverted %+v, %v", reverted, err)
	}
	if left := b.catalog(schema); left != "" {
		t.Errorf("Down left behind:\n%s", left)
	}
	expect(b, true, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema)
	if reverted, err := migrations.Down(b.ctx, b.conn, schema, 0); err != nil || reverted != nil {
		t.Errorf("a second Down reverted %+v, %v", reverted, err)
	}
	b.up(schema)
	if second := b.catalog(schema); second != first {
		t.Errorf("up, down, up gives\n%s\ninstead of\n%s", second, first)
	}
	if second := b.books(schema); second != books {
		t.Errorf("up, down, up gives the books\n%s\ninstead of\n%s", second, books)
	}
}

func TestDownRefusesWhatItCannotKnow(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	for _, to := range []int{-1, migrations.Latest + 1} {
		if _, err := migrations.Down(b.ctx, b.conn, schema, to); err == nil {
			t.Errorf("down to version %d: no error", to)
		}
	}
	before := b.catalog(schema)
	b.script("INSERT INTO fencepost.schema_migrations (version, name, checksum, oldest_code) VALUES (1000, 'future', '', 1)")
	if _, err := migrations.Down(b.ctx, b.conn, schema, 0); err == nil || !strings.Contains(err.Error(), "1000") {
		t.Errorf("down from a version of the future: %v", err)
	}
	if after := b.catalog(schema); after != before {
		t.Error("a Down that failed changed something")
	}
	if applied, err := migrations.Up(b.ctx, b.conn, schema); err != nil || applied != nil {
		t.Errorf("up on a newer schema: %v, %v", applied, err)
	}
}

// A schema that is up to date is left alone by Up: it waits for no lock, not
// even one of the migrators, and only reads the version.
func TestUpToDateSchemaNeedsNoLock(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	holder := b.connect()
	tx, err := holder.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(b.ctx, migrations.LockStatement, schema); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(b.ctx, "LOCK TABLE fencepost.jobs, fencepost.finished, fencepost.queues"); err != nil {
		t.Fatal(err)
	}
	b.script("SET default_transaction_read_only = on; SET lock_timeout = '1ms'")
	if applied := b.up(schema); applied != nil {
		t.Errorf("applied %+v", applied)
	}
	if err := tx.Rollback(b.ctx); err != nil {
		t.Fatal(err)
	}
}

// withNext adds a migration to the real ones, which needs the strongest lock
// on jobs.
func withNext(t *testing.T, oldestCode int) fs.FS {
	t.Helper()
	next := fmt.Sprintf("sql/%03d_extra.", migrations.Latest+1)
	files := fstest.MapFS{
		next + "up.sql":   {Data: fmt.Appendf(nil, "-- oldest code: %d\nALTER TABLE {{schema}}.jobs ADD COLUMN extra integer;\n", oldestCode)},
		next + "down.sql": {Data: []byte("ALTER TABLE {{schema}}.jobs DROP COLUMN extra;\n")},
	}
	names, err := fs.Glob(migrations.Files(), "sql/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(migrations.Files(), name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: data}
	}
	return files
}
