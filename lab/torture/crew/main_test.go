package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/internal/torture"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/migrations"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func database(t *testing.T) string {
	return pgtest.New(t, "torture program", func(ctx context.Context, dsn string) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		if _, err := migrations.Up(ctx, conn, "fencepost"); err != nil {
			return err
		}
		_, err = conn.Exec(ctx, script.Business)
		return err
	})
}

func build(t *testing.T, flags ...string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "crew")
	args := append([]string{"build", "-o", program}, flags...)
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// start starts the program; its output goes to said.
func start(t *testing.T, program string, a script.Assignment, said *strings.Builder) *exec.Cmd {
	t.Helper()
	raw, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(raw)), said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return cmd
}

func code(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	err := cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

func await(t *testing.T, dir string, is func(history.Event) bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		events, err := history.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(events, is) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not seen within 30 s: %+v", events)
		}
	}
}

func enqueue(t *testing.T, dsn, kind string) {
	t.Helper()
	_, err := pgtest.Conn(t, dsn).Exec(t.Context(), `WITH o AS (INSERT INTO shop.orders (token, via) VALUES ($1, 'test'))
INSERT INTO fencepost.jobs (kind, queue, payload) VALUES ($1, 'main', jsonb_build_object('token', $1::text))`, kind)
	if err != nil {
		t.Fatal(err)
	}
}

func TestAWorkerProcess(t *testing.T) {
	program := build(t, "-tags", "torture")
	dsn, dir := database(t), t.TempDir()
	a := script.Assignment{
		Role: script.Worker, Name: "worker-1.1", Dir: dir, DSN: dsn,
		Lease: 2 * time.Second, Poll: time.Second, Slots: map[string]int{script.Main: 5},
	}
	var said strings.Builder
	cmd := start(t, program, a, &said)
	enqueue(t, dsn, script.Short)
	await(t, dir, func(e history.Event) bool { // the tap is on
		return e.Op == history.Finish && e.Phase == history.OK && len(e.Refs) == 1 && e.Refs[0].Result == "stored" && e.Refs[0].Verb == "done"
	})
	await(t, dir, func(e history.Event) bool { return e.Op == history.Claim && e.Phase == history.OK && len(e.Refs) == 1 })
	// So many bells that it promises to look without them, which ends in a second.
	bells := pgtest.Conn(t, dsn)
	for range 300 {
		if _, err := bells.Exec(t.Context(), "SELECT fencepost.ring('main')"); err != nil {
			t.Fatal(err)
		}
	}
	for _, promised := range []bool{true, false} {
		await(t, dir, func(e history.Event) bool {
			return e.Op == history.Promise && e.Queue == script.Main && (e.DB > 0) == promised
		})
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if c := code(t, cmd); c != 0 {
		t.Errorf("after SIGTERM it ends with code %d:\n%s", c, said.String())
	}
	await(t, dir, func(e history.Event) bool { return e.Op == history.Bye && e.Error == "" })

	said.Reset()
	a.Name = "worker-1.2"
	cmd = start(t, program, a, &said)
	enqueue(t, dsn, script.Exit)
	if c := code(t, cmd); c != 3 {
		t.Errorf("by a job that ends it, it ends with code %d:\n%s", c, said.String())
	}
	await(t, dir, func(e history.Event) bool { return e.Op == history.Start && e.Kind == script.Exit })

	// The next life, without a guard.
	said.Reset()
	a.Name, a.Break = "worker-1.3", string(torture.FinishFence)
	cmd = start(t, program, a, &said)
	await(t, dir, func(e history.Event) bool { return e.Op == history.End && e.Kind == script.Exit && e.Attempt == 2 })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if c := code(t, cmd); c != 0 {
		t.Errorf("without a guard it ends with code %d:\n%s", c, said.String())
	}
}

func TestWithoutTheTagNoGuardIsTakenAway(t *testing.T) {
	program := build(t)
	dir := t.TempDir()
	var said strings.Builder
	cmd := start(t, program, script.Assignment{
		Role: script.Worker, Name: "worker-1.1", Dir: dir, DSN: "host=/nowhere", Break: string(torture.FinishFence),
	}, &said)
	if c := code(t, cmd); c != 1 || !strings.Contains(said.String(), "without the tag") {
		t.Errorf("it ends with code %d:\n%s", c, said.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it has begun a history: %v %v", left, err)
	}
}
