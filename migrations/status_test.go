package migrations_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost/migrations"
)

// B106: a program says whether it works with the schema it finds, and what to
// run if not.
func TestCheck(t *testing.T) { // not parallel: it replaces the migrations
	b := setUp(t)
	wantErr := func(what string, parts ...string) {
		t.Helper()
		err := migrations.Check(b.ctx, b.conn, schema)
		if !errors.Is(err, migrations.ErrSchema) {
			t.Errorf("%s: %v, want ErrSchema", what, err)
			return
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the message %q does not have %q", what, err, part)
			}
		}
	}
	const command = "fencepost migrate up --schema fencepost"
	wantErr("no schema", command)
	b.script("CREATE SCHEMA fencepost")
	wantErr("empty schema", command)
	b.up(schema)
	if err := migrations.Check(b.ctx, b.conn, schema); err != nil {
		t.Errorf("newest schema: %v", err)
	}
	b.script("INSERT INTO fencepost.schema_migrations (version, name, checksum, oldest_code) VALUES (99, 'future', '', 1)")
	if err := migrations.Check(b.ctx, b.conn, schema); err != nil {
		t.Errorf("newer schema that says it works with us: %v", err)
	}
	b.script("UPDATE fencepost.schema_migrations SET oldest_code = 98 WHERE version = 99")
	wantErr("newer schema that does not", "version 99", "version 98", "newer")
	// Later migrations may be compatible with that one, but not with us.
	b.script("INSERT INTO fencepost.schema_migrations (version, name, checksum, oldest_code) VALUES (100, 'later', '', 1)")
	wantErr("the same, and one later", "version 100", "version 98")
	b.script("DELETE FROM fencepost.schema_migrations WHERE version > " + fmt.Sprint(migrations.Latest))

	before := migrations.Latest
	migrations.Replace(t, withNext(t, before+1))
	wantErr("older schema", fmt.Sprintf("version %d", before), fmt.Sprintf("needs %d", before+1), command)
	b.up(schema)
	if err := migrations.Check(b.ctx, b.conn, schema); err != nil {
		t.Errorf("newest schema: %v", err)
	}
}

func TestStatus(t *testing.T) { // not parallel: it replaces the migrations
	b := setUp(t)
	status := func() []migrations.State {
		t.Helper()
		list, err := migrations.Status(b.ctx, b.conn, schema)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	known := migrations.Latest
	if list := status(); len(list) != known || !list[0].AppliedAt.IsZero() || list[0].Name != "queue" {
		t.Errorf("no schema: %+v", list)
	}
	b.up(schema)
	list := status()
	if len(list) != known {
		t.Errorf("newest schema: %+v", list)
	}
	for _, s := range list {
		if s.AppliedAt.IsZero() || s.Changed || s.Unknown {
			t.Errorf("newest schema: %+v", s)
		}
	}
	b.script("UPDATE fencepost.schema_migrations SET checksum = 'other'")
	b.script("INSERT INTO fencepost.schema_migrations (version, name, checksum, oldest_code) VALUES (99, 'future', '', 7)")
	list = status()
	if len(list) != known+1 || !list[0].Changed || list[0].Unknown {
		t.Fatalf("changed: %+v", list)
	}
	if f := list[known]; f.Version != 99 || f.Name != "future" || f.OldestCode != 7 || !f.Unknown || f.Changed || f.AppliedAt.IsZero() {
		t.Errorf("unknown: %+v", f)
	}
	b.script("DELETE FROM fencepost.schema_migrations WHERE version = 99")
	migrations.Replace(t, withNext(t, 1))
	if list := status(); len(list) != known+1 || list[known-1].AppliedAt.IsZero() || !list[known].AppliedAt.IsZero() || list[known].Unknown {
		t.Errorf("one behind: %+v", list)
	}
}

// What Print writes does the same as Up and Down, bookkeeping included.
func TestPrintDoesWhatUpDoes(t *testing.T) { // not parallel: it replaces the migrations
	migrations.Replace(t, withNext(t, 1))
	last := migrations.Latest
	b := setUp(t)
	for _, name := range []string{schema, `My "Queue"`, "it's", "$bell$"} {
		printed := func(from, to int) string {
			t.Helper()
			var out strings.Builder
			if err := migrations.Print(&out, name, from, to); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		b.up(name)
		want, books := b.catalog(name), b.books(name)
		b.script(named("DROP SCHEMA {{schema}} CASCADE", name))

		b.script(printed(0, last))
		if b.catalog(name) != want || b.books(name) != books {
			t.Errorf("schema %q: print all gives another schema than Up", name)
		}
		if applied := b.up(name); applied != nil {
			t.Errorf("schema %q: Up applied %+v after it", name, applied)
		}
		for v := range last { // back to each version but 0, and up again
			b.script(printed(last, v+1))
			b.script(printed(v+1, v+1))
			b.script(printed(v+1, last))
			if b.catalog(name) != want || b.books(name) != books {
				t.Errorf("schema %q: print %d to %d and back does not lead back", name, last, v+1)
			}
		}
		b.script(printed(last, 0))
		if left := b.catalog(name); left != "" {
			t.Errorf("schema %q: print %d to 0 leaves\n%s", name, last, left)
		}
		b.script(printed(0, 1)) // into the schema that is there
		if applied := b.up(name); len(applied) != last-1 || b.catalog(name) != want || b.books(name) != books {
			t.Errorf("schema %q: print 0 to 1 and Up give another schema than Up alone", name)
		}
	}
	for _, wrong := range [][2]int{{-1, 1}, {0, last + 1}, {last + 1, 0}, {1, -1}} {
		var out strings.Builder
		if err := migrations.Print(&out, schema, wrong[0], wrong[1]); err == nil || out.Len() > 0 {
			t.Errorf("print %v: %v, %d bytes", wrong, err, out.Len())
		}
	}
}
