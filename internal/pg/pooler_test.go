//go:build unix

package pg

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// needPooler ends the test if PgBouncer is not installed: as a failure where
// everything has to be tested, else skipped with what to do about it.
func needPooler(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrNoPooler) && os.Getenv("CI") == "" && os.Getenv("FENCEPOST_NEED_ALL") == "":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

// In transaction mode two clients share one server session; in session mode
// each has its own. Either way the pooler ends with the server.
func TestPooler(t *testing.T) {
	s := startTest(t, Options{})
	for mode, want := range map[string]bool{"transaction": true, "session": false} {
		dsn, err := s.Pooler(t.Context(), mode, 2)
		needPooler(t, err)
		var pids [2]string
		for i := range pids {
			conn, err := pgx.Connect(t.Context(), dsn("postgres")+"&default_query_exec_mode=exec")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			if err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid()::text").Scan(&pids[i]); err != nil {
				t.Fatal(err)
			}
		}
		if shared := pids[0] == pids[1]; shared != want {
			t.Errorf("%s mode: sessions %v", mode, pids)
		}
	}
	home, poolers := s.home.path, s.poolers
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	for _, p := range poolers {
		if running(p.pid) {
			t.Errorf("pooler %d still runs", p.pid)
		}
	}
	if exists(home) {
		t.Error("its files are left")
	}
}

// A pooler that cannot start says why.
func TestPoolerFails(t *testing.T) {
	s := startTest(t, Options{})
	_, err := s.Pooler(t.Context(), "no such mode", 1)
	if errors.Is(err, ErrNoPooler) {
		needPooler(t, err)
	}
	if err == nil || !strings.Contains(err.Error(), "pool_mode") {
		t.Errorf("error: %v", err)
	}
}
