package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

// Each way in which a process can be there, or not.
func TestWorkerList(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	register := func(w claim.Worker, locks bool) *pgx.Conn {
		conn := script(t, dsn, "")
		if p, err := claim.In("fencepost").Register(t.Context(), conn, w, locks); err != nil || p.Locked != locks {
			t.Fatalf("%+v, %v", p, err)
		}
		return conn
	}
	register(claim.Worker{ID: "lives", Version: "v2.0.0", Queues: map[string]int{"mail": 10, "default": 3}, Kinds: []string{"invoice"}}, true)
	died := register(claim.Worker{ID: "died", Version: "v2.0.0"}, true)
	register(claim.Worker{ID: "pooled", Version: "v2.0.0", Queues: map[string]int{"x": 1}}, false)
	if err := died.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	script(t, dsn, `INSERT INTO fencepost.jobs (kind, status, lease_until, worker_id, attempts)
		SELECT 'a', 'running', now() + interval '1 hour', id, 1 FROM unnest(ARRAY['lives', 'lives', 'old']) AS w (id)`)
	// The server may still be about to give up the lock.
	if err := eventually(dsn, "SELECT count(*) = 1 FROM pg_locks AS l JOIN fencepost.workers AS w ON l.classid = w.tableoid AND l.objid = w.lock_key::oid WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"); err != nil {
		t.Fatal(err)
	}

	got := run(t, invocation{args: []string{"worker", "list"}}, "DATABASE_URL="+dsn)
	var lines []string
	for line := range strings.Lines(got.stdout) {
		fields := strings.Fields(line)
		if n := len(fields); strings.HasSuffix(line, "Z\n") {
			fields = fields[:n-2] // the time of start
		}
		lines = append(lines, strings.Join(fields, " "))
	}
	want := `ID STATE VERSION QUEUES RUNNING STARTED AT
lives live v2.0.0 default=3 mail=10 2
died silent v2.0.0 - 0
pooled lease only v2.0.0 x=1 0
old lease only - - 1 -`
	if strings.Join(lines, "\n") != want {
		t.Errorf("got\n%s\n%s", got.stdout, got.stderr)
	}

	got = run(t, invocation{args: []string{"worker", "list", "--json"}}, "DATABASE_URL="+dsn)
	for _, want := range []string{
		`{"id":"lives","state":"live","version":"v2.0.0","queues":{"default":3,"mail":10},"kinds":["invoice"],"running":2,"started_at":"2`,
		`{"id":"pooled","state":"lease_only","version":"v2.0.0","queues":{"x":1},"kinds":null,"running":0,"started_at":"2`,
		`{"id":"old","state":"lease_only","version":"","queues":{},"kinds":null,"running":1,"started_at":null}`,
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("%s is not in\n%s", want, got.stdout)
		}
	}
}
