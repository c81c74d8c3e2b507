package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// holding is how a story tells what a worker has in hand: a statement that
// returns job and fence of each of its claims.
type holding func(w *worker) (query string, args []any)

// sqlHeld finds claims by the process id within worker_id.
const sqlHeld = `SELECT id, fence FROM {{schema}}.jobs
WHERE status = 'running' AND worker_id LIKE '%:' || $1::text || ':%'`

func held(w *worker) (string, []any) { return sqlHeld, []any{fmt.Sprint(w.os.Pid)} }

// grip is one claim in hand.
type grip struct{ Job, Fence int64 }

func (s *stage) grips(ctx context.Context, w *worker, holds holding) ([]grip, error) {
	query, args := holds(w)
	rows, err := s.pool.Query(ctx, s.sql(query), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[grip])
}

// busy waits until the worker has jobs in hand.
func (s *stage) busy(ctx context.Context, w *worker, holds holding) error {
	return until(ctx, "worker "+w.name+" to have jobs in hand", func() (bool, error) {
		grips, err := s.grips(ctx, w, holds)
		return len(grips) > 0, err
	})
}

// sqlSessions counts sessions of a worker: all, or those in a statement or
// transaction.
const sqlSessions = `SELECT count(*) FROM pg_catalog.pg_stat_activity
WHERE application_name = $1::text AND datname = current_database() AND ($2::bool OR state <> 'idle')`

// settled waits until nothing that the worker had sent is still at work in the
// server, and returns what it has in hand then. Two equal looks: a session
// seems idle, too, as long as it has not read what was sent to it.
func (s *stage) settled(ctx context.Context, w *worker, gone bool, holds holding) ([]grip, error) {
	var last []grip
	looks := 0
	err := until(ctx, "the sessions of worker "+w.name+" to settle", func() (bool, error) {
		var sessions int
		if err := s.pool.QueryRow(ctx, sqlSessions, sessionName(s.schema, w.name), gone).Scan(&sessions); err != nil {
			return false, err
		}
		grips, err := s.grips(ctx, w, holds)
		if sessions > 0 || !sameGrips(grips, last) {
			looks = 0
		}
		looks++
		last = grips
		return sessions == 0 && looks >= 2, err
	})
	return last, err
}

func sameGrips(a, b []grip) bool {
	set := make(map[grip]bool, len(a))
	for _, g := range a {
		set[g] = true
	}
	for _, g := range b {
		if !set[g] {
			return false
		}
	}
	return len(a) == len(b)
}

const sqlVictim = `INSERT INTO {{schema}}.victims (job_id, fence, fate) SELECT v.id, v.fence, $3::text
FROM unnest($1::bigint[], $2::bigint[]) AS v (id, fence)`

// mourn remembers the claims that a worker held when it met its fate.
func (s *stage) mourn(ctx context.Context, grips []grip, fate string) error {
	jobs, fences := make([]int64, len(grips)), make([]int64, len(grips))
	for i, g := range grips {
		jobs[i], fences[i] = g.Job, g.Fence
	}
	_, err := s.pool.Exec(ctx, s.sql(sqlVictim), jobs, fences, fate)
	return err
}

// kill ends the worker with SIGKILL while it has jobs in hand, and returns how
// many they were and when it was, by the database's clock. If it had just put
// the last one down, that is 0.
func (s *stage) kill(ctx context.Context, c *crew, w *worker, holds holding) (victims int, at time.Time, err error) {
	if err := s.busy(ctx, w, holds); err != nil {
		return 0, at, err
	}
	if err := s.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at); err != nil {
		return 0, at, err
	}
	if err := c.kill(w); err != nil {
		return 0, at, err
	}
	grips, err := s.settled(ctx, w, true, holds)
	if err != nil {
		return 0, at, err
	}
	return len(grips), at, s.mourn(ctx, grips, "killed")
}

// pause freezes the worker with jobs in hand, and returns how many they are.
func (s *stage) pause(ctx context.Context, w *worker, holds holding) (victims int, err error) {
	for {
		if err := s.busy(ctx, w, holds); err != nil {
			return 0, err
		}
		if err := freeze(w.os); err != nil {
			return 0, fmt.Errorf("freeze worker %s: %w", w.name, err)
		}
		grips, err := s.settled(ctx, w, false, holds)
		if err != nil {
			return 0, err
		}
		if len(grips) > 0 {
			return len(grips), s.mourn(ctx, grips, "paused")
		}
		if err := resume(w.os); err != nil {
			return 0, err
		}
	}
}

func resume(p *os.Process) error {
	if err := thaw(p); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("wake process %d: %w", p.Pid, err)
	}
	return nil
}

// robbed waits until a frozen worker's leases are over and its jobs are taken
// from it.
func (s *stage) robbed(ctx context.Context, w *worker, holds holding) error {
	return until(ctx, "the leases of worker "+w.name+" to end", func() (bool, error) {
		grips, err := s.grips(ctx, w, holds)
		return len(grips) == 0, err
	})
}
