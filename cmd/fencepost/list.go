package main

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/payload"
)

// statuses are all that a job can have.
var statuses = []string{
	fencepost.StatusReady, fencepost.StatusScheduled, fencepost.StatusRetrying, fencepost.StatusRunning,
	fencepost.StatusDone, fencepost.StatusDead, fencepost.StatusCancelled,
}

func (a *app) listCommand() *cobra.Command {
	var filter fencepost.Filter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd, "queue", "kind", "status"); err != nil {
				return err
			}
			if err := checkStatus(filter.Status); err != nil {
				return err
			}
			if filter.Limit < 1 {
				return usage("--limit is %d; must be at least 1", filter.Limit)
			}
			return a.withClient(cmd.Context(), func(client *fencepost.Client, _ *pgxpool.Pool) error {
				jobs, err := client.List(cmd.Context(), filter)
				if err != nil {
					return err
				}
				return a.printJobs(jobs)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.Queue, "queue", "", "only jobs of this queue")
	flags.StringVar(&filter.Kind, "kind", "", "only jobs of this kind")
	flags.StringVar(&filter.Status, "status", "", "only jobs with this status: "+strings.Join(statuses, ", "))
	flags.IntVar(&filter.Limit, "limit", 100, "at most this many")
	a.completeFilter(cmd, statuses)
	return cmd
}

// refuseEmpty refuses flags that were given without a value, such as one from a
// variable of a shell that is not set: they would be taken for "not said".
func refuseEmpty(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
			return usage("--%s is empty", name)
		}
	}
	return nil
}

func checkStatus(status string) error {
	if status != "" && !slices.Contains(statuses, status) {
		return usage("--status is %q; must be one of %s", status, strings.Join(statuses, ", "))
	}
	return nil
}

func (a *app) printJobs(jobs []fencepost.Info) error {
	var rows []table.Row
	for _, j := range jobs {
		if a.json {
			if err := a.printJSON(toJSON(j)); err != nil {
				return err
			}
			continue
		}
		const width = 60 // of texts without a bound
		rows = append(rows, table.Row{
			j.ID, j.Queue, j.Kind, j.Status, attempts(j), timestamp(j.RunAt),
			payload.CleanText(string(j.Payload), width), payload.CleanText(j.LastError, width),
		})
	}
	if a.json {
		return nil
	}
	return a.printTable(table.Row{"id", "queue", "kind", "status", "attempts", "run at", "payload", "last error"}, rows)
}
