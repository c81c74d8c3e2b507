package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Clone returns a server of its own on a copy of the data as they are now, as
// from a backup. It does not run: see Restart. It is to be stopped before s. If
// s runs it is shut down for the copy and started again, which ends its
// sessions; if it was killed it is copied as it was left.
func (s *Server) Clone(ctx context.Context) (*Server, error) {
	c, err := s.clone(ctx)
	if err != nil {
		return nil, fmt.Errorf("clone a private PostgreSQL: %w", err)
	}
	return c, nil
}

func (s *Server) clone(ctx context.Context) (_ *Server, err error) {
	if s.running() {
		if err := s.Shutdown("fast"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.Restart(ctx)) }()
	}
	h, err := newHome(ctx, s.owner)
	if err != nil {
		return nil, err
	}
	c := &Server{options: s.options, inst: s.inst, owner: s.owner, home: h, password: s.password}
	err = copyTree(filepath.Join(s.home.path, "data"), filepath.Join(h.path, "data"), s.owner)
	if err == nil {
		err = os.Remove(filepath.Join(h.path, "data", "postmaster.pid"))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = c.configure()
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Standby returns a running, asynchronous standby of s: a clone that follows
// it. To cut it off, set its primary_conninfo to nothing (ALTER SYSTEM, then
// pg_reload_conf); to make it a primary, SELECT pg_promote().
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	c, err := s.Clone(ctx)
	if err != nil {
		return nil, err
	}
	signal := filepath.Join(c.home.path, "data", "standby.signal")
	err = os.WriteFile(signal, nil, 0o600)
	if err == nil {
		err = c.owner.chown(signal)
	}
	if err == nil {
		err = c.appendConf(setting("primary_conninfo", "user=postgres host="+s.home.path+" port="+strconv.Itoa(s.port)))
	}
	if err == nil {
		err = c.Restart(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("start a standby: %w", errors.Join(err, c.Stop()))
	}
	return c, nil
}

// running tells whether the server's newest run has not ended.
func (s *Server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return false
	}
	select {
	case <-s.proc.done:
		return false
	default:
		return true
	}
}
