package faultproxy_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fencepost-go/fencepost/internal/faultproxy"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

const (
	patience = 30 * time.Second       // for what must come
	silence  = 100 * time.Millisecond // long enough to see that nothing does
)

func start(t *testing.T) (*faultproxy.Proxy, *pgx.ConnConfig) {
	t.Helper()
	dsn := pgtest.New(t, "faultproxy", func(context.Context, string) error { return nil })
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	proxy := faultproxy.New(t, dsn)
	proxy.Through(config)
	return proxy, config
}

func connect(t *testing.T, config *pgx.ConnConfig) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), silence)
		defer cancel()
		_ = conn.Close(ctx) // may be in a black hole
	})
	return conn
}

// ask reports whether the server answers within the limit.
func ask(t *testing.T, conn *pgx.Conn, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := conn.Exec(ctx, "SELECT 1")
	return err
}

func TestStallHoldsBackAndResumeLosesNothing(t *testing.T) {
	proxy, config := start(t)
	conn := connect(t, config)
	proxy.Stall()
	answered := make(chan error, 1)
	go func() { answered <- ask(t, conn, patience) }()
	ctx, cancel := context.WithTimeout(t.Context(), silence)
	defer cancel()
	if _, err := pgx.ConnectConfig(ctx, config); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a new connection: %v, want silence", err)
	}
	if len(answered) > 0 {
		t.Fatal("an answer went through")
	}
	proxy.Resume()
	if err := <-answered; err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

func TestStrandSparesNewConnections(t *testing.T) {
	proxy, config := start(t)
	conn := connect(t, config)
	proxy.Strand()
	if err := ask(t, conn, silence); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the stranded connection: %v, want silence", err)
	}
	if err := ask(t, connect(t, config), patience); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

func TestCutAndRefuse(t *testing.T) {
	proxy, config := start(t)
	conn := connect(t, config)
	proxy.Refuse()
	if err := ask(t, conn, patience); err != nil {
		t.Errorf("an open connection while new ones are refused: %v", err)
	}
	if _, err := pgx.ConnectConfig(t.Context(), config); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v, want it refused", err)
	}
	proxy.Cut()
	if err := ask(t, conn, patience); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after Cut: %v, want a broken connection", err)
	}
	proxy.Accept(t)
	if err := ask(t, connect(t, config), patience); err != nil {
		t.Errorf("after Accept: %v", err)
	}
}

func TestDropNotifications(t *testing.T) {
	proxy, config := start(t)
	conn := connect(t, config)
	notify := func(payload int) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), "SELECT pg_notify('c', $1)", strconv.Itoa(payload)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), "LISTEN c"); err != nil {
		t.Fatal(err)
	}
	proxy.DropNotifications(2)
	for i := range 4 {
		notify(i)
	}
	proxy.DropNotifications(-1)
	for i := range 4 {
		notify(10 + i)
	}
	proxy.DropNotifications(0)
	notify(20)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, want := range []string{"2", "3", "20"} {
		n, err := conn.WaitForNotification(ctx)
		if err != nil || n.Payload != want {
			t.Fatalf("heard %v, %v; want %s", n, err, want)
		}
	}
}

func TestOnQuery(t *testing.T) {
	proxy, config := start(t)
	conn := connect(t, config)
	proxy.OnQuery(func(sql string) *pgproto3.ErrorResponse {
		if sql == "SELECT 1" {
			return &pgproto3.ErrorResponse{Severity: "ERROR", Code: "58P01", Message: "no"}
		}
		return nil
	})
	var pgErr *pgconn.PgError
	if err := ask(t, conn, patience); !errors.As(err, &pgErr) || pgErr.Code != "58P01" {
		t.Errorf("got %v, want the injected error", err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT 2"); err != nil {
		t.Errorf("the next statement: %v", err)
	}
}
