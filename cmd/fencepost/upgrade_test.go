//go:build unix

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// oldCode builds the command as it was when it knew no more than the given
// version of the schema, from an archive of its sources ("make oldcode").
func oldCode(t *testing.T, version int) string {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("testdata/oldcode/%d.tar.gz", version))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for archive := tar.NewReader(unzipped); ; {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, entry.Name)
		if entry.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else if entry.Typeflag == tar.TypeReg {
			var text []byte
			if text, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(path, text, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	program := filepath.Join(dir, "fencepost-old")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", program, "./cmd/fencepost")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the code of version %d: %v\n%s", version, err, out)
	}
	return program
}

// fleet is a database with processes of two generations on it.
type fleet struct {
	t   *testing.T
	dsn string
	dir string
}

const (
	oldOne = "old"
	newOne = "new"
)

func (f *fleet) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+f.dsn)
	return cmd
}

// run returns the exit code and all output.
func (f *fleet) run(program string, args ...string) (int, string) {
	f.t.Helper()
	out, err := f.command(f.t.Context(), program, args...).CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		f.t.Fatal(err)
	}
	code := 0
	if err != nil {
		code = err.(*exec.ExitError).ExitCode()
	}
	return code, string(out)
}

func (f *fleet) mustRun(program string, args ...string) string {
	f.t.Helper()
	code, out := f.run(program, args...)
	if code != exitOK {
		f.t.Fatalf("%s %s: exit code %d\n%s", filepath.Base(program), args, code, out)
	}
	return strings.TrimSpace(out)
}

// mustRefuse wants the exit code and every part of the message.
func (f *fleet) mustRefuse(code int, parts []string, program string, args ...string) {
	f.t.Helper()
	got, out := f.run(program, args...)
	for _, part := range parts {
		if got != code || !strings.Contains(out, part) {
			f.t.Errorf("%s %s: exit code %d, want %d and something about %q\n%s", filepath.Base(program), args, got, code, part, out)
		}
	}
}

// work starts a worker that polls once an hour, so that what it finds at once it
// has heard of. It returns when the worker hears; the func that it returns stops
// it.
func (f *fleet) work(program, name string, args ...string) (stop func()) {
	f.t.Helper()
	stop, _ = f.hire(program, name, append([]string{"--poll", "1h"}, args...)...)
	return stop
}

