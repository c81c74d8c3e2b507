//go:build unix

package pg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestStartAndStop(t *testing.T) {
	s := startTest(t, Options{Settings: map[string]string{"application_name": `it's a \ test`}})
	for sql, want := range map[string]string{
		"SELECT current_user":        "postgres",
		"SHOW server_encoding":       "UTF8",
		"SHOW fsync":                 "off",
		"SHOW listen_addresses":      "",
		"SHOW timezone":              "UTC",
		"SHOW application_name":      `it's a \ test`,
		"SELECT left(version(), 13)": "PostgreSQL " + strconv.Itoa(s.Major()),
		"SELECT datcollate FROM pg_database WHERE datname = 'postgres'": "C",
	} {
		if got := mustAsk(t, s.URL("postgres"), sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
	pid, home := s.PID(), s.home.path
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	if running(pid) || exists(home) {
		t.Errorf("after Stop: process there %v, directory there %v", running(pid), exists(home))
	}
}

func TestDurable(t *testing.T) {
	s := startTest(t, Options{Durable: true})
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if got := mustAsk(t, s.URL("postgres"), "SHOW "+name); got != "on" {
			t.Errorf("%s is %s", name, got)
		}
	}
}

func TestTCPAsksForThePassword(t *testing.T) {
	s := startTest(t, Options{TCP: true})
	if got := mustAsk(t, s.TCPURL("postgres"), "SHOW listen_addresses"); got != "127.0.0.1" {
		t.Errorf("listens on %s", got)
	}
	mustAsk(t, s.URL("postgres"), "SELECT current_user")

	u, err := url.Parse(s.TCPURL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("postgres", "wrong")
	_, err = ask(t.Context(), u.String(), "SELECT current_user")
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "28P01" {
		t.Errorf("a wrong password: %v", err)
	}
}

// A stop, a crash and a kill of the main process alone: the data, the socket
// and the port are the same afterwards.
func TestRestart(t *testing.T) {
	s := startTest(t, Options{TCP: true, Durable: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	local, tcp := s.URL("postgres"), s.TCPURL("postgres")
	mustExec(t, local, "CREATE TABLE t AS SELECT 42 AS n")

	short, cancelShort := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancelShort()
	if err := s.Restart(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("restarted a running server: %v", err)
	}
	if err := s.Shutdown("slow"); err == nil {
		t.Error("an unknown mode was taken")
	}
	ends := map[string]func() error{
		"fast":      func() error { return s.Shutdown("fast") },
		"immediate": func() error { return s.Shutdown("immediate") },
		"kill -9": func() error {
			// A session at work outlives the main process for a while, and
			// keeps the next one from starting.
			keepBusy(t, local)
			return syscall.Kill(s.PID(), syscall.SIGKILL)
		},
	}
	for name, end := range ends {
		before := s.PID()
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.Restart(ctx); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.PID() == before {
			t.Errorf("%s: PID is that of the run before", name)
		}
		for _, dsn := range []string{local, tcp} {
			if got := mustAsk(t, dsn, "SELECT n::text FROM t"); got != "42" {
				t.Errorf("%s: read %s", name, got)
			}
		}
	}
}

// keepBusy makes a session that computes for a second or two.
func keepBusy(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = conn.Exec(t.Context(), "DO 'BEGIN FOR i IN 1..30000000 LOOP END LOOP; END'") // its server is killed
		_ = conn.Close(t.Context())
	}()
	t.Cleanup(func() { <-ended })
	active := fmt.Sprintf("SELECT state FROM pg_stat_activity WHERE pid = %d", conn.PgConn().PID())
	for mustAsk(t, dsn, active) != "active" {
	}
}

// A server that cannot start says why, and leaves nothing behind.
func TestStartFails(t *testing.T) {
	own, err := serverOwner()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", openDir(t))
	_, err = Start(t.Context(), Options{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("error: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	base, err := baseDir(own)
	if err != nil {
		t.Fatal(err)
	}
	if homes := homesIn(t, base); len(homes) != 0 {
		t.Errorf("left behind: %v", homes)
	}
}

// Ctrl-C goes to a whole process group, and must not end the server before
// those who work on it.
func TestOwnProcessGroup(t *testing.T) {
	s := startTest(t, Options{})
	group, err := syscall.Getpgid(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	if group == syscall.Getpgrp() {
		t.Error("the server is in our process group")
	}
}
