package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fencepost-go/fencepost"
)

const enqueueHelp = `Enqueue a job and print its id.

Without arguments, jobs are read from standard input as JSON lines:

  {"kind": "invoice", "payload": {"no": 7}, "queue": "slow", "priority": -1,
   "run_at": "2030-01-01T09:00:00Z", "max_attempts": 3}

(each on one line). Only kind is needed; "delay": "90s" may stand in place of
run_at. Flags are the defaults of what a line leaves out. A line is at most
2 MiB long, a payload 1 MiB.

The whole input is one transaction: the jobs become visible to workers together
when its end is reached, and if any line is refused none is stored. Ids are
printed in the order of the lines, after the commit.`

func (a *app) enqueueCommand() *cobra.Command {
	var job fencepost.NewJob
	var at string
	cmd := &cobra.Command{
		Use:   "enqueue [KIND [PAYLOAD]]",
		Short: "Enqueue a job, or many from JSON lines on standard input",
		Long:  enqueueHelp,
		Example: `  fencepost enqueue invoice '{"no": 7}'
  fencepost enqueue invoice '{"no": 8}' --queue slow --delay 10m
  fencepost enqueue < jobs.jsonl`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at != "" {
				var err error
				if job.RunAt, err = time.Parse(time.RFC3339, at); err != nil {
					return usage("--at is %q; must be a time like 2030-01-01T09:00:00Z or with an offset like +01:00", at)
				}
			}
			// The library takes these for "not said".
			if cmd.Flags().Changed("queue") && job.Queue == "" {
				return usage("--queue is empty")
			}
			if cmd.Flags().Changed("max-attempts") && job.MaxAttempts == 0 {
				return usage("--max-attempts is 0; must be at least 1")
			}
			return a.withProducer(cmd.Context(), func(client *fencepost.Client, pool *pgxpool.Pool) error {
				var ids []int64
				var err error
				if len(args) == 0 {
					ids, err = a.enqueueLines(cmd.Context(), client, pool, job)
				} else {
					job.Kind = args[0]
					if len(args) == 2 {
						job.Payload = json.RawMessage(args[1])
					}
					ids, err = client.Enqueue(cmd.Context(), job)
				}
				if err != nil {
					return err
				}
				return a.printIDs(ids)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&job.Queue, "queue", fencepost.DefaultQueue, "the queue")
	flags.IntVar(&job.Priority, "priority", 0, "from -2 (first) to 2 (last)")
	flags.StringVar(&at, "at", "", "when it is due, as in 2030-01-01T09:00:00Z (default now)")
	flags.DurationVar(&job.Delay, "delay", 0, "how long from now it is due, as in 90s or 1h30m")
	flags.IntVar(&job.MaxAttempts, "max-attempts", 20, "after how many failed attempts it is dead")
	a.completeArg(cmd, a.kinds)
	a.completeFlag(cmd, "queue", a.queueNames)
	return cmd
}

// enqueueLines stores all jobs on standard input, or none. The transaction
// begins with the first full batch, so that it does not stay open while a
// short input is typed or computed.
func (a *app) enqueueLines(ctx context.Context, client *fencepost.Client, pool *pgxpool.Pool, defaults fencepost.NewJob) (ids []int64, err error) {
	const batch = 1000
	var tx pgx.Tx
	defer func() {
		if tx != nil && err != nil {
			// Not with ctx, which may be over. Closing the pool does the rest.
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
			defer cancel()
			_ = tx.Rollback(clean)
		}
	}()
	if f, ok := a.stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintln(a.stderr, "fencepost: reading jobs, one JSON object a line, until the end of the input (Ctrl-D)")
	}
	lines := newLineReader(a.stdin, defaults)
	for {
		jobs, err := unlessDone(ctx, func() ([]fencepost.NewJob, error) { return lines.next(batch) })
		if err != nil {
			return nil, err
		}
		if len(jobs) == 0 {
			break
		}
		if tx == nil {
			if tx, err = pool.Begin(ctx); err != nil {
				return nil, err
			}
		}
		stored, err := client.In(tx).Enqueue(ctx, jobs...)
		if err != nil {
			return nil, err
		}
		ids = append(ids, stored...)
	}
	if tx == nil {
		return nil, nil
	}
	return ids, tx.Commit(ctx)
}

// unlessDone does not wait for read, which cannot be interrupted, when ctx is
// done: the process is about to end.
func unlessDone[T any](ctx context.Context, read func() (T, error)) (value T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = read()
	}()
	select {
	case <-done:
		return value, err
	case <-ctx.Done():
		var zero T
		return zero, context.Cause(ctx)
	}
}

func (a *app) printIDs(ids []int64) error {
	for _, id := range ids {
		var err error
		if a.json {
			err = a.printJSON(struct {
				ID string `json:"id"`
			}{formatID(id)})
		} else {
			_, err = a.out.WriteString(formatID(id) + "\n")
		}
		if err != nil {
			return err
		}
	}
	return nil
}
