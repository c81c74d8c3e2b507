package fencepost_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(workerDSN); dsn != "" {
		if err := workerMain(dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(pgtest.Run(m))
}

// patience bounds every wait for an event. It is long because the machine may
// be busy, and because some events come only with a tick, which an idle process
// makes each 33 s at the latest; nothing waits for it to pass.
const patience = time.Minute

// migrate is the prepare func of the test databases. Ids begin above 2^32, so
// that nothing works only in 32 bits.
func migrate(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := migrations.Up(ctx, conn, fencepost.DefaultSchema); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "ALTER TABLE fencepost.jobs ALTER COLUMN id RESTART WITH 4294967297"); err != nil {
		return err
	}
	if err := pgtest.Roles(ctx, dsn, workerRole, producerRole, monitorRole); err != nil {
		return err
	}
	if err := migrations.Grant(ctx, conn, fencepost.DefaultSchema, roles); err != nil {
		return err
	}
	// A worker's own tables.
	_, err = conn.Exec(ctx, "GRANT CREATE ON SCHEMA public TO "+workerRole)
	return err
}

// Nobody in these tests has more rights than "fencepost migrate grants" gives,
// but for who asks for admin.
const (
	workerRole   = "fencepost_test_worker"
	producerRole = "fencepost_test_producer"
	monitorRole  = "fencepost_test_monitor"
)

var roles = migrations.Roles{Workers: []string{workerRole}, Producers: []string{producerRole}, Monitors: []string{monitorRole}}

// database makes a database and returns it as a worker sees it. The worker may
// make tables of its own in schema public, but may not touch Fencepost's
// schema, only the rows in it: for that and for what only a superuser may, such
// as ending sessions of other roles, a test takes admin's pool.
func database(t testing.TB) (dsn string, pool *pgxpool.Pool) {
	t.Helper()
	dsn = pgtest.As(t, pgtest.New(t, "fencepost root "+ddl(t), migrate), workerRole)
	return dsn, pgtest.Pool(t, dsn)
}

// traced opens a pool whose statements a tracer sees until the end of the test,
// and those of the connections that a client makes from its configuration.
func traced(t testing.TB, dsn string, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// admin returns a pool of the server's owner on the same database.
func admin(t testing.TB, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	return pgtest.Pool(t, pgtest.Admin(t, pool.Config().ConnString()))
}

// as returns a pool of another role on the same database.
func as(t testing.TB, pool *pgxpool.Pool, role string) *pgxpool.Pool {
	t.Helper()
	return pgtest.Pool(t, pgtest.As(t, pgtest.Admin(t, pool.Config().ConnString()), role))
}

// ddl is everything that a template depends on.
func ddl(t testing.TB) string {
	t.Helper()
	var text strings.Builder
	if err := migrations.Print(&text, fencepost.DefaultSchema, 0, migrations.Latest); err != nil {
		t.Fatal(err)
	}
	grants, err := migrations.Grants(fencepost.DefaultSchema, roles)
	if err != nil {
		t.Fatal(err)
	}
	return text.String() + grants
}

// newClient returns a client that logs to the test.
func newClient(t testing.TB, pool *pgxpool.Pool, config fencepost.Config) *fencepost.Client {
	t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	client, err := fencepost.New(pool, config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// work runs the client until the returned func is called, which returns the
// error of Run; at the latest until the end of the test.
func work(t testing.TB, client *fencepost.Client) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	var err error
	var done bool
	stop = func() error {
		cancel()
		if done {
			return err
		}
		select {
		case err = <-ended:
			done = true
		case <-time.After(patience + 30*time.Second):
			t.Fatal("Run does not end")
		}
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil && !t.Failed() && !errors.Is(err, fencepost.ErrStuck) {
			t.Errorf("Run: %v", err)
		}
	})
	return stop
}

// receive waits for a value.
func receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing within %v", what, patience)
		panic("unreachable")
	}
}

// eventually waits until a condition in the database holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// ended waits until a job is over, and returns it.
func ended(t testing.TB, client *fencepost.Client, id int64) fencepost.Info {
	t.Helper()
	var info fencepost.Info
	eventually(t, "the job ends", func() bool {
		var err error
		if info, err = client.Get(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return !info.FinishedAt.IsZero()
	})
	return info
}

func enqueue(t testing.TB, client *fencepost.Client, jobs ...fencepost.NewJob) []int64 {
	t.Helper()
	ids, err := client.Enqueue(t.Context(), jobs...)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func count(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

type invoice struct {
	Number int64 `json:"number"`
}

func (invoice) Kind() string { return "invoice" }

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// exampleTB gives examples, which have no testing.T, what the helpers need.
type exampleTB struct {
	testing.TB // nil: only the methods below are called
	cleanups   []func()
}

func (*exampleTB) Helper()                      {}
func (*exampleTB) Context() context.Context     { return context.Background() }
func (*exampleTB) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (*exampleTB) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (*exampleTB) Errorf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (tb *exampleTB) Cleanup(f func())          { tb.cleanups = append(tb.cleanups, f) }
func (tb *exampleTB) end() {
	for _, f := range slices.Backward(tb.cleanups) {
		f()
	}
}

// logged is a logger that keeps what it gets.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}
