package pgtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost/internal/pg"
)

func makeTable(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(run(ctx, conn, "CREATE TABLE t (tz text DEFAULT current_setting('timezone'))", "INSERT INTO t DEFAULT VALUES"), conn.Close(ctx))
}

// uniqueKey makes a key of which no template is left from a run before.
func uniqueKey(t *testing.T) string {
	t.Helper()
	key := randomName()
	t.Cleanup(func() { dropTemplate(t, key) })
	return key
}

func dropTemplate(t *testing.T, key string) {
	t.Helper()
	ctx := context.Background()
	server, err := shared.dsn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = onServer(ctx, server, func(conn *pgx.Conn) error {
		return run(ctx, conn,
			"DROP DATABASE IF EXISTS "+quote(templateName(key)),
			"DROP DATABASE IF EXISTS "+quote(templateName(key)+"_new"))
	})
	if err != nil {
		t.Error(err)
	}
}

func count(t *testing.T, conn *pgx.Conn, sql string, args ...any) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Tests do not see each other's rows, and all see the template's.
func TestDatabasesAreApart(t *testing.T) {
	key := uniqueKey(t)
	a := Conn(t, New(t, key, makeTable))
	b := Conn(t, New(t, key, makeTable))
	if _, err := a.Exec(t.Context(), "INSERT INTO t DEFAULT VALUES"); err != nil {
		t.Fatal(err)
	}
	const inTokyo = "SELECT count(*) FROM t WHERE tz = 'Asia/Tokyo' AND current_setting('timezone') = 'Asia/Tokyo'"
	if got := count(t, a, inTokyo); got != 2 {
		t.Errorf("first database: %d rows", got)
	}
	if got := count(t, b, inTokyo); got != 1 {
		t.Errorf("second database: %d rows", got)
	}
}

// The database goes with the test, whatever sessions are left in it.
func TestDatabaseIsDropped(t *testing.T) {
	key := uniqueKey(t)
	var dsn string
	var left *pgx.Conn
	t.Run("inner", func(t *testing.T) {
		dsn = New(t, key, makeTable)
		var err error
		if left, err = pgx.Connect(t.Context(), dsn); err != nil {
			t.Fatal(err)
		}
	})
	if err := left.Ping(t.Context()); err == nil {
		t.Error("the session lives")
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if !isCode(err, "3D000") {
		t.Errorf("connected again: %v", err)
	}
	if err == nil {
		_ = conn.Close(t.Context())
	}
}

// Several test binaries may need the same template at once.
func TestTemplateIsMadeOnce(t *testing.T) {
	server, err := shared.dsn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := uniqueKey(t)
	var prepared atomic.Int32
	var group errgroup.Group
	for range 6 {
		name := templateName(key) + "_" + randomName()
		group.Go(func() error {
			return create(t.Context(), server, templateName(key), name, func(ctx context.Context, dsn string) error {
				prepared.Add(1)
				return makeTable(ctx, dsn)
			})
		})
		t.Cleanup(func() {
			if err := drop(server, name); err != nil {
				t.Error(err)
			}
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := prepared.Load(); n != 1 {
		t.Errorf("prepared %d times", n)
	}
}

// A template whose maker failed or was killed is not used.
func TestHalfMadeTemplateIsRedone(t *testing.T) {
	server, err := shared.dsn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := uniqueKey(t)
	broken := errors.New("broken")
	name := templateName(key) + "_" + randomName()
	err = create(t.Context(), server, templateName(key), name, func(ctx context.Context, dsn string) error {
		return errors.Join(makeTable(ctx, dsn), broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("error: %v", err)
	}
	err = onServer(t.Context(), server, func(conn *pgx.Conn) error {
		return run(t.Context(), conn, "CREATE DATABASE "+quote(templateName(key)+"_new"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := count(t, Conn(t, New(t, key, makeTable)), "SELECT count(*) FROM t"); got != 1 {
		t.Errorf("%d rows", got)
	}
}

func TestExecMode(t *testing.T) {
	key := uniqueKey(t)
	for mode, want := range map[string]pgx.QueryExecMode{
		"":                pgx.QueryExecModeCacheStatement,
		"simple_protocol": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Setenv("FENCEPOST_EXEC_MODE", mode)
		pool := Pool(t, New(t, key, makeTable))
		if got := pool.Config().ConnConfig.DefaultQueryExecMode; got != want {
			t.Errorf("%q: mode %v", mode, got)
		}
		if err := pool.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestWithDatabase(t *testing.T) {
	t.Setenv("FENCEPOST_EXEC_MODE", "exec")
	for _, dsn := range []string{
		"postgres://u:p%40ss@h:1234/old?sslmode=disable",
		"postgresql://u:p%40ss@h:1234?dbname=old&sslmode=disable",
		"user=u password=p@ss host=h port=1234 dbname=old sslmode=disable",
	} {
		changed, err := withDatabase(dsn, "new")
		if err != nil {
			t.Fatal(err)
		}
		c, err := pgx.ParseConfig(changed)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(c.User, c.Password, c.Host, c.Port, c.Database, c.DefaultQueryExecMode)
		if want := fmt.Sprint("u", "p@ss", "h", 1234, "new", pgx.QueryExecModeExec); got != want {
			t.Errorf("%s: %s, want %s", dsn, got, want)
		}
	}
	if _, err := withDatabase("postgres://u:secret@h:port/", "new"); err == nil || fmt.Sprint(err) != "DATABASE_URL is not a URL" {
		t.Errorf("a bad URL: %v", err)
	}
}

func TestServer(t *testing.T) {
	s := Server(t, pg.Options{TCP: true})
	conn := Conn(t, s.TCPURL("postgres"))
	if err := s.Shutdown("immediate"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the server still answers")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := Conn(t, s.TCPURL("postgres")).Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
