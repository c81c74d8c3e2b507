package main

import (
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
)

func (a *app) deleteCommand() *cobra.Command {
	return a.operateCommand(verb{
		name:   "delete",
		past:   "deleted",
		acts:   statuses,
		passes: []string{""},
		do:     (*fencepost.Client).Delete,
		short:  "Delete jobs, ended ones and others, without a trace",
		long: `Delete jobs, whatever their status, with their payloads and errors. A running
one is ended first, as by "fencepost cancel". It cannot be undone.`,
		example: `  fencepost delete 4711
  fencepost delete --status dead --kind invoice --dry-run`,
	})
}
