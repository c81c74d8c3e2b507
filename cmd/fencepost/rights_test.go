package main

import (
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// A role that may only read can look, and is told what it lacks for the rest.
func TestMonitorsOnlyLook(t *testing.T) {
	t.Parallel()
	const monitor = "fencepost_test_cmd_monitor"
	dsn := database(t)
	if err := pgtest.Roles(t.Context(), dsn, monitor); err != nil {
		t.Fatal(err)
	}
	conn := script(t, dsn, deadJobs+"INSERT INTO fencepost.jobs (id, kind, queue) VALUES (9, 'mail', 'mail')")
	if err := migrations.Grant(t.Context(), conn, "fencepost", migrations.Roles{Monitors: []string{monitor}}); err != nil {
		t.Fatal(err)
	}
	env := "DATABASE_URL=" + pgtest.As(t, dsn, monitor)
	for _, args := range [][]string{
		{"list"},
		{"show", "9"},
		{"queue", "list"},
		{"queue", "show", "mail"},
		{"worker", "list"},
		{"retry", "--all", "--dry-run"},
		{"cancel", "9", "--dry-run"},
	} {
		if got := run(t, invocation{args: args}, env); got.code != exitOK {
			t.Errorf("%s: exit code %d, %q", args, got.code, got.stderr)
		}
	}
	for _, args := range [][]string{
		{"retry", "1"},
		{"retry", "--all"},
		{"cancel", "9"},
		{"delete", "9"},
		{"release", "9"},
		{"queue", "pause", "mail"},
		{"queue", "resume", "mail"},
		{"enqueue", "mail"},
	} {
		c := invocation{args: args}
		got := run(t, c, env)
		mustFail(t, c, got, exitFailed, "permission denied for ")
		if !strings.Contains(got.stderr, "fencepost migrate grants") {
			t.Errorf("%s: standard error is %q, without the remedy", args, got.stderr)
		}
	}
	if rows, err := query(t.Context(), dsn, "SELECT count(*) FROM fencepost.finished"); err != nil || rows[0] != "1200" {
		t.Errorf("dead jobs are %v, %v", rows, err)
	}
}
