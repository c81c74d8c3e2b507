package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
)

const workHelp = `Work jobs by running a command for each, with sh -c.

The command gets the payload, as JSON, on standard input, and in its
environment

  FENCEPOST_JOB_ID  FENCEPOST_KIND   FENCEPOST_QUEUE
  FENCEPOST_ATTEMPT FENCEPOST_FENCE  FENCEPOST_KEY

where KEY is the same on every attempt and never that of another job: an
idempotency key. DATABASE_URL, PGPASSWORD and whatever else begins with
FENCEPOST_ are not handed on. Its output and errors go to ours.

What it exits with decides:

  0      done
  75     not now: try again after --snooze, without counting the attempt
  65     never: the job is dead at once
  other, or killed by a signal: the attempt failed; the last 4 KiB of its
         standard error are kept with the job

A command runs in a process group of its own, and nothing of that group is left
when the job ends: not if the command leaves children behind (they are killed,
after 3 s if they hold its output open), and not if this process is killed.
When it runs out of time or the lease is lost, the group gets TERM, and KILL 3 s
later.

The first TERM or INT stops taking jobs and waits 20 s for running ones; the
second ends them at once. Jobs that did not end are handed back; one in its last
attempt is dead, since it may have had its effect.`

func (a *app) workCommand() *cobra.Command {
	var (
		line, listenURL = "", ""
		queues, kinds   []string
		config          fencepost.Config
		snooze          time.Duration
	)
	cmd := &cobra.Command{
		Use:   "work --exec COMMAND",
		Short: "Run a command for each job",
		Long:  workHelp,
		Example: `  fencepost work --exec ./send-invoice --kind invoice
  fencepost work --exec 'curl --fail-with-body --data-binary @- https://example.com/hook' --queue hooks=50 --timeout 30s`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if line == "" {
				return usage("--exec is missing: say which command to run for each job")
			}
			if snooze <= 0 {
				return usage("--snooze is %v; must be more than 0", snooze)
			}
			if config.Queues, err = parseQueues(queues); err != nil {
				return err
			}
			if config.ListenConfig, err = a.listenConfig(listenURL); err != nil {
				return err
			}
			probe, err := newGroup() // rather than let every job fail
			if err != nil {
				return err
			}
			probe.end()
			config.Schema = a.schema
			config.Logger = slog.New(slog.NewTextHandler(a.stderr, nil))
			shell := &shell{
				line: line, env: withoutSecrets(a.env), stdout: a.stdout, stderr: a.stderr,
				snooze: snooze, grace: killAfter,
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error {
				return work(cmd.Context(), pool, config, kinds, shell.handle)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&line, "exec", "", "the command to run for each job")
	flags.StringVar(&listenURL, "listen-url", "", "a way to the database that carries notifications, if --database-url goes through a pooler that does not (default $FENCEPOST_LISTEN_URL)")
	flags.StringArrayVar(&queues, "queue", nil, "a queue, and how many of its jobs run at once, as in name=10; may be repeated (default default=10)")
	flags.StringArrayVar(&kinds, "kind", nil, "only jobs of this kind; may be repeated (default all)")
	flags.DurationVar(&config.JobTimeout, "timeout", 0, "how long a command may run (default no limit)")
	flags.DurationVar(&snooze, "snooze", 30*time.Second, "how long a command that exits with 75 puts its job off")
	flags.DurationVar(&config.Lease, "lease", 30*time.Second, "how soon another worker takes the jobs of one that vanished; at least 2s")
	flags.DurationVar(&config.PollInterval, "poll", 30*time.Second, "how often to look for jobs that were not announced; at least 1s")
	a.completeFlag(cmd, "queue", a.queueNames)
	a.completeFlag(cmd, "kind", a.kinds)
	return cmd
}

// parseQueues reads the values of --queue. A name may hold a =: the last one
// counts.
func parseQueues(flags []string) (map[string]fencepost.Queue, error) {
	queues := make(map[string]fencepost.Queue)
	for _, flag := range flags {
		name, slots := flag, 0 // 0 is the default of the client
		if i := strings.LastIndexByte(flag, '='); i >= 0 {
			n, err := strconv.Atoi(flag[i+1:])
			if err != nil || n < 1 {
				return nil, usage("--queue is %q; must be name=slots, with at least 1 slot", flag)
			}
			name, slots = flag[:i], n
		}
		if _, twice := queues[name]; twice {
			return nil, usage("--queue names %q twice", name)
		}
		queues[name] = fencepost.Queue{Slots: slots}
	}
	return queues, nil
}

type handlerFunc = func(context.Context, *fencepost.Job[json.RawMessage]) error

// work runs a client until ctx ends. The signal that has ended ctx may come a
// second time, which cuts the stop short.
func work(ctx context.Context, pool *pgxpool.Pool, config fencepost.Config, kinds []string, run handlerFunc) error {
	client, err := fencepost.New(pool, config)
	if err != nil {
		return usage("%w", err)
	}
	if err := handle(client, kinds, run); err != nil {
		return err
	}

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ended, minded := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(minded)
		for n := 1; ; n++ {
			select {
			case <-signals:
				if n == 2 {
					client.StopNow()
				}
			case <-ended:
				return
			}
		}
	}()
	defer func() {
		signal.Stop(signals)
		close(ended)
		<-minded
	}()
	return client.Run(ctx)
}

// handle registers the one handler for the given kinds, or for all. What the
// client panics about is a slip of the user's here.
func handle(client *fencepost.Client, kinds []string, run handlerFunc) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = usage("--kind: %v", strings.TrimPrefix(fmt.Sprint(reason), "fencepost: "))
		}
	}()
	if len(kinds) == 0 {
		fencepost.HandleAny(client, run)
	}
	for _, kind := range kinds {
		fencepost.HandleKind(client, kind, run)
	}
	return nil
}
