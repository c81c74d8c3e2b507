package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost/cmd/fencepost/internal/demo"
)

const demoHelp = `Work 20000 jobs with 8 processes, kill one and freeze another, and count.

It starts a private PostgreSQL, or uses the server that --database-url or
DATABASE_URL names. There it makes a schema with a random name and drops it at
the end; --schema does not matter. Workers are processes of this program with a
lease of 3 seconds. One of them is killed with SIGKILL while it has jobs in
hand. Another is frozen with SIGSTOP until its leases are over and others have
taken its jobs; then it wakes up and its late outcomes are refused.

With --naive the same load goes through a table with a claim that chooses
without locking and a completion without a fence, as a control: the faults that
must not be there otherwise must show here.

It takes about a minute, and fails if a promise was broken. It needs SIGSTOP,
so it does not run on Windows.`

func (a *app) demoCommand() *cobra.Command {
	var naive bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show with real processes what survives a kill and a pause",
		Long:  demoHelp,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := a.demoPlan()
			if err != nil {
				return err
			}
			tell := narrator{out: a.stderr}
			plan.Tell, plan.Progress = tell.line, tell.progress
			defer tell.end()
			if naive {
				return a.demoNaive(cmd.Context(), plan)
			}
			return a.demo(cmd.Context(), plan)
		},
	}
	cmd.Flags().BoolVar(&naive, "naive", false, "use a claim without SKIP LOCKED and a completion without a fence")
	cmd.AddCommand(&cobra.Command{
		Use:    "worker",
		Short:  "Be one of the demo's workers",
		Hidden: true,
		Args:   noArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return demo.Work(cmd.Context(), a.stdin, a.stdout) },
	})
	return cmd
}

func (a *app) demoPlan() (demo.Plan, error) {
	plan := demo.Full()
	if a.databaseURL != "" {
		if _, err := a.config(); err != nil {
			return plan, err
		}
		plan.DatabaseURL = a.databaseURL
	}
	self, err := os.Executable()
	if err != nil {
		return plan, fmt.Errorf("find this program, to start workers: %w", err)
	}
	plan.Command = []string{self, "demo", "worker"}
	plan.Log = a.stderr
	return plan, nil
}

func (a *app) demo(ctx context.Context, plan demo.Plan) error {
	r, err := demo.Run(ctx, plan)
	if err != nil {
		return demoError(err)
	}
	if a.json {
		err = a.printJSON(r)
	} else {
		err = a.printTable(nil, []table.Row{
			{"enqueued", r.Enqueued, "jobs whose commit was acknowledged"},
			{"done", r.Done, ""},
			{"dead", r.Dead, ""},
			{"lost", r.Lost, "must be 0"},
			{"repeated_effects", r.RepeatedEffects, "runs of a job after its first"},
			{"repeated_killed", r.RepeatedKilled, "  because its worker was killed"},
			{"repeated_paused", r.RepeatedPaused, "  because its worker was frozen past its lease"},
			{"late_refused", r.LateRefused, "outcomes that came too late and changed nothing; must be more than 0"},
			{"live_overlaps", r.LiveOverlaps, "a job in two live workers at once; must be 0"},
			{"recovery_seconds", r.RecoverySeconds, fmt.Sprintf("from the kill until its last job ran again; lease %v", plan.Lease)},
			{"pickup_p50_ms", r.PickupP50, fmt.Sprintf("from commit to start, idle queue, %d single jobs", plan.Probes)},
			{"pickup_p99_ms", r.PickupP99, ""},
			{"idle_statements_per_minute", r.IdleStatements, fmt.Sprintf("of one worker, poll interval %v", plan.Poll)},
			{"idle_wal_bytes_per_minute", r.IdleWALBytes, "of the whole server meanwhile"},
			{"ok", r.OK, ""},
		})
	}
	return errors.Join(err, broken("a promise is broken", r.Broken()))
}

func (a *app) demoNaive(ctx context.Context, plan demo.Plan) error {
	r, err := demo.RunNaive(ctx, plan)
	if err != nil {
		return demoError(err)
	}
	if a.json {
		err = a.printJSON(r)
	} else {
		err = a.printTable(nil, []table.Row{
			{"enqueued", r.Enqueued, "jobs whose commit was acknowledged"},
			{"double_claims", r.DoubleClaims, "claims of a job under somebody's running lease"},
			{"late_overwrites", r.LateOverwrites, "completions by a worker that had lost the job"},
			{"ok", r.OK, "both faults were shown"},
		})
	}
	return errors.Join(err, broken("the control shows nothing", r.Broken()))
}

func broken(what string, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", what, strings.Join(lines, "\n"+what+": "))
}

// demoError lets the exit code tell a server out of reach from a demo that
// failed.
func demoError(err error) error {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return cannotConnect(err)
	}
	return err
}
