// Package stage is what a run takes place on: servers with a standby and a
// pooler, a bad network for each process, and the processes themselves, which
// can be killed, frozen and ended, and are started again. Faults happen on it,
// by its methods; whatever happens to a process is in the history.
package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage/filter"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// Options says what there is to be on a stage.
type Options struct {
	Dir      string // for what the processes and servers print; histories go there too
	Major    int    // of PostgreSQL; 0: the newest found
	Standby  bool   // there is a standby from the beginning
	Pooler   bool   // the way through a pooler may be used
	Workers  int    // how many there will be; it is only used for limits
	Crew     string // the program of the processes
	Wrong    string // the same with a clock that can be wrong; "": none
	Settings map[string]string
	History  *history.Writer // of the harness
	Log      io.Writer       // of who starts and ends; nil: silent
}

// Database is the name of the database of a run.
const Database = "torture"

// maxConnections is small enough to be used up.
const maxConnections = 150

// Stage is where a run takes place. Its methods may be called from any
// goroutine, except that only one fault may deal with the servers at a time.
type Stage struct {
	options   Options
	passwords map[string]string // of roles; they are made at Start
	closing   chan struct{}
	tasks     sync.WaitGroup // the supervisors

	mu        sync.Mutex
	servers   [len(places)]*pg.Server // by place; nil: none there
	data      [len(places)]string     // their data directories
	primary   int                     // its place
	old       []*pg.Server            // that are not used any more
	admin     *pgxpool.Pool
	retired   []*pgxpool.Pool // of servers that are gone; closed at the end
	lost      []witness.Line
	poolers   map[*pg.Server]*filter.Proxy // ways from TCP to their sockets
	nets      map[string]*Net
	processes []*Process
	closed    bool
}

// places are where a server may be. A client knows all of them.
var places = [...]string{"a", "b"}

// Open sets the stage: servers, schemas and roles, but no process.
func Open(ctx context.Context, o Options) (_ *Stage, err error) {
	s := &Stage{
		options:   o,
		passwords: make(map[string]string),
		closing:   make(chan struct{}),
		poolers:   make(map[*pg.Server]*filter.Proxy),
		nets:      make(map[string]*Net),
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("set the stage: %w", errors.Join(err, s.Close()))
		}
	}()
	if err := unmountOrphans(); err != nil { // so that Start can remove their homes
		return nil, err
	}
	if s.servers[0], err = pg.Start(ctx, s.serverOptions()); err != nil {
		// A server that runs already is of no use here.
		if none := (*pg.NotFoundError)(nil); errors.As(err, &none) {
			return nil, fmt.Errorf("no server of %s was found:\n%w\nAny of these helps: another --major; %s", none.Wanted, none.Tried, pg.Helps)
		}
		return nil, err
	}
	if err := s.furnish(ctx); err != nil {
		return nil, err
	}
	if o.Standby {
		if err := s.Raise(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Options returns what the stage was opened with.
func (s *Stage) Options() Options { return s.options }

// Admin is a pool of the superuser, directly to the current primary. After a
// failover it is another one.
func (s *Stage) Admin() *pgxpool.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admin
}

// Lost returns the lines of old primaries that the new ones lack: what was
// committed and went with them.
func (s *Stage) Lost(context.Context) ([]witness.Line, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]witness.Line(nil), s.lost...), nil
}

// Close ends everything, processes first, at once. Nothing is left behind. A
// second call does nothing.
func (s *Stage) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	processes := s.processes
	s.mu.Unlock()

	close(s.closing)
	var errs []error
	for _, p := range processes {
		errs = append(errs, p.end())
	}
	s.tasks.Wait()
	for _, n := range s.nets {
		errs = append(errs, n.close())
	}
	for _, p := range s.poolers {
		errs = append(errs, p.Close())
	}
	for _, pool := range append(s.retired, s.admin) {
		if pool != nil {
			closePool(pool)
		}
	}
	// Each before the server that it was made from.
	for _, place := range []int{1 - s.primary, s.primary} {
		if server := s.servers[place]; server != nil {
			errs = append(errs, s.keepLog(place), server.Stop())
		}
	}
	for _, server := range slices.Backward(s.old) {
		errs = append(errs, server.Stop())
	}
	return errors.Join(errs...)
}

// closePool does not wait for ever for somebody who has a connection in use:
// the server is about to end.
func closePool(pool *pgxpool.Pool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pool.Close()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		pool.Reset()
	}
}

// note writes an event of the harness.
func (s *Stage) note(e history.Event) {
	if s.options.History != nil {
		s.options.History.Write(e)
	}
}

// Begin writes that a fault begins, and returns how to write that it is over,
// and what there is to say of it.
func (s *Stage) Begin(fault string) (end func(note string)) {
	if s.options.History == nil {
		return func(string) {}
	}
	e := history.Event{Op: history.Fault, Ref: history.Ref{Verb: fault}}
	n := s.options.History.Begin(e)
	return func(note string) {
		e.Note = note
		s.options.History.End(n, history.OK, e)
	}
}

// Logf prints one line for people.
func (s *Stage) Logf(format string, args ...any) {
	if s.options.Log != nil {
		fmt.Fprintf(s.options.Log, format+"\n", args...)
	}
}

// keepLog copies what a server has said to where the processes' words are.
func (s *Stage) keepLog(place int) error {
	if s.options.Dir == "" {
		return nil
	}
	said, err := os.ReadFile(filepath.Join(filepath.Dir(s.data[place]), "log"))
	if err != nil {
		return nil // it has said nothing
	}
	f, err := os.OpenFile(filepath.Join(s.options.Dir, "server-"+places[place]+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(said)
	return errors.Join(err, f.Close())
}
