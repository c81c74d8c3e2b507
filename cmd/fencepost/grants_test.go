package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// B98, B100, B101, B102, B103: a database whose administrator has made a schema
// for the owner and nothing else, in which nobody may create anything outside
// it. The owner migrates and grants; then a producer, a worker and a monitor
// live with what they got, and no DDL is issued. Each starts twice: the schema
// is on no search_path.
func TestEachRoleInItsOwn(t *testing.T) {
	t.Parallel()
	const owner, producer, worker, monitor = "fencepost_test_cmd_owner", "fencepost_test_cmd_producer", "fencepost_test_cmd_worker", "fencepost_test_cmd_monitor"
	dsn := pgtest.New(t, "empty", func(context.Context, string) error { return nil })
	if err := pgtest.Roles(t.Context(), dsn, owner, producer, worker, monitor); err != nil {
		t.Fatal(err)
	}
	conn := script(t, dsn, `DROP SCHEMA public; CREATE SCHEMA "My Queue" AUTHORIZATION `+owner)
	as := func(role string, args ...string) result {
		t.Helper()
		return run(t, invocation{args: append(args, "--schema", "My Queue")}, "DATABASE_URL="+pgtest.As(t, dsn, role))
	}
	mustWork := func(role string, args ...string) string {
		t.Helper()
		got := as(role, args...)
		if got.code != exitOK {
			t.Fatalf("%s as %s: exit code %d, %s", args, role, got.code, got.stderr)
		}
		return got.stdout
	}

	if got := as(worker, "migrate", "up"); got.code != exitFailed || !strings.Contains(got.stderr, "permission denied") {
		t.Errorf("a worker migrates: %+v", got)
	}
	mustWork(owner, "migrate", "up")
	grants := []string{"migrate", "grants", "--producer", producer, "--worker", worker, "--monitor", monitor, "--apply"}
	if got, want := mustWork(owner, grants...), producer+" has the rights of a producer\n"+worker+" has the rights of a worker\n"+monitor+" has the rights of a monitor\n"; got != want {
		t.Errorf("the grants say %q, want %q", got, want)
	}
	if got, want := mustWork(owner, append(grants, "--json")...), `{"role":"`+producer+`","rights":"producer"}`+"\n"; !strings.HasPrefix(got, want) {
		t.Errorf("the grants say %q, want %q first", got, want)
	}
	if _, err := conn.PgConn().Exec(t.Context(), `
		CREATE SCHEMA trap;
		CREATE FUNCTION trap.ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'DDL: %', tg_tag; END $$;
		CREATE EVENT TRIGGER trap ON ddl_command_start EXECUTE FUNCTION trap.ddl()`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	if got := as(owner, "migrate", "down", "--to", "1"); got.code != exitFailed || !strings.Contains(got.stderr, "DDL: ") {
		t.Errorf("the trap does not see DDL: %+v", got)
	}

	for range 2 {
		id := strings.TrimSpace(mustWork(producer, "enqueue", "mail"))
		var stderr bytes.Buffer
		work := command(t.Context(), pgtest.As(t, dsn, worker), "work", "--exec", "true", "--schema", "My Queue")
		work.Stderr = &stderr
		if err := work.Start(); err != nil {
			t.Fatal(err)
		}
		err := eventually(dsn, `SELECT EXISTS (SELECT FROM "My Queue".finished WHERE status = 'done' AND id = `+id+`)`)
		_ = work.Process.Signal(os.Interrupt)
		if werr := work.Wait(); err != nil || werr != nil {
			t.Fatalf("%v, %v: %s", err, werr, &stderr)
		}
		if list := mustWork(monitor, "list", "--json"); !strings.Contains(list, `"id":"`+id+`"`) {
			t.Errorf("job %s is not in the list: %s", id, list)
		}
	}
	mustWork(worker, "retry", "--all", "--dry-run")
	mustWork(worker, "queue", "pause", "default")
	mustWork(worker, "queue", "resume", "default")

	if got := as(producer, "list"); got.code != exitFailed || !strings.Contains(got.stderr, "fencepost migrate grants") {
		t.Errorf("a producer lists: %+v", got)
	}
	if got := as(monitor, "enqueue", "mail"); got.code != exitFailed || !strings.Contains(got.stderr, "fencepost migrate grants") {
		t.Errorf("a monitor enqueues: %+v", got)
	}
	// A producer is told as well that there are no tables.
	c := invocation{args: []string{"enqueue", "mail", "--schema", "none"}}
	mustFail(t, c, run(t, c, "DATABASE_URL="+pgtest.As(t, dsn, producer)), exitSchema, "fencepost migrate up --schema none")
}

func TestGrantsArePrinted(t *testing.T) {
	printed := run(t, invocation{args: []string{"migrate", "grants", "--worker", "a, b", "--worker", `c"d`, "--schema", "s"}})
	if want := `GRANT USAGE ON SCHEMA "s" TO "a, b", "c""d";`; printed.code != exitOK || !slices.Contains(strings.Split(printed.stdout, "\n"), want) {
		t.Errorf("exit code %d, no line %q in:\n%s%s", printed.code, want, printed.stdout, printed.stderr)
	}
	for reason, args := range map[string][]string{
		"--producer":         nil,
		"--owner is":         {"--owner", ""},
		"is empty":           {"--worker", ""},
		"no such names":      {"--monitor", strings.Repeat("x", 64)},
		"--json":             {"--worker", "a", "--json"},
		"takes no arguments": {"print"},
	} {
		c := invocation{args: append([]string{"migrate", "grants"}, args...)}
		mustFail(t, c, run(t, c), exitUsage, reason)
	}
	c := invocation{args: []string{"migrate", "print", "--json"}}
	mustFail(t, c, run(t, c), exitUsage, "--json")

	dsn := database(t)
	c = invocation{args: []string{"migrate", "grants", "--producer", "fencepost_test_nobody", "--apply"}}
	mustFail(t, c, run(t, c, "DATABASE_URL="+dsn), exitFailed, `there is no role "fencepost_test_nobody"; create each with CREATE ROLE`)
	c.args = append(c.args, "--schema", "none")
	mustFail(t, c, run(t, c, "DATABASE_URL="+dsn), exitSchema, "fencepost migrate up --schema none")
}
