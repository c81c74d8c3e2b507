package crew

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// worker is a process that works jobs, as a user's would: with a client, a pool
// and handlers.
type worker struct {
	member
	pool   *pgxpool.Pool
	client *fencepost.Client
	exit   func(code int)
}

func work(ctx context.Context, m member, exit func(code int)) error {
	pool, err := connect(m)
	if err != nil {
		return err
	}
	watch(m.Writer)
	w := &worker{member: m, pool: pool, exit: exit}
	if err := w.run(ctx); errors.Is(err, fencepost.ErrStuck) {
		return err // a handler may have a connection in hand, which Close would wait for
	} else if err != nil {
		pool.Close()
		return err
	}
	pool.Close()
	return nil
}

func (w *worker) run(ctx context.Context) error {
	config := fencepost.Config{
		Queues:       make(map[string]fencepost.Queue),
		Lease:        w.Lease,
		PollInterval: w.Poll,
		SoftStop:     w.SoftStop,
		HardStop:     w.HardStop,
		RetryDelay:   script.RetryDelay,
		Observer: fencepost.Observer{
			Refused:   func(job, fence int64) { w.Write(about(history.Refused, job, fence)) },
			Cancelled: func(job, fence int64) { w.Write(about(history.Cancelled, job, fence)) },
		},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	for queue, slots := range w.Slots {
		config.Queues[queue] = fencepost.Queue{Slots: slots}
	}
	var err error
	if w.ListenDSN != "" {
		if config.ListenConfig, err = pgx.ParseConfig(w.ListenDSN); err != nil {
			return fmt.Errorf("read the DSN for bells: %w", err)
		}
	}
	if w.client, err = fencepost.New(w.pool, config); err != nil {
		return err
	}
	for kind, handle := range kinds {
		fencepost.HandleKind(w.client, kind, w.frame(handle))
	}
	if !reachable(ctx, w.pool) {
		return nil
	}
	return w.client.Run(ctx)
}

// about is an event about one claim.
func about(op history.Op, job, fence int64) history.Event {
	return history.Event{Op: op, Ref: history.Ref{Job: job, Fence: fence}}
}
