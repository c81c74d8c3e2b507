package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options says which server to start, and how. The zero value is a fast
// server for tests on a Unix socket, of the newest version found.
type Options struct {
	Major    int               // exactly this major version; 0: the newest found
	Bin      string            // the directory of postgres and initdb; "": search
	TCP      bool              // listen on 127.0.0.1 too, on a free port
	Durable  bool              // a commit survives a crash of the machine; false: fsync and the like are off
	Settings map[string]string // further settings of postgresql.conf, stronger than ours
	Log      io.Writer         // one line for each step that may take long; nil: silent
}

func (o Options) logf(format string, args ...any) {
	if o.Log != nil {
		fmt.Fprintf(o.Log, format+"\n", args...)
	}
}

// How long a server may take to end before stronger means are used, and how
// long a start waits for the remains of a killed predecessor to go away.
const (
	stopPatience    = 30 * time.Second
	restartPatience = 20 * time.Second
)

// Server is a running PostgreSQL server that belongs to this process. Its
// methods may be called from several goroutines.
type Server struct {
	options  Options
	inst     installation
	owner    *owner
	home     *home
	port     int
	password string

	mu      sync.Mutex
	proc    *process   // the newest run; it may have ended
	poolers []*process // in front of it
}

// Start starts a server and returns when it accepts connections. ctx bounds
// the start alone, which takes well under a second unless a package has to be
// fetched; the server runs until Stop, or until this process ends in any way.
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("start a private PostgreSQL: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, o Options) (_ *Server, err error) {
	own, err := serverOwner()
	if err != nil {
		return nil, err
	}
	inst, err := find(ctx, o, own)
	if err != nil {
		return nil, err
	}
	h, err := newHome(ctx, own)
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, inst: inst, owner: own, home: h}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()

	if s.inst, err = inst.reachable(own, h.path); err != nil {
		return nil, err
	}
	if s.password, err = createData(ctx, o, s.inst, own, h.path); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		if err = s.configure(); err != nil {
			return nil, err
		}
		// Another program may take the port between our look and the start.
		if err = s.run(ctx); !errors.Is(err, errPortTaken) || try == 5 {
			break
		}
	}
	return s, err
}

// URL returns the connection string of a database for the superuser postgres,
// over the Unix socket. Only the user that started the server, and root, can
// reach it.
func (s *Server) URL(database string) string {
	q := url.Values{"host": {s.home.path}, "port": {strconv.Itoa(s.port)}}
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database, RawQuery: q.Encode()}
	return u.String()
}

// TCPURL is like URL, over 127.0.0.1, with the password that this way asks
// for. It needs Options.TCP.
func (s *Server) TCPURL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Major returns the major version of the server, such as 18.
func (s *Server) Major() int { return s.inst.major }

// PID returns the process id of the server's main process in its newest run,
// which may have ended.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid
}

// Stop ends all sessions, the server and its poolers, waits for them, and
// removes its data.
// A second call does nothing.
func (s *Server) Stop() error {
	err := errors.Join(s.stopPoolers(), s.Shutdown("fast"))
	return errors.Join(err, s.home.remove())
}

// Shutdown ends the server and waits for it, but keeps its data for Restart.
// The mode is "fast" (roll back what is open, write a checkpoint, end) or
// "immediate" (end at once, as in a crash). Shutting down a server that has
// ended already is no error.
func (s *Server) Shutdown(mode string) error {
	signals := map[string]syscall.Signal{"fast": syscall.SIGINT, "immediate": syscall.SIGQUIT}
	sig, ok := signals[mode]
	if !ok {
		return fmt.Errorf("shut down PostgreSQL: unknown mode %q", mode)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	for _, sig := range []syscall.Signal{sig, syscall.SIGQUIT, syscall.SIGKILL} {
		if err := s.proc.stop(sig, stopPatience); err == nil {
			return nil
		} else if sig == syscall.SIGKILL {
			return fmt.Errorf("shut down PostgreSQL: %w", err)
		}
	}
	return nil
}

// Restart starts the server again on the same data, socket and port, and
// returns when it accepts connections. The run before must have been told to
// end, by Shutdown or by a signal to its PID; its end is waited for.
func (s *Server) Restart(ctx context.Context) error {
	// After a kill of the main process the others need a moment to notice,
	// and until then the server refuses to start.
	patience := time.Now().Add(restartPatience)
	for {
		err := s.run(ctx)
		if !errors.Is(err, errStillBusy) || time.Now().After(patience) {
			return err
		}
	}
}

// configure chooses a port and appends our settings to postgresql.conf, where
// the last of two equal names counts and ALTER SYSTEM stays stronger.
func (s *Server) configure() error {
	o, listen := s.options, ""
	s.port = 5432
	if o.TCP {
		listen = "127.0.0.1"
		var err error
		if s.port, err = freePort(); err != nil {
			return err
		}
	}
	settings := []string{
		setting("listen_addresses", listen),
		setting("port", strconv.Itoa(s.port)),
		setting("unix_socket_directories", s.home.path),
		setting("max_connections", "400"), // enough for test packages that run in parallel
	}
	if !o.Durable {
		for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
			settings = append(settings, setting(name, "off"))
		}
	}
	for name, value := range o.Settings {
		settings = append(settings, setting(name, value))
	}
	return s.appendConf(settings...)
}

func (s *Server) appendConf(settings ...string) error {
	f, err := os.OpenFile(filepath.Join(s.home.path, "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + strings.Join(settings, "\n") + "\n")
	return errors.Join(err, f.Close())
}

func setting(name, value string) string {
	return name + " = '" + strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(value) + "'"
}

// freePort finds a port below those that the kernel hands out to outgoing
// connections, so that it is most likely still free at a later Restart.
func freePort() (int, error) {
	var err error
	for range 50 {
		port := 15000 + int(randomUint32()%15000)
		var l net.Listener
		if l, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
