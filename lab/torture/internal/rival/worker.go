package rival

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// assignment is what a worker process is told, as JSON on its standard input.
type assignment struct {
	Queue string
	Name  string // of the process, its history, and all its connections
	Dir   string
	DSN   string
}

// Work is the life of a worker process: it reads its assignment from in, and
// works until ctx ends or in does, as with the death of who holds the other
// end. A read of in is left behind if ctx ends first.
func Work(ctx context.Context, in io.Reader) (err error) {
	var a assignment
	if err := json.NewDecoder(in).Decode(&a); err != nil {
		return fmt.Errorf("read the assignment: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()

	log, err := history.Create(a.Dir, a.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	config, err := pgx.ParseConfig(a.DSN)
	if err != nil {
		return err
	}
	config.RuntimeParams["application_name"] = a.Name
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig(config, conns))
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, q := range queues {
		if q.name() == a.Queue {
			return q.work(ctx, pool, a.Name, logged(log))
		}
	}
	return fmt.Errorf("no queue %q", a.Queue)
}

// poolConfig is of a pool whose connections are made like config.
func poolConfig(config *pgx.ConnConfig, size int32) *pgxpool.Config {
	c, err := pgxpool.ParseConfig("")
	if err != nil {
		panic(err) // there is nothing in it
	}
	c.ConnConfig, c.MaxConns = config.Copy(), size
	return c
}

// logged are handlers that note when they start and return.
func logged(log *history.Writer) handlers {
	return handlers{
		run: func(ctx context.Context, job int64, attempt int, o script.Order) error {
			event := history.Event{Op: history.Start, N: log.Next(), Ref: history.Ref{Job: job, Attempt: attempt, Token: o.Token}}
			log.Write(event)
			err := wait(ctx, time.Duration(o.Millis)*time.Millisecond)
			event.Op = history.End
			if err != nil {
				event.Error = err.Error()
			}
			log.Write(event)
			return err
		},
		refused: func(job int64) { log.Write(history.Event{Op: history.Refused, Ref: history.Ref{Job: job}}) },
	}
}

// wait is the work of a job: like a call to another service it takes its time,
// and can be given up until it is through. If it is through it has had its
// effect, and the handler says so even if its context has ended meanwhile.
func wait(ctx context.Context, d time.Duration) error {
	through := time.Now().Add(d)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		if time.Now().Before(through) {
			return context.Cause(ctx)
		}
	}
	return nil
}