// hire starts a worker that writes a line for each job into the file "runs". It
// returns when the worker hears. Of the funcs that it returns one stops the
// worker, and the other one kills it.
func (f *fleet) hire(program, name string, args ...string) (stop, kill func()) {
	f.t.Helper()
	log := filepath.Join(f.t.TempDir(), "log")
	out, err := os.Create(log)
	if err != nil {
		f.t.Fatal(err)
	}
	defer out.Close()
	line := fmt.Sprintf(`echo "%s $FENCEPOST_JOB_ID $FENCEPOST_KIND" >> '%s/runs'; if [ "$FENCEPOST_KIND" = slow ]; then exec sleep 1000; else sleep 0.02; fi`, name, f.dir)
	cmd := f.command(context.Background(), program, append([]string{"work", "--exec", line}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	said := func() string {
		text, err := os.ReadFile(log)
		if err != nil {
			f.t.Fatal(err)
		}
		return string(text)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var end sync.Once
	stop = func() {
		end.Do(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			select {
			case err := <-ended:
				if err != nil {
					f.t.Errorf("the %s worker: %v\n%s", name, err, said())
				}
			case <-time.After(patience + 30*time.Second):
				_ = cmd.Process.Kill()
				<-ended
				f.t.Errorf("the %s worker does not stop\n%s", name, said())
			}
		})
	}
	kill = func() {
		end.Do(func() {
			_ = cmd.Process.Kill()
			<-ended
		})
	}
	f.t.Cleanup(stop)
	f.until("the "+name+" worker hears", func() bool { return strings.Contains(said(), "notifications are heard") })
	return stop, kill
}

func (f *fleet) until(what string, holds func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// runs counts how often each worker ran each job.
func (f *fleet) runs() map[string]map[string]int {
	f.t.Helper()
	runs := map[string]map[string]int{oldOne: {}, newOne: {}}
	text, err := os.ReadFile(filepath.Join(f.dir, "runs"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		word := strings.Fields(line)
		runs[word[0]][word[1]]++
	}
	return runs
}

func (f *fleet) sql(sql string) []string {
	f.t.Helper()
	rows, err := query(f.t.Context(), f.dsn, sql)
	if err != nil {
		f.t.Fatal(err)
	}
	return rows
}

func (f *fleet) done(what, id string) {
	f.t.Helper()
	f.until(what, func() bool {
		return f.sql("SELECT count(*) FROM fencepost.finished WHERE status = 'done' AND id = " + id)[0] == "1"
	})
}

// B98, B105, B106: an upgrade while everything runs. The previous code, really:
// its worker goes on while the new program migrates, beside new workers after
// that, and on the old schema again if one has to go back.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	for version := 1; version < migrations.Latest; version++ {
		t.Run(fmt.Sprint("from ", version), func(t *testing.T) {
			t.Parallel()
			rollingUpgrade(t, version)
		})
	}
}

func rollingUpgrade(t *testing.T, version int) {
	latest := fmt.Sprint(migrations.Latest)
	older := oldCode(t, version)
	newer, err := exec.LookPath("fencepost")
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t, pgtest.New(t, "empty", func(context.Context, string) error { return nil }), t.TempDir()}

	// The old schema: the new program says what to run.
	f.mustRun(older, "migrate", "up")
	stopOld := f.work(older, oldOne)
	f.done("the old program works", f.mustRun(older, "enqueue", "mail"))
	behind := []string{fmt.Sprint("version ", version), "needs " + latest, "fencepost migrate up --schema fencepost"}
	f.mustRefuse(exitSchema, behind, newer, "work", "--exec", "true")
	f.mustRefuse(exitSchema, behind, newer, "enqueue", "mail")
	f.mustRefuse(exitSchema, behind, newer, "list")

	// Somebody has read every table and goes on: the migration comes again and
	// again, and the old worker works.
	dump, err := pgtest.Conn(t, f.dsn).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dump.Exec(t.Context(), "SELECT (SELECT count(*) FROM fencepost.all_jobs), (SELECT count(*) FROM fencepost.queues)"); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	up := f.command(t.Context(), newer, "migrate", "up")
	up.Stdout, up.Stderr = &said, &said
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	const waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ~ 'Migration 00')"
	for range 2 {
		f.until("the migration waits", func() bool { return f.sql(waits)[0] == "true" })
		f.done("the old worker works while it waits", f.mustRun(older, "enqueue", "mail"))
		f.until("the migration steps back", func() bool { return f.sql(waits)[0] == "false" })
	}
	if err := dump.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := up.Wait(); err != nil || !strings.Contains(said.String(), "applied "+latest) {
		t.Fatalf("migrate up: %v\n%s", err, &said)
	}

	// The new schema, with both: each job once, by either.
	f.done("the old worker works on the new schema", f.mustRun(older, "enqueue", "mail"))
	stopNew := f.work(newer, newOne)
	before := len(f.runs()[oldOne])
	f.sql("INSERT INTO fencepost.jobs (kind) SELECT 'mail' FROM generate_series(1, 400)")
	f.until("all jobs are done", func() bool { return f.sql("SELECT count(*) FROM fencepost.jobs")[0] == "0" })
	runs := f.runs()
	if n, m := len(runs[oldOne])-before, len(runs[newOne]); n == 0 || m == 0 || n+m != 400 {
		t.Errorf("the old worker ran %d and the new one %d of 400 jobs", n, m)
	}
	for id, n := range runs[oldOne] {
		if n+runs[newOne][id] != 1 {
			t.Errorf("job %s ran %d times in the old and %d times in the new worker", id, n, runs[newOne][id])
		}
	}
	stopNew()
	stopOld()

	// Bells are heard both ways: each worker takes only what the other program
	// enqueues.
	stopOld, stopNew = f.work(older, oldOne, "--kind", "for old", "--kind", "slow"), f.work(newer, newOne, "--kind", "for new")
	f.done("the old worker hears the new program", f.mustRun(newer, "enqueue", "for old"))
	f.done("the new worker hears the old program", f.mustRun(older, "enqueue", "for new"))
	f.done("the old worker hears of a job that is due later", f.mustRun(newer, "enqueue", "for old", "--delay", "1s"))
	f.done("the new worker hears of a job that is due later", f.mustRun(older, "enqueue", "for new", "--delay", "1s"))

	// What the old worker does not know does not disturb it: a recall, even of
	// its own job, a pause, a row about another worker.
	slow := f.mustRun(newer, "enqueue", "slow")
	f.until("the old worker runs a job", func() bool { return f.runs()[oldOne][slow] == 1 })
	f.mustRun(newer, "cancel", slow)
	f.sql("SELECT fencepost.recall(worker_id), fencepost.recall('x') FROM fencepost.workers")
	f.sql("SELECT pg_notify('fencepost', text) FROM (VALUES ('recall:'), ('recall:x'), ('2:0:default'), ('quiet:1700000000123456:default'), ('')) AS v (text)")
	f.mustRun(newer, "queue", "pause", "other")
	f.done("the old worker still hears", f.mustRun(newer, "enqueue", "for old"))
	if out := f.mustRun(older, "list", "--json"); !strings.Contains(out, `"id":"`+slow+`"`) || !strings.Contains(out, "cancelled") {
		t.Errorf("the old program lists\n%s", out)
	}
	f.mustRun(older, "show", slow)
	if out := f.mustRun(older, "migrate", "status"); !strings.Contains(out, "unknown") {
		t.Errorf("the old program's status\n%s", out)
	}
	if out := f.mustRun(older, "migrate", "up"); out != "nothing to do" {
		t.Errorf("the old program migrates: %s", out)
	}
	f.mustRefuse(exitFailed, []string{"version " + latest, "use the program that applied it"}, older, "migrate", "down", "--to", "0")

	// Back: new workers stop, the schema goes back with whatever is paused, and
	// the old worker never stopped.
	stopNew()
	f.sql("INSERT INTO fencepost.workers (worker_id) VALUES ('one that died')")
	if version < 2 { // which knows no pause
		f.mustRun(newer, "queue", "pause", "default")
	}
	if version < 3 { // which knows no silent queues
		f.mustRun(newer, "queue", "bell", "never", "default")
	}
	f.mustRun(newer, "migrate", "down", "--to", fmt.Sprint(version))
	f.mustRefuse(exitSchema, behind, newer, "list")
	f.done("the old worker works on the old schema", f.mustRun(older, "enqueue", "for old"))
	f.mustRun(newer, "migrate", "up")
	if rows := f.sql("SELECT count(*) FROM fencepost.queues WHERE name = 'default' AND (paused_at IS NOT NULL OR bell <> 'auto')"); !slices.Equal(rows, []string{"0"}) {
		t.Errorf("%s queues are paused or silent after the way back and again", rows)
	}
	f.done("the old worker works on the new schema again", f.mustRun(older, "enqueue", "for old"))
	stopOld()

	// A schema that excludes the old program.
	f.sql("UPDATE fencepost.schema_migrations SET oldest_code = " + latest + " WHERE version = " + latest)
	excluded := []string{"version " + latest, "from version " + latest + " on", fmt.Sprint("this one is at ", version), "install a newer one"}
	f.mustRefuse(exitSchema, excluded, older, "work", "--exec", "true")
	f.mustRefuse(exitSchema, excluded, older, "enqueue", "mail")
	f.mustRefuse(exitSchema, excluded, older, "list")
	f.mustRun(newer, "list")
}
