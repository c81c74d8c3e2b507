package demo

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost"
)

// pickup measures, n times, how long after the return of a commit the handler
// begins, with a worker that is idle. Both ends are read from the clock of
// this machine, in two processes; a handler that began before the commit had
// returned counts as 0.
func pickup(ctx context.Context, c *crew, w *worker, client *fencepost.Client, n int) ([]time.Duration, error) {
	var took []time.Duration
	for i := range n {
		ids, err := client.Enqueue(ctx, fencepost.NewJob{Queue: queueName, Payload: probe{}})
		committed := time.Now().UnixNano()
		if err != nil {
			return nil, err
		}
		var began int64
		err = c.await(ctx, "a probe to begin", func() bool {
			if len(w.started) <= i {
				return false
			}
			began = w.started[i]
			return true
		})
		if err != nil {
			return nil, err
		}
		took = append(took, time.Duration(max(0, began-committed)))
		// Idle again once the outcome is stored.
		err = until(ctx, "a probe to end", func() (bool, error) {
			info, err := client.Get(ctx, ids[0])
			return info.Status == fencepost.StatusDone, err
		})
		if err != nil {
			return nil, err
		}
	}
	return took, nil
}

// percentile returns the smallest value that at least p of all are not above.
func percentile(values []time.Duration, p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*100) / 100
}

// idleCost is what an idle worker costs a minute.
type idleCost struct{ statements, walBytes float64 }

// sqlWAL is how much WAL the whole server has written so far.
const sqlWAL = `SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')::bigint`

// idleWindow is a little longer than two poll intervals, which vary by a
// tenth, so that at least two looks at the tables are in it.
func idleWindow(poll time.Duration) time.Duration { return 2*poll + poll/5 }

// idle measures a worker that has nothing to do. It counts its own statements;
// the WAL is that of the whole server, so on one that others use the figure is
// too high.
func idle(ctx context.Context, s *stage, c *crew, w *worker, poll time.Duration) (idleCost, error) {
	look := func() (statements, wal int64, err error) {
		if statements, err = c.statements(ctx, w); err != nil {
			return 0, 0, err
		}
		return statements, wal, s.pool.QueryRow(ctx, sqlWAL).Scan(&wal)
	}
	begin := time.Now()
	statements, wal, err := look()
	if err != nil {
		return idleCost{}, err
	}
	select {
	case <-time.After(idleWindow(poll)):
	case <-ctx.Done():
		return idleCost{}, context.Cause(ctx)
	}
	statements2, wal2, err := look()
	minutes := time.Since(begin).Minutes()
	return idleCost{
		statements: math.Round(float64(statements2-statements)/minutes*10) / 10,
		walBytes:   math.Round(float64(wal2-wal) / minutes),
	}, err
}
