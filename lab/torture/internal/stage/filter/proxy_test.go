package filter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage/filter"
)

var server *pg.Server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if server, err = pg.Start(context.Background(), pg.Options{TCP: true}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := errors.Join(server.Stop(), goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

const (
	patience = 30 * time.Second       // for what must come
	silence  = 100 * time.Millisecond // long enough to see that nothing does
)

// through returns a proxy and the way through it to the server.
func through(t *testing.T) (*filter.Proxy, string) {
	t.Helper()
	u, err := url.Parse(server.TCPURL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	p := listen(t)
	p.Aim("tcp", u.Host)
	u.Host = fmt.Sprintf("127.0.0.1:%d", p.Port())
	return p, u.String()
}

func listen(t *testing.T) *filter.Proxy {
	t.Helper()
	p, err := filter.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
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

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// What is held arrives later, and nothing is lost: neither a question, which
// the server does not hear of before, nor an answer, which it has given.
func TestHoldLosesNothing(t *testing.T) {
	direct := connect(t, server.TCPURL("postgres"))
	for _, d := range []filter.Direction{filter.Up, filter.Down} {
		p, dsn := through(t)
		conn := connect(t, dsn)
		key := conn.PgConn().PID()
		p.Hold(d)
		answered := make(chan error, 1)
		go func() {
			_, err := conn.Exec(t.Context(), fmt.Sprintf("SELECT pg_advisory_lock(%d)", key))
			answered <- err
		}()
		holds := func() (yes bool) {
			if err := direct.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = $1", key).Scan(&yes); err != nil {
				t.Fatal(err)
			}
			return yes
		}
		if d == filter.Down {
			for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the server was not asked")
				}
			}
		}
		select {
		case err := <-answered:
			t.Fatalf("direction %d: an answer came through: %v", d, err)
		case <-time.After(silence):
		}
		if d == filter.Up && holds() {
			t.Fatal("the server was asked")
		}
		p.Release(d)
		if err := <-answered; err != nil {
			t.Errorf("direction %d: after the release: %v", d, err)
		}
	}
}

// A client that gives up while its bytes are held does not end the server's
// session before they are let go.
func TestHoldKeepsTheEndToo(t *testing.T) {
	direct := connect(t, server.TCPURL("postgres"))
	p, dsn := through(t)
	conn := connect(t, dsn)
	p.Hold(filter.Up)
	exec(t, direct, "SELECT 1")
	ctx, cancel := context.WithTimeout(t.Context(), silence)
	defer cancel()
	_ = conn.Close(ctx)
	there := func() (n int) {
		if err := direct.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", conn.PgConn().PID()).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	time.Sleep(silence)
	if there() != 1 {
		t.Error("the session ended while the way to it was held")
	}
	p.Release(filter.Up)
	for deadline := time.Now().Add(patience); there() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the session did not end")
		}
	}
}

func TestCutLosesWhatIsHeld(t *testing.T) {
	p, dsn := through(t)
	conn := connect(t, dsn)
	p.Hold(filter.Down)
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT 1")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("an answer came through: %v", err)
	case <-time.After(silence):
	}
	p.Cut()
	p.Release(filter.Down)
	if err := <-answered; err == nil {
		t.Error("an answer came through after the cut")
	}
	connect(t, dsn)
}

// A client that does not read blocks nobody but itself.
func TestAFrozenClientBlocksNobody(t *testing.T) {
	p := listen(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p.Aim("tcp", l.Addr().String())
	client, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.Port()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	message := append([]byte{'D', 0, 16, 0, 4}, make([]byte, 16<<16)...) // 1 MiB
	for range 32 {                                                       // more than any buffer of the kernel
		if _, err := conn.Write(message); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, client)
	if want := int64(32 * len(message)); n != want || err != nil {
		t.Errorf("the client got %d bytes, %v; want %d", n, err, want)
	}
}

// Each notification has its fate; the one for one channel is not that for
// another.
func TestBells(t *testing.T) {
	p, dsn := through(t)
	conn := connect(t, dsn)
	direct := connect(t, server.TCPURL("postgres"))
	exec(t, conn, "LISTEN a")
	exec(t, conn, `LISTEN "a:own"`)
	p.Bells(func(channel, payload string) filter.Fate {
		switch {
		case channel != "a":
			return filter.Pass
		case strings.HasPrefix(payload, "drop"):
			return filter.Fate{}
		case strings.HasPrefix(payload, "double"):
			return filter.Fate{Copies: 2}
		}
		return filter.Fate{Copies: 1, Late: 3 * silence}
	})
	for _, payload := range []string{"late", "drop", "double"} {
		exec(t, direct, "SELECT pg_notify('a', $1), pg_notify('a:own', $1)", payload)
	}
	var heard []string
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 6 {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			t.Fatalf("%v, after %v", err, heard)
		}
		heard = append(heard, n.Channel+" "+n.Payload)
	}
	if got, want := fmt.Sprint(heard), "[a:own late a:own drop a double a double a:own double a late]"; got != want {
		t.Errorf("heard %s, want %s", got, want)
	}
	if n := p.Withheld(); n != 3 {
		t.Errorf("%d did not simply pass, want 3", n)
	}
	p.Bells(nil)
	exec(t, direct, "SELECT pg_notify('a', 'drop')")
	if n, err := conn.WaitForNotification(ctx); err != nil || n.Payload != "drop" {
		t.Errorf("heard %v, %v", n, err)
	}
}

// Where the way leads nowhere, or its end is gone, the client is reset.
func TestNowhere(t *testing.T) {
	p := listen(t)
	p.Aim("tcp", "127.0.0.1:1")
	client, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.Port()))
	if err == nil {
		_, err = io.ReadAll(client)
		client.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}
