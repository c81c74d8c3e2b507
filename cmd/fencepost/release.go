package main

import (
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
)

func (a *app) releaseCommand() *cobra.Command {
	running := []string{fencepost.StatusRunning}
	return a.operateCommand(verb{
		name:   "release",
		past:   "released",
		acts:   running,
		passes: running,
		do:     (*fencepost.Client).Release,
		short:  "Take running jobs from their workers, for others to run",
		long: `Take running jobs from their workers before the lease is over: when a worker is
gone, or hangs. The fence moves, so that whatever the old worker still reports
is refused. If it lives, it is told: the handler's context ends, and a command
of "fencepost work" gets TERM. The attempt counts; after the last one there is
another. Jobs that do not run are left alone.`,
		example: `  fencepost release 4711
  fencepost release --queue mail`,
	})
}
