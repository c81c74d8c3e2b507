package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost/internal/pgtest"
)

const (
	benchMeasures = "SELECT count(*) = 1 FROM pg_tables WHERE schemaname LIKE 'fencepost\\_bench\\_%' AND tablename = 'jobs'"
	benchSchemas  = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'fencepost\\_bench\\_%'"
)

// benchThen starts a bench, sends it a signal while it measures, and returns
// its exit code and what it printed.
func benchThen(t *testing.T, dsn string, signal os.Signal) (code int, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var errs bytes.Buffer
	cmd := command(ctx, dsn, "bench", "--seconds", "600")
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err := eventually(dsn, benchMeasures)
	if err == nil {
		err = cmd.Process.Signal(signal)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		t.Error(err)
	}
	_ = cmd.Wait() // its exit code says it
	return cmd.ProcessState.ExitCode(), errs.String()
}

// A bench that is interrupted leaves nothing and says so by its exit code.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	code, stderr := benchThen(t, dsn, os.Interrupt)
	if code != exitFailed || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "fencepost: ") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	if got := one(t, dsn, benchSchemas); got != "0" {
		t.Errorf("%s schemas are left", got)
	}
}

// One that is killed leaves its schema, which is removed when somebody asks.
func TestBenchKilled(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	benchThen(t, dsn, os.Kill)
	if got := one(t, dsn, benchSchemas); got != "1" {
		t.Errorf("%s schemas are left; want 1", got)
	}
	if err := eventually(dsn, "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'fencepost\\_bench%'"); err != nil {
		t.Fatal(err)
	}
	if out := say(t, dsn, "bench", "--clean"); !strings.HasPrefix(out, "dropped fencepost_bench_") {
		t.Errorf("%q", out)
	}
	if got := one(t, dsn, benchSchemas); got != "0" {
		t.Errorf("%s schemas are left", got)
	}
}

// A role that may not make a schema is told what to do, and not about the
// rights of a queue.
func TestBenchWithoutTheRight(t *testing.T) {
	t.Parallel()
	const role = "fencepost_test_cmd_bench"
	dsn := database(t)
	if err := pgtest.Roles(t.Context(), dsn, role); err != nil {
		t.Fatal(err)
	}
	c := invocation{args: []string{"bench"}}
	got := run(t, c, "DATABASE_URL="+pgtest.As(t, dsn, role))
	mustFail(t, c, got, exitFailed, "GRANT CREATE ON DATABASE ")
	if strings.Contains(got.stderr, "migrate grants") || got.stdout != "" {
		t.Errorf("%q, %q", got.stdout, got.stderr)
	}
}
