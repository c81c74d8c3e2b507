package stage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// Primary is the server that takes writes.
func (s *Stage) Primary() *pg.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[s.primary]
}

// Data is the data directory of the primary.
func (s *Stage) Data() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data[s.primary]
}

// Standby is the server that follows; nil if there is none now.
func (s *Stage) Standby() *pg.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[1-s.primary]
}

// Raise makes a standby, unless there is one that follows. The primary is
// restarted for that: a copy is made of it while it does not run.
func (s *Stage) Raise(ctx context.Context) error {
	s.mu.Lock()
	place := 1 - s.primary
	standby := s.servers[place]
	s.mu.Unlock()
	if standby != nil {
		if s.follows(ctx) {
			return nil
		}
		s.Logf("the standby does not follow: another one is made")
		if err := errors.Join(s.aim(place, false), standby.Stop()); err != nil {
			return err
		}
	}
	standby, err := s.Primary().Standby(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.servers[place] = standby
	s.mu.Unlock()
	if err := s.AwaitReady(ctx); err != nil {
		return err
	}
	err = on(ctx, standby, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SHOW data_directory").Scan(&s.data[place])
	})
	return errors.Join(err, s.aim(place, true))
}

// follows says whether the standby gets what the primary commits. After a
// restart of either that takes some seconds.
func (s *Stage) follows(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 12*time.Second)
	defer cancel()
	return until(ctx, "the standby follows", func() (yes bool, err error) {
		err = s.Admin().QueryRow(ctx, "SELECT count(*) > 0 FROM pg_stat_replication WHERE state = 'streaming'").Scan(&yes)
		return yes, err
	}) == nil
}

// on makes a connection of the superuser to a server for do.
func on(ctx context.Context, server *pg.Server, do func(*pgx.Conn) error) error {
	config, err := pgx.ParseConfig(server.URL(Database) + "&default_transaction_read_only=off")
	if err != nil {
		return err
	}
	config.RuntimeParams["application_name"] = AdminName
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	err = do(conn)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, conn.Close(closing))
}

// Bounce shuts the primary down ("fast" or "immediate"), does something while
// it is down, and starts it again, whatever came of that.
func (s *Stage) Bounce(ctx context.Context, mode string, between func() error) error {
	server := s.Primary()
	err := server.Shutdown(mode)
	if between != nil && err == nil {
		err = between()
	}
	return errors.Join(err, s.Restart(ctx))
}

// Restart starts the primary, which has been told to end, or has ended.
func (s *Stage) Restart(ctx context.Context) error {
	if err := s.Primary().Restart(ctx); err != nil {
		return err
	}
	return s.AwaitReady(ctx)
}

// AwaitReady returns when the primary accepts connections, and writes that into
// the history.
func (s *Stage) AwaitReady(ctx context.Context) error {
	for {
		err := on(ctx, s.Primary(), func(conn *pgx.Conn) error {
			var recovering bool
			if err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&recovering); err != nil {
				return err
			}
			if recovering {
				return errors.New("it is in recovery")
			}
			return nil
		})
		if err == nil {
			s.mu.Lock()
			place := s.primary
			s.mu.Unlock()
			s.note(history.Event{Op: history.Ready, Target: "server " + places[place]})
			// What the pool has is dead, and one of them would be handed out.
			s.Admin().Reset()
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the primary does not accept connections: %w: %w", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
