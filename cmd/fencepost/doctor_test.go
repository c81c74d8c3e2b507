package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// A worker that is killed is missed, by its silence and by what it leaves
// undone.
func TestDoctorMissesAKilledWorker(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	dsn := database(t)
	doctor := func() (code int, report string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code = Run(ctx, []string{"doctor", "--database-url", dsn}, nil, strings.NewReader(""), &stdout, &stderr)
		return code, stdout.String() + stderr.String()
	}
	worker := command(ctx, dsn, "work", "--exec", "sleep 60")
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill := func() {
		if !killed {
			killed = true
			_ = worker.Process.Kill()
			_ = worker.Wait() // it was killed
		}
	}
	defer kill()
	if _, err := query(ctx, dsn, "INSERT INTO fencepost.jobs (kind) VALUES ('test') RETURNING id"); err != nil {
		t.Fatal(err)
	}
	const running = "SELECT EXISTS (SELECT FROM fencepost.jobs WHERE status = 'running')"
	if err := eventually(dsn, running); err != nil {
		t.Fatal(err)
	}
	if code, report := doctor(); code != exitOK || !strings.Contains(report, "1 live") {
		t.Errorf("with a live worker: exit code %d\n%s", code, report)
	}
	kill()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		code, report := doctor()
		if code == exitOK && strings.Contains(report, "is silent") && strings.Contains(report, "running jobs in its name: 1") {
			break // a warning: any other worker takes its job
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the kill: exit code %d\n%s", code, report)
		}
	}
	// With jobs that nobody runs it is a failure.
	if _, err := query(ctx, dsn, "INSERT INTO fencepost.jobs (kind, run_at) VALUES ('test', clock_timestamp() - interval '2 minutes') RETURNING id"); err != nil {
		t.Fatal(err)
	}
	if code, report := doctor(); code != exitFailed || !strings.Contains(report, "no live worker serves it") {
		t.Errorf("with a job that is due: exit code %d\n%s", code, report)
	}
}

// What the operations page proposes to paste can be pasted: what changes a
// table by its owner, what watches by a monitor.
func TestTheSQLOfTheOperationsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	dsn := database(t)
	admin := pgtest.Conn(t, dsn)
	role := strings.ToLower("fencepost_test_" + rand.Text())
	script, err := migrations.Grants("fencepost", migrations.Roles{Monitors: []string{role}})
	if err != nil {
		t.Fatal(err)
	}
	run := func(sql string) {
		t.Helper()
		if _, err := admin.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Errorf("%s\n%v", sql, err)
		}
	}
	run("CREATE ROLE " + role + " IN ROLE pg_monitor; " + script)
	defer run("RESET ROLE; DROP OWNED BY " + role + " CASCADE; DROP ROLE " + role)
	run("INSERT INTO fencepost.jobs (kind) VALUES ('test'); INSERT INTO fencepost.workers (worker_id) VALUES ('w')")
	for section, as := range map[string]string{"Autovacuum": "", "What to alert on": role, "Backup and restore": ""} {
		_, text, found := strings.Cut(string(page), "\n## "+section+"\n")
		text, _, _ = strings.Cut(text, "\n## ")
		blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(text, -1)
		if !found || len(blocks) == 0 {
			t.Errorf("section %q has no SQL", section)
		}
		for _, block := range blocks {
			if as != "" {
				run("SET ROLE " + as)
			}
			run(block[1])
			run("RESET ROLE")
		}
	}
}
