package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
)

func (a *app) queueCommand() *cobra.Command {
	return parent(
		&cobra.Command{Use: "queue", Short: "Show, pause and resume queues"},
		a.queueListCommand(), a.queueShowCommand(), a.queuePauseCommand(), a.queueResumeCommand(),
	)
}

func (a *app) queueListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List queues",
		Long: `List the queues that have live jobs, settings or workers: how many jobs are
ready (due), scheduled (due later, also after a failure) and running, how long
the oldest ready one has been due, and how long done jobs are kept.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(client *fencepost.Client, _ *pgxpool.Pool) error {
				queues, err := client.Queues(cmd.Context())
				if err != nil {
					return err
				}
				return a.printQueues(queues)
			})
		},
	}
}

func (a *app) queueShowCommand() *cobra.Command {
	return a.forQueue(&cobra.Command{
		Use:   "show NAME",
		Short: "Show a queue",
		Long: `Show a queue. Any name may be used to enqueue; this fails if the queue has
neither live jobs, nor settings, nor workers.`,
	}, func(ctx context.Context, client *fencepost.Client, name string) error {
		queues, err := client.Queues(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(queues, func(q fencepost.QueueInfo) bool { return q.Name == name })
		if i < 0 {
			return fmt.Errorf("queue %q: %w: it has neither live jobs, nor settings, nor workers", name, errNoQueue)
		}
		return a.printQueue(queues[i])
	})
}

func (a *app) queuePauseCommand() *cobra.Command {
	return a.forQueue(&cobra.Command{
		Use:   "pause NAME",
		Short: "Let no worker take jobs from a queue",
		Long: `Let no worker take jobs from a queue, until it is resumed.

Jobs that run go on, and may still fail and be tried again after the pause.
Others may be enqueued and wait. The pause is stored: it holds for all
processes, also for those that start later. The queue need not have jobs yet.

Programs that know only version 1 of the schema know no pause, and go on.`,
	}, func(ctx context.Context, client *fencepost.Client, name string) error {
		if err := client.Pause(ctx, name); err != nil {
			return err
		}
		return a.printPause(name, true, "is paused: no worker takes jobs from it. Those that run go on.\nPrograms that know only version 1 of the schema know no pause.")
	})
}

func (a *app) queueResumeCommand() *cobra.Command {
	return a.forQueue(&cobra.Command{
		Use:   "resume NAME",
		Short: "End the pause of a queue",
		Long:  "End the pause of a queue, if there is one. Workers look into it at once.",
	}, func(ctx context.Context, client *fencepost.Client, name string) error {
		if err := client.Resume(ctx, name); err != nil {
			return err
		}
		return a.printPause(name, false, "is not paused")
	})
}

// forQueue completes a command whose argument is the name of a queue.
func (a *app) forQueue(cmd *cobra.Command, do func(context.Context, *fencepost.Client, string) error) *cobra.Command {
	cmd.Args = oneArg("NAME")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withClient(cmd.Context(), func(client *fencepost.Client, _ *pgxpool.Pool) error {
			return do(cmd.Context(), client, args[0])
		})
	}
	a.completeArg(cmd, a.queueNames)
	return cmd
}

// queueJSON is a queue as --json prints it.
type queueJSON struct {
	Name          string     `json:"name"`
	PausedAt      *time.Time `json:"paused_at"`
	Ready         int64      `json:"ready"`
	Scheduled     int64      `json:"scheduled"`
	Running       int64      `json:"running"`
	OldestReadyAt *time.Time `json:"oldest_ready_at"`
	KeepSeconds   float64    `json:"keep_seconds"`
}

func (a *app) printQueueJSON(q fencepost.QueueInfo) error {
	return a.printJSON(queueJSON{
		q.Name, timeOrNull(q.PausedAt), q.Ready, q.Scheduled, q.Running, timeOrNull(q.OldestReady), q.Keep.Seconds(),
	})
}

func (a *app) printQueues(queues []fencepost.QueueInfo) error {
	var rows []table.Row
	for _, q := range queues {
		if a.json {
			if err := a.printQueueJSON(q); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, table.Row{q.Name, timestamp(q.PausedAt), q.Ready, q.Scheduled, q.Running, age(q.OldestReady), q.Keep})
	}
	if a.json {
		return nil
	}
	return a.printTable(table.Row{"name", "paused since", "ready", "scheduled", "running", "oldest ready", "keep"}, rows)
}

func (a *app) printQueue(q fencepost.QueueInfo) error {
	if a.json {
		return a.printQueueJSON(q)
	}
	return a.printTable(nil, []table.Row{
		{"name", q.Name},
		{"paused since", timestamp(q.PausedAt)},
		{"ready", q.Ready},
		{"scheduled", q.Scheduled},
		{"running", q.Running},
		{"oldest ready", age(q.OldestReady)},
		{"keep", q.Keep},
	})
}

// printPause prints no numbers: the pause must not have to wait for a count of
// all jobs.
func (a *app) printPause(name string, paused bool, text string) error {
	if a.json {
		return a.printJSON(struct {
			Name   string `json:"name"`
			Paused bool   `json:"paused"`
		}{name, paused})
	}
	_, err := fmt.Fprintln(a.out, printable(name), text)
	return err
}

// age is for people, by this machine's clock, which may be a little behind the
// database's.
func age(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return max(0, time.Since(since)).Round(time.Second).String()
}
