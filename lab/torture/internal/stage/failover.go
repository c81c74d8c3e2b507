package stage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// A failover in steps, in this order: CutOff (or Follow, if nothing is to be
// lost), Leave (or not, if sockets are to stay open), Promote, Retire.

// CutOff makes the standby lose what the primary commits from now on.
func (s *Stage) CutOff(ctx context.Context) error {
	return on(ctx, s.Standby(), func(conn *pgx.Conn) error {
		for _, sql := range []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"} {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return until(ctx, "the standby is cut off", func() (bool, error) {
			return is(ctx, conn, "SELECT count(*) = 0 FROM pg_stat_wal_receiver")
		})
	})
}

// Follow waits until the standby has all that the primary has now.
func (s *Stage) Follow(ctx context.Context) error {
	var lsn string
	if err := s.Admin().QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&lsn); err != nil {
		return err
	}
	return on(ctx, s.Standby(), func(conn *pgx.Conn) error {
		return until(ctx, "the standby has caught up", func() (bool, error) {
			return is(ctx, conn, "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", lsn)
		})
	})
}

// Leave ends all ways to the primary, and then the primary, as in a crash.
func (s *Stage) Leave() error {
	s.mu.Lock()
	place, server := s.primary, s.servers[s.primary]
	s.mu.Unlock()
	return errors.Join(s.aim(place, false), server.Shutdown("immediate"))
}

// Promote makes the standby the primary, and the primary an old one, which it
// returns: see Retire.
func (s *Stage) Promote(ctx context.Context) (Old, error) {
	s.mu.Lock()
	old, place := Old{s.primary, s.servers[s.primary]}, 1-s.primary
	server := s.servers[place]
	s.mu.Unlock()
	err := on(ctx, server, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "SELECT pg_promote()"); err != nil {
			return err
		}
		// It has followed a server that is gone; as one that is followed it
		// must not name it.
		_, err := conn.Exec(ctx, "ALTER SYSTEM RESET primary_conninfo")
		return err
	})
	if err != nil {
		return old, fmt.Errorf("promote the standby: %w", err)
	}
	if err := s.appoint(ctx, place); err != nil {
		return old, err
	}
	return old, s.AwaitReady(ctx)
}

// Old is a server that was the primary.
type Old struct {
	place  int
	server *pg.Server
}

// Retire takes from an old primary the lines that the new one lacks, and then
// takes the server away. Its place is free for a new standby.
func (s *Stage) Retire(ctx context.Context, old Old) error {
	err := s.aim(old.place, false)
	// In any case a new run, without the sessions that it had.
	err = errors.Join(err, old.server.Shutdown("immediate"))
	if err == nil {
		err = old.server.Restart(ctx)
	}
	var before, after []witness.Line
	if err == nil {
		err = on(ctx, old.server, func(conn *pgx.Conn) (err error) {
			before, err = witness.Read(ctx, conn)
			return err
		})
	}
	if err == nil {
		after, err = witness.Read(ctx, s.Admin())
	}
	if err != nil {
		err = fmt.Errorf("read what an old primary has: %w", err)
	}
	lost := missing(before, after)
	s.Logf("%d lines of the log are lost with server %s", len(lost), places[old.place])

	s.mu.Lock()
	relay := s.poolers[old.server]
	delete(s.poolers, old.server)
	s.lost = append(s.lost, lost...)
	s.mu.Unlock()
	if relay != nil {
		err = errors.Join(err, relay.Close())
	}
	err = errors.Join(err, old.server.Shutdown("immediate"), s.keepLog(old.place))
	s.mu.Lock()
	defer s.mu.Unlock()
	// The new one, which was made from it, may run on its programs.
	s.old = append(s.old, old.server)
	s.servers[old.place], s.data[old.place] = nil, ""
	return err
}

// missing returns the lines of one log that another one lacks. A number alone
// says nothing: after a promotion it is given again.
func missing(before, after []witness.Line) []witness.Line {
	type key struct {
		seq, xid int64
		at       time.Time
	}
	known := make(map[key]bool, len(after))
	for _, l := range after {
		known[key{l.Seq, l.XID, l.At.UTC()}] = true
	}
	var lost []witness.Line
	for _, l := range before {
		if !known[key{l.Seq, l.XID, l.At.UTC()}] {
			lost = append(lost, l)
		}
	}
	return lost
}

func is(ctx context.Context, conn *pgx.Conn, sql string, args ...any) (yes bool, err error) {
	err = conn.QueryRow(ctx, sql, args...).Scan(&yes)
	return yes, err
}

// until asks again and again, until it is so.
func until(ctx context.Context, what string, ask func() (bool, error)) error {
	for {
		yes, err := ask()
		switch {
		case err != nil:
			return fmt.Errorf("wait until %s: %w", what, err)
		case yes:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
