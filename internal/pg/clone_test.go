//go:build unix

package pg

import (
	"syscall"
	"testing"
	"time"
)

// stopAtEnd stops a server that another one was made from.
func stopAtEnd(t *testing.T, s *Server, err error) *Server {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func waitFor(t *testing.T, dsn, sql, want string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got, err := ask(t.Context(), dsn, sql)
		if err == nil && got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %q, %v; want %q", sql, got, err, want)
		}
	}
}

// A standby follows; when it is cut off and promoted it lacks what came after,
// and its timeline is another. The old primary is killed meanwhile.
func TestStandby(t *testing.T) {
	primary := startTest(t, Options{Durable: true})
	mustExec(t, primary.URL("postgres"), "CREATE TABLE t AS SELECT 1 AS n")
	s, err := primary.Standby(t.Context())
	standby := stopAtEnd(t, s, err)
	mustExec(t, primary.URL("postgres"), "INSERT INTO t VALUES (2)")
	waitFor(t, standby.URL("postgres"), "SELECT count(*)::text FROM t", "2")
	if got := mustAsk(t, standby.URL("postgres"), "SELECT pg_is_in_recovery()::text || current_setting('fsync')"); got != "trueon" {
		t.Errorf("the standby says %s", got)
	}

	mustExec(t, standby.URL("postgres"), "ALTER SYSTEM SET primary_conninfo = ''")
	mustExec(t, standby.URL("postgres"), "SELECT pg_reload_conf()")
	waitFor(t, standby.URL("postgres"), "SELECT count(*)::text FROM pg_stat_wal_receiver", "0")
	mustExec(t, primary.URL("postgres"), "INSERT INTO t VALUES (3)")
	if err := syscall.Kill(primary.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := mustAsk(t, standby.URL("postgres"), "SELECT pg_promote()::text"); got != "true" {
		t.Fatalf("promoted: %s", got)
	}
	mustExec(t, standby.URL("postgres"), "INSERT INTO t VALUES (4)")
	if got := mustAsk(t, standby.URL("postgres"), "SELECT string_agg(n::text, ',' ORDER BY n) || ' on ' || left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM t"); got != "1,2,4 on 00000002" {
		t.Errorf("the new primary has %s", got)
	}
}

// A clone has what there was, also of a server that was killed, and goes its
// own way.
func TestClone(t *testing.T) {
	s := startTest(t, Options{Durable: true, TCP: true})
	mustExec(t, s.URL("postgres"), "CREATE TABLE t AS SELECT 1 AS n")
	for _, end := range []string{"running", "killed"} {
		if end == "killed" {
			if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			waitGone(t, s.PID(), time.Minute)
		}
		c, err := s.Clone(t.Context())
		c = stopAtEnd(t, c, err)
		if err := c.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustExec(t, c.TCPURL("postgres"), "INSERT INTO t VALUES (2)")
		if end == "running" {
			if got := mustAsk(t, s.TCPURL("postgres"), "SELECT count(*)::text FROM t"); got != "1" {
				t.Errorf("the original has %s rows", got)
			}
		}
	}
}
