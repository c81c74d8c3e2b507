package bench

import (
	"context"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost"
)

// The queues of the bench, one for each of what must not be in another's way.
const (
	queueWake    = "wake"
	queueEnqueue = "enqueue" // nobody works it
	queueDrain   = "drain"
)

// load is the payload of each job, about 200 bytes.
type load struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

func (load) Kind() string { return "bench" }

func job(queue string, n int) fencepost.NewJob {
	return fencepost.NewJob{Queue: queue, Payload: load{N: n, Text: padding}}
}

var padding = strings.Repeat("x", 170)

func (s *stage) one(ctx context.Context, limit time.Duration) (err error) {
	s.seen.One, _, err = s.enqueue(ctx, limit, 1)
	return err
}

func (s *stage) sixteen(ctx context.Context, limit time.Duration) (err error) {
	s.seen.Sixteen, s.seen.SixteenWaits, err = s.enqueue(ctx, limit, clients)
	return err
}

// enqueue measures clients that each enqueue one job, and commit it, after the
// other: one at least, however late they begin.
func (s *stage) enqueue(ctx context.Context, limit time.Duration, clients int) (rate Rate, waits Waits, err error) {
	if err := s.connect(ctx, clients); err != nil {
		return Rate{}, Waits{}, err
	}
	waits, err = s.watched(ctx, func() error {
		var next, done atomic.Int64
		group, ctx := errgroup.WithContext(ctx)
		began := time.Now()
		for range clients {
			group.Go(func() error {
				for first := true; first || time.Since(began) < limit; first = false {
					n := int(next.Add(1))
					if n > mostRows {
						return nil
					}
					if _, err := s.client.Enqueue(ctx, job(queueEnqueue, n)); err != nil {
						return err
					}
					done.Add(1)
				}
				return nil
			})
		}
		err := group.Wait()
		rate = rateOf(int(done.Load()), time.Since(began))
		return err
	})
	return rate, waits, err
}

// connect makes the pool hold so many connections, so that none is made while
// something is measured.
func (s *stage) connect(ctx context.Context, n int) error {
	var all []*pgxpool.Conn
	defer func() {
		for _, conn := range all {
			conn.Release()
		}
	}()
	for range n {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		all = append(all, conn)
	}
	return nil
}

// bulkSize is how many jobs go into one COPY.
const bulkSize = 5000

// bulk measures EnqueueCopy, and leaves the jobs to be drained.
func (s *stage) bulk(ctx context.Context, limit time.Duration) error {
	n, began := 0, time.Now()
	for n == 0 || n < mostBulk && time.Since(began) < limit {
		m, err := s.client.EnqueueCopy(ctx, someJobs(n, bulkSize))
		if err != nil {
			return err
		}
		n += int(m)
	}
	s.seen.Bulk = rateOf(n, time.Since(began))
	return nil
}

func someJobs(from, n int) iter.Seq[fencepost.NewJob] {
	return func(yield func(fencepost.NewJob) bool) {
		for i := range n {
			if !yield(job(queueDrain, from+i)) {
				return
			}
		}
	}
}
