package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// tests is a testing.M with the package's server around it.
type tests struct{ m *testing.M }

func (t tests) Run() int { return pgtest.Run(t.m) }

// TestMain makes the test binary behave as fencepost when it is called by that
// name: scripts, and tests that kill processes, do so.
func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){"fencepost": main})
}

// patience bounds every wait for an event.
const patience = 30 * time.Second

// firstID is above 2^53: a reader that takes ids for floating point numbers
// would print ...992.
const firstID = 9007199254740993

func migrate(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := migrations.Up(ctx, conn, "fencepost"); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ALTER TABLE fencepost.jobs ALTER COLUMN id RESTART WITH "+strconv.Itoa(firstID))
	return err
}

// database returns a migrated database.
func database(t testing.TB) string { return pgtest.New(t, "fencepost cmd", migrate) }

// TestScripts runs what a user types, in testdata. Each script has a database
// of its own in DATABASE_URL.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("DATABASE_URL", database(env.T().(testing.TB)))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"run":   runFile,
			"sql":   sql,
			"until": until,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// exits CODE PROGRAM ARGS...: the program must exit with that code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// sql QUERY: prints the rows, columns separated by a space.
func sql(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sql query")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rows, err := query(ctx, ts.Getenv("DATABASE_URL"), args[0])
	ts.Check(err)
	for _, row := range rows {
		fmt.Fprintln(ts.Stdout(), row)
	}
}

// run FILE: runs a script of SQL.
func runFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: run file")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, ts.Getenv("DATABASE_URL"))
	ts.Check(err)
	_, err = conn.PgConn().Exec(ctx, ts.ReadFile(args[0])).ReadAll()
	ts.Check(errors.Join(err, conn.Close(ctx)))
}

// until QUERY: waits until the query, which must return one boolean, is true.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: until query")
	}
	if err := eventually(ts.Getenv("DATABASE_URL"), args[0]); err != nil {
		ts.Fatalf("%v", err)
	}
}

func eventually(dsn, condition string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ctx.Err() == nil {
		rows, err := query(ctx, dsn, condition)
		if err != nil {
			return err
		}
		if len(rows) == 1 && rows[0] == "true" {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("not within %v: %s", patience, condition)
}

func query(ctx context.Context, dsn, sql string) ([]string, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		return strings.TrimSuffix(fmt.Sprintln(values...), "\n"), err
	})
}

// command is fencepost as a process of its own, which testscript has put on
// the path.
func command(ctx context.Context, dsn string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "fencepost", args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn)
	return cmd
}
