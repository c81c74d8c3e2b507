package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
)

func (a *app) queueCommand() *cobra.Command {
	return parent(
		&cobra.Command{Use: "queue", Short: "Show, pause and resume queues, set their bells"},
		a.queueListCommand(), a.queueShowCommand(), a.queuePauseCommand(), a.queueResumeCommand(), a.queueBellCommand(),
	)
}

func (a *app) queueListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List queues",
		Long: `List the queues that have live jobs, settings or workers: how many jobs are
ready (due), scheduled (due later, also after a failure) and running, how long
the oldest ready one has been due, how long done jobs are kept, and when an
INSERT rings the queue's bell.`,
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

func (a *app) queueBellCommand() *cobra.Command {
	modes := []string{string(fencepost.BellAuto), string(fencepost.BellAlways), string(fencepost.BellNever)}
	queues := a.complete(a.queueNames)
	return &cobra.Command{
		Use:   "bell MODE NAME",
		Short: "Set when new jobs wake the workers of a queue",
		Long: `Set when new jobs wake the workers of a queue, for all producers:

  auto    for each INSERT, unless a worker has promised to look into the queue
          every few milliseconds, as one does that hears more than about 100
          bells a second; this is what a queue has unless it is set
  always  for each INSERT; many producers at once hold each other up then
  never   not at all: jobs wait for the poll interval of a worker, unless the
          queue is so full that claims follow each other

The workers are woken once. The queue need not have jobs yet.`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 2:
				return usage("%s needs two arguments, MODE and NAME, and got %d", cmd.CommandPath(), len(args))
			case !slices.Contains(modes, args[0]):
				return usage("MODE is %q: must be one of %s", args[0], strings.Join(modes, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			mode, name := args[0], args[1]
			return a.withClient(cmd.Context(), func(client *fencepost.Client, _ *pgxpool.Pool) error {
				if err := client.SetBell(cmd.Context(), name, fencepost.Bell(mode)); err != nil {
					return err
				}
				return a.printBell(name, mode)
			})
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			switch len(args) {
			case 0:
				return modes, cobra.ShellCompDirectiveNoFileComp
			case 1:
				return queues(cmd, args, typed)
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
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
	Bell          string     `json:"bell"`
}

func (a *app) printQueueJSON(q fencepost.QueueInfo) error {
	return a.printJSON(queueJSON{
		q.Name, timeOrNull(q.PausedAt), q.Ready, q.Scheduled, q.Running, timeOrNull(q.OldestReady), q.Keep.Seconds(), string(q.Bell),
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
		rows = append(rows, table.Row{q.Name, timestamp(q.PausedAt), q.Ready, q.Scheduled, q.Running, age(q.OldestReady), q.Keep, q.Bell})
	}
	if a.json {
		return nil
	}
	return a.printTable(table.Row{"name", "paused since", "ready", "scheduled", "running", "oldest ready", "keep", "bell"}, rows)
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
		{"bell", q.Bell},
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

func (a *app) printBell(name, mode string) error {
	if a.json {
		return a.printJSON(struct {
			Name string `json:"name"`
			Bell string `json:"bell"`
		}{name, mode})
	}
	_, err := fmt.Fprintf(a.out, "%s: new jobs ring %s\n", printable(name), map[string]string{
		"auto": "unless a worker looks all the time", "always": "always", "never": "never: they wait for the poll interval",
	}[mode])
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
