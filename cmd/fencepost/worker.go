package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
)

func (a *app) workerCommand() *cobra.Command {
	return parent(&cobra.Command{Use: "worker", Short: "Show the processes that work"}, a.workerListCommand())
}

func (a *app) workerListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the processes that work, and whether they live",
		Long: `List the processes that work, and whether they live:

  live        its connection holds the lock that stands for the process
  silent      nobody holds it: the process is dead, or cut off, and its jobs are
              taken over soon
  lease only  it has no lock, behind a pooler for example: only its leases tell

RUNNING is how many jobs are leased to it. Programs that know only version 1 of
the schema are listed while they have some, without a time of start.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(client *fencepost.Client, _ *pgxpool.Pool) error {
				workers, err := client.Workers(cmd.Context())
				if err != nil {
					return err
				}
				return a.printWorkers(workers)
			})
		},
	}
}

type workerJSON struct {
	ID        string         `json:"id"`
	State     string         `json:"state"`
	Version   string         `json:"version"`
	Queues    map[string]int `json:"queues"` // each with its slots
	Kinds     []string       `json:"kinds"`  // null: all
	Running   int64          `json:"running"`
	StartedAt *time.Time     `json:"started_at"`
}

func (a *app) printWorkers(workers []fencepost.WorkerInfo) error {
	var rows []table.Row
	for _, w := range workers {
		if !a.json {
			rows = append(rows, table.Row{w.ID, workerState(w), orDash(w.Version), orDash(slots(w.Queues)), w.Running, timestamp(w.StartedAt)})
			continue
		}
		if err := a.printJSON(workerJSON{w.ID, strings.ReplaceAll(workerState(w), " ", "_"), w.Version, w.Queues, w.Kinds, w.Running, timeOrNull(w.StartedAt)}); err != nil {
			return err
		}
	}
	if a.json {
		return nil
	}
	return a.printTable(table.Row{"id", "state", "version", "queues", "running", "started at"}, rows)
}

func workerState(w fencepost.WorkerInfo) string {
	if w.State == fencepost.WorkerUnknown {
		return "lease only"
	}
	return w.State
}

// slots lists queues as the flag of work takes them.
func slots(queues map[string]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		list = append(list, fmt.Sprintf("%s=%d", name, queues[name]))
	}
	return strings.Join(list, " ")
}
