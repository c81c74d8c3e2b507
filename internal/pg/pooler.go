package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrNoPooler means that PgBouncer is not installed.
var ErrNoPooler = errors.New("PgBouncer is not installed: apt-get install pgbouncer")

// poolerPort is that of the first pooler of a server. Only the name of a
// socket comes from it.
const poolerPort = 6432

// Pooler starts a PgBouncer in front of the server, as the server's user, and
// returns a func that is to the pooler what URL is to the server. It ends with
// Stop. mode is its pool_mode ("transaction", "session", "statement"), size how
// many server sessions it has for each user and database. All else is as
// PgBouncer has it by itself.
//
// It wraps ErrNoPooler if there is none on this machine.
func (s *Server) Pooler(ctx context.Context, mode string, size int) (dsn func(database string) string, err error) {
	program, err := findPooler()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	port := poolerPort + len(s.poolers)
	base := filepath.Join(s.home.path, "pooler-"+strconv.Itoa(port))
	users := base + ".users"
	err = errors.Join(
		s.give(users, `"postgres" ""`),
		s.give(base+".ini", "[databases]",
			fmt.Sprintf("* = host=%s port=%d", s.home.path, s.port),
			"[pgbouncer]",
			"pool_mode = "+mode,
			fmt.Sprintf("default_pool_size = %d", size),
			fmt.Sprintf("listen_port = %d", port),
			"unix_socket_dir = "+s.home.path,
			// Who can reach the socket can reach the server's, where nothing is asked either.
			"auth_type = trust",
			"auth_file = "+users,
			"admin_users = postgres",
		))
	if err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}

	log, err := os.Create(base + ".log")
	if err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(program, base+".ini")
	cmd.Dir = s.home.path
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes(s.owner)
	p, err := launch(cmd)
	if err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	s.poolers = append(s.poolers, p)

	socket := filepath.Join(s.home.path, ".s.PGSQL."+strconv.Itoa(port))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			q := url.Values{"host": {s.home.path}, "port": {strconv.Itoa(port)}}
			return func(database string) string {
				u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database, RawQuery: q.Encode()}
				return u.String()
			}, conn.Close()
		}
		select {
		case <-tick.C:
		case <-p.done:
			said, _ := os.ReadFile(base + ".log")
			return nil, fmt.Errorf("start PgBouncer: it ended at once; its log says:\n%s", strings.TrimSpace(string(said)))
		case <-ctx.Done():
			return nil, fmt.Errorf("start PgBouncer: %w", context.Cause(ctx))
		}
	}
}

func (s *Server) stopPoolers() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, p := range s.poolers {
		err = errors.Join(err, p.stop(syscall.SIGKILL, stopPatience)) // it has nothing to lose
	}
	s.poolers = nil
	return err
}

// give writes a file for the server's user.
func (s *Server) give(path string, lines ...string) error {
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return s.owner.chown(path)
}

// HasPooler says whether PgBouncer is installed.
func HasPooler() bool {
	_, err := findPooler()
	return err == nil
}

// findPooler looks also where Debian has it, which is not on every user's PATH.
func findPooler() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoPooler
}
