package main

import (
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
)

func (a *app) cancelCommand() *cobra.Command {
	live := []string{fencepost.StatusScheduled, fencepost.StatusRetrying, fencepost.StatusReady, fencepost.StatusRunning}
	return a.operateCommand(verb{
		name:   "cancel",
		past:   "cancelled",
		acts:   live,
		passes: live,
		do:     (*fencepost.Client).Cancel,
		short:  "Call off jobs that wait or run",
		long: `Call off jobs that wait or run. Of a running one the worker is told: its
handler's context ends, a command of "fencepost work" gets TERM, and whatever it
still reports is refused. Jobs that have ended are left alone.`,
		example: `  fencepost cancel 4711
  fencepost cancel --queue mail --status scheduled
  fencepost cancel --kind report --dry-run`,
	})
}
