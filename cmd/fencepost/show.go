package main

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
)

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show everything about a job",
		Args:  oneArg("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID(args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(client *fencepost.Client, _ *pgxpool.Pool) error {
				job, err := client.Get(cmd.Context(), id)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(toJSON(job))
				}
				return a.printJob(job)
			})
		},
	}
}

func (a *app) printJob(j fencepost.Info) error {
	rows := []table.Row{
		{"id", j.ID},
		{"queue", j.Queue},
		{"kind", j.Kind},
		{"status", j.Status},
		{"priority", j.Priority},
		{"attempts", attempts(j)},
		{"snoozes", j.Snoozes},
		{"run at", timestamp(j.RunAt)},
		{"created at", timestamp(j.CreatedAt)},
		{"finished at", timestamp(j.FinishedAt)},
		{"lease until", timestamp(j.LeaseUntil)},
		{"fence", j.Fence},
		{"worker", orDash(j.WorkerID)},
		{"payload", string(j.Payload)},
		{"progress", orDash(string(j.Progress))},
		{"last error", orDash(j.LastError)},
	}
	return a.printTable(nil, rows)
}

func attempts(j fencepost.Info) string { return fmt.Sprintf("%d/%d", j.Attempts, j.MaxAttempts) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
