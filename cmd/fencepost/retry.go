package main

import (
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
)

func (a *app) retryCommand() *cobra.Command {
	return a.operateCommand(verb{
		name:   "retry",
		past:   "retried",
		acts:   []string{fencepost.StatusDead, fencepost.StatusCancelled, fencepost.StatusDone},
		passes: []string{fencepost.StatusDead},
		do:     (*fencepost.Client).Retry,
		short:  "Run dead, cancelled or done jobs again",
		long: `Run jobs that have ended again: they are due at once, under their old ids, and
get one more attempt if they have none left. Jobs that wait or run are left
alone.

By a filter these are dead jobs, unless --status says cancelled or done.`,
		example: `  fencepost retry 4711 4712
  fencepost retry --kind invoice --dry-run
  fencepost retry --queue mail --status cancelled`,
	})
}
