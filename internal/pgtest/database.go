package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// databaseTimeout bounds the making and the dropping of a database.
const databaseTimeout = 2 * time.Minute

// New gives the test an empty database that prepare has filled, and returns
// its connection string. prepare runs once for each key and server, on a
// template of which the tests get copies; key stands for everything that
// prepare depends on. The database is dropped at the end of the test, with
// whatever sessions it still has. Its time zone is Asia/Tokyo, so that nothing
// works only in UTC.
func New(t testing.TB, key string, prepare func(ctx context.Context, dsn string) error) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout+databaseTimeout)
	defer cancel()
	server, err := shared.dsn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	template := templateName(key)
	name := template + "_" + randomName()
	dsn, err := withDatabase(server, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := create(ctx, server, template, name, prepare); err != nil {
		t.Fatalf("make a test database: %v", err)
	}
	t.Cleanup(func() {
		if err := drop(server, name); err != nil {
			t.Errorf("drop the test database: %v", err)
		}
	})
	return dsn
}

// Conn connects to dsn until the end of the test.
func Conn(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = conn.Close(ctx) // the test may have closed or broken it
	})
	return conn
}

// Pool opens a pool on dsn until the end of the test. The test must have
// given all connections back by then.
func Pool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			pool.Close() // waits for the connections in use
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
			t.Errorf("%d connections were not given back to the pool", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

func onServer(ctx context.Context, server string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(ctx))
}

func templateName(key string) string {
	hash := sha256.Sum256([]byte(key))
	return fmt.Sprintf("fencepost_test_%x", hash[:8])
}

func randomName() string { return strings.ToLower(rand.Text()[:12]) }

// drop has a context of its own: those of tests have ended by then.
func drop(server, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	return onServer(ctx, server, func(conn *pgx.Conn) error {
		return run(ctx, conn, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)")
	})
}

func create(ctx context.Context, server, template, name string, prepare func(context.Context, string) error) error {
	return onServer(ctx, server, func(conn *pgx.Conn) error {
		err := copyTemplate(ctx, conn, template, name)
		if isCode(err, "3D000") { // no such database
			if err = makeTemplate(ctx, conn, server, template, prepare); err == nil {
				err = copyTemplate(ctx, conn, template, name)
			}
		}
		return err
	})
}

func copyTemplate(ctx context.Context, conn *pgx.Conn, template, name string) error {
	return run(ctx, conn,
		"CREATE DATABASE "+quote(name)+" TEMPLATE "+quote(template),
		"ALTER DATABASE "+quote(name)+" SET timezone = 'Asia/Tokyo'", // not copied with a template
	)
}

// makeTemplate fills a database under another name and renames it at the end,
// so that a template is whole or not there. Several test binaries may work on
// one server: the lock lets one of them do it.
func makeTemplate(ctx context.Context, conn *pgx.Conn, server, template string, prepare func(context.Context, string) error) (err error) {
	hash := sha256.Sum256([]byte(template))
	key := int64(binary.BigEndian.Uint64(hash[:8]))
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
		return err
	}
	// Closing the connection gives the lock back as well.
	defer func() {
		_, uerr := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", key)
		err = errors.Join(err, uerr)
	}()

	var there bool
	const exists = "SELECT EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = $1)"
	if err := conn.QueryRow(ctx, exists, template).Scan(&there); err != nil || there {
		return err
	}
	wip := template + "_new"
	dsn, err := withDatabase(server, wip)
	if err != nil {
		return err
	}
	drop := "DROP DATABASE IF EXISTS " + quote(wip) + " WITH (FORCE)"
	err = run(ctx, conn, drop,
		"CREATE DATABASE "+quote(wip)+" TEMPLATE template0",
		"ALTER DATABASE "+quote(wip)+" SET timezone = 'Asia/Tokyo'",
	)
	if err != nil {
		return err
	}
	if err := prepare(ctx, dsn); err != nil {
		return errors.Join(fmt.Errorf("prepare: %w", err), run(ctx, conn, drop))
	}
	// A session in a template, were it only autovacuum's, delays its copies.
	return run(ctx, conn,
		"ALTER DATABASE "+quote(wip)+" RENAME TO "+quote(template),
		"ALTER DATABASE "+quote(template)+" ALLOW_CONNECTIONS false",
	)
}

// run executes statements one by one, outside a transaction.
func run(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func isCode(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}
