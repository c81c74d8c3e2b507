package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// hearLimit is when a notification is taken for lost: longer than a busy server
// takes now and then.
const hearLimit = 5 * time.Second

// roundTrip measures a statement that does nothing.
func (s *stage) roundTrip(ctx context.Context, limit time.Duration) error {
	return s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		took, _, err := oneByOne(ctx, limit, mostRows, func(int) error {
			_, err := conn.Exec(ctx, "SELECT 1")
			return err
		})
		s.seen.RoundTrip = timesOf(took)
		return err
	})
}

const sqlCommit = `INSERT INTO {{schema}}.commits (n) VALUES ($1)`

// commit measures the smallest durable transaction there is, one after the
// other.
func (s *stage) commit(ctx context.Context, limit time.Duration) error {
	sql := s.sql(sqlCommit)
	return s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		waits, err := s.watched(ctx, func() error {
			took, all, err := oneByOne(ctx, limit, mostRows, func(n int) error {
				_, err := conn.Exec(ctx, sql, n)
				return err
			})
			s.seen.Commits = rateOf(len(took), all)
			s.seen.Commit = timesOf(took)
			return err
		})
		s.seen.CommitWaits = waits
		return err
	})
}

// ear opens a connection that listens on a channel which nobody else has.
func (s *stage) ear(ctx context.Context, channel string) (*pgx.Conn, error) {
	config := s.Config.ConnConfig
	if s.Listen != nil {
		config = s.Listen
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to listen: %w", err)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize(), pgx.QueryExecModeExec); err != nil {
		hangUp(conn)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

// notify measures a NOTIFY and its way back, one after the other. Behind a
// pooler in transaction mode nothing is heard, and that is no error.
func (s *stage) notify(ctx context.Context, limit time.Duration) error {
	channel := s.schema + "_notify"
	ear, err := s.ear(ctx, channel)
	if err != nil {
		return err
	}
	defer hangUp(ear)
	return s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		took, _, err := oneByOne(ctx, limit, mostRows, func(n int) error {
			if _, err := conn.Exec(ctx, "SELECT pg_notify($1, $2)", channel, strconv.Itoa(n)); err != nil {
				return err
			}
			hear, cancel := context.WithTimeout(ctx, hearLimit)
			defer cancel()
			_, err := ear.WaitForNotification(hear)
			if err != nil && hear.Err() != nil {
				return errDeaf
			}
			return err
		})
		if errors.Is(err, errDeaf) {
			return nil // no notification was measured, and the verdict says so
		}
		s.seen.Notify = timesOf(took)
		return err
	})
}

var errDeaf = errors.New("no notification arrives")

// The first is a producer's: the row, and the bell for it, in one commit.
const (
	sqlFloorInsert = `
WITH i AS (INSERT INTO {{schema}}.floor (n) VALUES ($1) RETURNING n)
SELECT pg_notify($2::text, i.n::text) FROM i`
	// As a claim does: durable, also where the server is not by default.
	sqlFloorDurable = `
SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
                                             THEN 'on' ELSE current_setting('synchronous_commit') END, true)`
	sqlFloorClaim = `UPDATE {{schema}}.floor SET claimed_at = clock_timestamp() WHERE n = $1 AND claimed_at IS NULL`
)

// floor measures what wake measures with the least SQL that can do it: hear
// the notification of a commit, and claim one row in another.
func (s *stage) floor(ctx context.Context, limit time.Duration) error {
	if s.seen.Notify.N == 0 {
		return nil // it would not be heard
	}
	channel := s.schema + "_floor"
	ear, err := s.ear(ctx, channel)
	if err != nil {
		return err
	}
	defer hangUp(ear)
	insert, claim := s.sql(sqlFloorInsert), s.sql(sqlFloorClaim)
	laps := s.laps(limit)
	return s.pool.AcquireFunc(ctx, func(hand *pgxpool.Conn) error {
		hear, stop := context.WithCancel(ctx)
		failed, ended := make(chan error, 1), make(chan struct{})
		defer func() { // the connection is not ours any more afterwards
			stop()
			<-ended
		}()
		go func() {
			defer close(ended)
			failed <- claimWhatIsHeard(hear, ear, hand.Conn(), claim, laps.reached)
		}()
		err := laps.run(ctx, func(n int) error {
			_, err := s.pool.Exec(ctx, insert, n, channel)
			return err
		})
		if err == nil {
			err = laps.wait(ctx, failed)
		}
		if err == nil {
			s.seen.Floor = laps.times()
		}
		return err
	})
}

// claimWhatIsHeard claims each row that a notification names, until ctx ends.
func claimWhatIsHeard(ctx context.Context, ear, hand *pgx.Conn, claim string, claimed func(n int)) error {
	for {
		bell, err := ear.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		n, err := strconv.Atoi(bell.Payload)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		batch.Queue(sqlFloorDurable)
		batch.Queue(claim, n)
		if err := hand.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("claim by hand: %w", err)
		}
		claimed(n)
	}
}
