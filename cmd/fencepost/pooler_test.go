package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// say runs the command to its end and returns what it printed.
func say(t *testing.T, dsn string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := command(ctx, dsn, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("fencepost %s: %v\n%s%s", strings.Join(args, " "), err, &out, &errs)
	}
	return out.String()
}

// one returns the one row of a query.
func one(t *testing.T, dsn, sql string) string {
	t.Helper()
	rows, err := query(t.Context(), dsn, sql)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%s: %v, %v", sql, rows, err)
	}
	return rows[0]
}

// Every command works through PgBouncer in transaction mode, with two server
// sessions for all, and leaves nothing with them.
func TestCommandsThroughAPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	direct, pooled := server.URL("postgres"), pgtest.Pooler(t, server, "transaction", 2)("postgres")

	say(t, pooled, "migrate", "up")
	say(t, pooled, "migrate", "up")
	if out := say(t, pooled, "migrate", "status"); strings.Contains(out, "pending") {
		t.Errorf("migrate status:\n%s", out)
	}
	say(t, pooled, "enqueue", "hello", `{"n": 1}`)

	worker := command(t.Context(), pooled, "work", "--exec", "cat", "--listen-url", direct)
	var log bytes.Buffer
	worker.Stderr = &log
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer worker.Process.Kill() // if it has not ended below
	for range 20 {
		say(t, pooled, "enqueue", "hello", `{"n": 2}`)
	}
	if err := eventually(direct, "SELECT count(*) = 21 FROM fencepost.finished WHERE status = 'done'"); err != nil {
		t.Error(err)
	}
	if err := eventually(direct, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'listen%' AND application_name = 'fencepost'"); err != nil {
		t.Errorf("the way of --listen-url is not used: %v", err)
	}
	if err := worker.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := worker.Wait(); err != nil || strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "notifications are heard") {
		t.Errorf("work: %v\n%s", err, &log)
	}

	if out := say(t, pooled, "list", "--json"); strings.Count(out, "\n") != 21 {
		t.Errorf("list:\n%s", out)
	}
	say(t, pooled, "show", one(t, direct, "SELECT min(id) FROM fencepost.finished"))
	say(t, pooled, "queue", "pause", "default")
	say(t, pooled, "queue", "list")
	say(t, pooled, "queue", "resume", "default")
	say(t, pooled, "enqueue", "hello", `{"n": 3}`)
	id := one(t, direct, "SELECT max(id) FROM fencepost.jobs")
	for _, verb := range []string{"cancel", "retry", "cancel", "delete"} {
		say(t, pooled, verb, id)
	}
	if got := one(t, direct, "SELECT count(*) FROM fencepost.jobs"); got != "0" {
		t.Errorf("%s jobs are left after they were deleted", got)
	}
	say(t, pooled, "worker", "list")
	if out := say(t, pooled, "doctor"); !strings.Contains(out, "a pooler sits between") || !strings.Contains(out, "--listen-url") {
		t.Errorf("doctor:\n%s", out)
	}
	if got := one(t, direct, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); got != "0" {
		t.Errorf("%s advisory locks are left", got)
	}
	if out := say(t, pooled, "migrate", "down", "--to", "0"); !strings.Contains(out, "reverted") {
		t.Errorf("migrate down:\n%s", out)
	}
}

// A migration that is killed while it holds the lock, through a pooler and
// directly, leaves no lock, and the next one does its work (B92).
func TestKilledMigrationLeavesNoLock(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	pooler := pgtest.Pooler(t, server, "transaction", 2)
	for name, dsn := range map[string]func(string) string{"pooled": pooler, "direct": server.URL} {
		t.Run(name, func(t *testing.T) {
			direct := server.URL(name)
			if _, err := query(t.Context(), server.URL("postgres"), "CREATE DATABASE "+name); err != nil {
				t.Fatal(err)
			}
			say(t, direct, "migrate", "up")
			say(t, direct, "migrate", "down", "--to", "1")
			// It cannot write down what it did: it has to wait, with its lock.
			holder := pgtest.Conn(t, direct)
			if _, err := holder.Exec(t.Context(), "BEGIN; LOCK TABLE fencepost.schema_migrations IN SHARE MODE"); err != nil {
				t.Fatal(err)
			}
			migration := command(t.Context(), dsn(name), "migrate", "up")
			if err := migration.Start(); err != nil {
				t.Fatal(err)
			}
			const held = "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
			if err := eventually(direct, held); err != nil {
				t.Error(err)
			}
			if err := migration.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = migration.Wait() // it was killed
			begin := time.Now()
			if err := eventually(direct, "SELECT NOT ("+held+")"); err != nil {
				t.Error(err)
			}
			t.Logf("the lock was gone %v after the kill", time.Since(begin))
			if _, err := holder.Exec(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			if out := say(t, dsn(name), "migrate", "up"); !strings.Contains(out, "applied") {
				t.Errorf("the next migration:\n%s", out)
			}
		})
	}
}
