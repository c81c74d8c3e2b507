// Command bench measures Fencepost beside other queues and beside hand-written
// SQL, on a server of its own. See docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost/lab/bench/internal/play"
	"github.com/fencepost-go/fencepost/lab/bench/internal/report"
	"github.com/fencepost-go/fencepost/lab/bench/internal/suite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends us at once
	if err := root().ExecuteContext(ctx); err != nil {
		if !errors.Is(err, play.ErrMissed) { // the lines have said so
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(1)
	}
}

func root() *cobra.Command {
	var how play.How
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure Fencepost beside other queues and beside hand-written SQL",
		Long: "Without --suite: every suite. Each target is one line of JSON on standard output, in words on\n" +
			"standard error. It ends with 1 if a target was missed.\n\nSuites:\n" + suites(),
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			how.Log = cmd.ErrOrStderr()
			how.Lines = cmd.OutOrStdout()
			return play.Play(cmd.Context(), how)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&how.Suites, "suite", nil, "only these, such as drain,wake")
	f.StringSliceVar(&how.Peers, "peers", nil, "only these of fencepost,river,graphile,pgboss,gue,floor; default: those that the targets name")
	f.IntVar(&how.Rounds, "rounds", 0, "rounds of each comparison (default 3, 5 for wake; 1 with --quick)")
	f.BoolVar(&how.JSON, "json", false, "also every figure of every round on standard output, a line each")
	f.BoolVar(&how.Quick, "quick", false, "one round of the quick suites, a tenth of the size: a look, no measurement")
	f.BoolVar(&how.Full, "full", false, "every peer, at its defaults and at its best")
	f.BoolVar(&how.Resume, "resume", false, "leave out the suites that a run of the same commit and the same flags has ended")
	f.StringVar(&how.Out, "out", "bench-out", "folder for the results")
	f.IntVar(&how.Major, "major", 18, "major version of PostgreSQL")
	cmd.AddCommand(reporter())
	return cmd
}

func reporter() *cobra.Command {
	var in, out string
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Make the page of the last figures and its charts from the results of a run",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return report.Write(in, out) },
	}
	cmd.Flags().StringVar(&in, "in", "bench-out", "folder of the results")
	cmd.Flags().StringVar(&out, "out", "../docs/benchmarks", "folder for the page, last.md, and the charts")
	return cmd
}

func suites() string {
	var b strings.Builder
	for _, s := range suite.All {
		mark := ""
		if s.Quick {
			mark = " (quick)"
		}
		fmt.Fprintf(&b, "  %-12s %s%s; beside %s\n", s.Name, s.About, mark, strings.Join(slices.Concat(s.Peers, []string{"itself"}), ", "))
	}
	return b.String()
}
