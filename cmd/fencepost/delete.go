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
one is ended first, as by "fencepost cancel". It cannot be undone.

What matches is deleted by its id, with all that there is under that id. If your
producers give jobs ids of their own and use those of ended jobs again,
"--status dead" deletes the live job of the same id too.`,
		example: `  fencepost delete 4711
  fencepost delete --status dead --kind invoice --dry-run`,
	})
}
