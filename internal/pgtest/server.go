package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-go/fencepost/internal/pg"
)

// startTimeout leaves room for fetching a server.
const startTimeout = 5 * time.Minute

// Run runs the tests of a package and returns its exit code. Each package
// that uses pgtest calls it from its TestMain: os.Exit(pgtest.Run(m)). After
// the tests it stops the private server and fails if a goroutine is left.
func Run(m *testing.M) int {
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	// After a failure a leak is likely, and says nothing new.
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = 1
		}
	}
	return code
}

// Server starts a server for one test, which is stopped at its end. Without a
// version in o it is that of FENCEPOST_TEST_MAJOR.
func Server(t testing.TB, o pg.Options) *pg.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	s, err := startServer(ctx, o)
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

// Pooler starts a PgBouncer in front of the server; see pg.Server.Pooler. If it
// is not installed the test fails where everything has to be tested (CI or
// FENCEPOST_NEED_ALL is set), and is skipped elsewhere, with what to do.
func Pooler(t testing.TB, s *pg.Server, mode string, size int) (dsn func(database string) string) {
	t.Helper()
	dsn, err := s.Pooler(t.Context(), mode, size)
	if errors.Is(err, pg.ErrNoPooler) && os.Getenv("CI") == "" && os.Getenv("FENCEPOST_NEED_ALL") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

func startServer(ctx context.Context, o pg.Options) (*pg.Server, error) {
	if major := os.Getenv("FENCEPOST_TEST_MAJOR"); major != "" && o.Major == 0 {
		var err error
		if o.Major, err = strconv.Atoi(major); err != nil {
			return nil, fmt.Errorf("FENCEPOST_TEST_MAJOR: %w", err)
		}
	}
	o.Log = os.Stderr
	return pg.Start(ctx, o)
}

// shared is the server of this test binary.
var shared sharedServer

type sharedServer struct {
	mu      sync.Mutex
	private *pg.Server // nil: none was needed
	err     error      // why it did not start; not tried again
}

// dsn returns the connection string of the server's own database, or of the
// one that DATABASE_URL names.
func (s *sharedServer) dsn(ctx context.Context) (string, error) {
	if dsn := os.Getenv("DATABASE_URL"); dsn != "" {
		return dsn, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.private == nil && s.err == nil {
		s.private, s.err = startServer(ctx, pg.Options{})
	}
	if s.err != nil {
		return "", s.err
	}
	return s.private.URL("postgres"), nil
}

func (s *sharedServer) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.private == nil {
		return nil
	}
	return s.private.Stop()
}

// withDatabase returns the connection string with another database in it, and
// with pgx's exec mode where one is asked for.
func withDatabase(dsn, database string) (string, error) {
	mode := os.Getenv("FENCEPOST_EXEC_MODE")
	if !isURL(dsn) {
		// Keywords and values; of two equal keywords the last one counts.
		dsn += " dbname=" + database
		if mode != "" {
			dsn += " default_query_exec_mode=" + mode
		}
		return dsn, nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("DATABASE_URL is not a URL") // the error would quote its password
	}
	u.Path = "/" + database
	q := u.Query()
	q.Del("dbname")
	if mode != "" {
		q.Set("default_query_exec_mode", mode)
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}
