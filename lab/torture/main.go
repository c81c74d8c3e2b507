// Command torture breaks everything that a queue stands on while real processes
// work, and then proves by the record that nothing was lost, doubled or
// overwritten. See docs/reliability.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost/lab/torture/internal/fault"
	"github.com/fencepost-go/fencepost/lab/torture/internal/report"
	"github.com/fencepost-go/fencepost/lab/torture/internal/rival"
	"github.com/fencepost-go/fencepost/lab/torture/internal/run"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends us at once
	err := root().ExecuteContext(ctx)
	switch {
	case err == nil:
		return
	case ctx.Err() != nil: // whatever else that was the end of
		fmt.Fprintln(os.Stderr, "torture: interrupted")
		if left := (run.LeftError{}); errors.As(err, &left) {
			fmt.Fprintln(os.Stderr, "torture:", left)
		}
	case !errors.Is(err, errNotOK): // which the report has said
		fmt.Fprintln(os.Stderr, "torture:", err)
	}
	os.Exit(1)
}

var errNotOK = errors.New("the run has failed")

// flags are those that all runs have in common.
type flags struct {
	out   string
	seed  uint64
	major int
	quiet bool
	named bool // out was given, and is not the default
	wrong bool // a program with a wrong clock is needed
}

func root() *cobra.Command {
	var f flags
	s := settings{plan: run.Standard(0)}
	cmd := &cobra.Command{
		Use:   "torture",
		Short: "Break what a queue stands on, and prove that nothing was lost, doubled or overwritten",
		Long: "Without a command: one run with the faults that are named, or all that this machine can make,\n" +
			"each once, or again and again for some minutes. With --break: one run without a guard,\n" +
			"which the checker has to notice.",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.HasParent() {
				return f.check()
			}
			return errors.Join(f.check(), s.check(cmd)) // all that is wrong at once
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.guard != "" {
				return f.control(cmd, s.guard)
			}
			f.wrong = s.needsWrong()
			return f.run(cmd, func(ctx context.Context, at run.Place) (report.Run, error) {
				p, err := s.planFor(at, f.seed)
				if err != nil {
					return report.Run{}, err
				}
				for _, one := range p.Faults {
					if why := run.Lacks(one, at); why != "" {
						return report.Run{}, fmt.Errorf("fault %s cannot be made here: %s", one.Name, why)
					}
				}
				return run.One(ctx, p, at)
			})
		},
	}
	cmd.PersistentFlags().StringVar(&f.out, "out", "", "`folder` for the report and the record (default: torture-out, made anew)")
	cmd.PersistentFlags().Uint64Var(&f.seed, "seed", 0, "repeats the schedule of faults and load of the run that had this seed (default: a new one)")
	cmd.PersistentFlags().IntVar(&f.major, "major", 18, "major version of PostgreSQL, 14 or newer")
	cmd.PersistentFlags().BoolVar(&f.quiet, "quiet", false, "say nothing before the report")
	cmd.Flags().StringSliceVar(&s.faults, "fault", nil, "only these faults; see the command list")
	cmd.Flags().Float64Var(&s.minutes, "minutes", 0, "how long, more than 0 (default: until each fault was once)")
	cmd.Flags().Float64Var(&s.plan.Rate, "rate", 0, "jobs a second, more than 0 (default: half of what the machine can do)")
	cmd.Flags().IntVar(&s.plan.Workers, "workers", s.plan.Workers, "worker processes, at least 1; one alone has nobody to take over from it")
	cmd.Flags().DurationVar(&s.plan.Lease, "lease", s.plan.Lease, "of the workers: fencepost.Config.Lease, 2s to 24h")
	cmd.Flags().DurationVar(&s.plan.Poll, "poll", s.plan.Poll, "of the workers: fencepost.Config.PollInterval, 1s to 24h")
	cmd.Flags().StringVar(&s.guard, "break", "", "do without a guard; see the command list. Faults, load and settings are those of its control")
	cmd.AddCommand(
		suite(&f, "short", "At least 12 faults and 4 controls, in less than 5 minutes", false, run.Short),
		suite(&f, "full", "All faults, all controls, and River beside, in about half an hour", true, run.Full),
		f.rivalCommand(),
		listCommand(),
	)
	return cmd
}

// suite is a command that plays more than one run. wrong: one of its faults needs
// the program with a wrong clock.
func suite(f *flags, name, about string, wrong bool, play func(context.Context, uint64, run.Place) (report.Run, error)) *cobra.Command {
	return &cobra.Command{Use: name, Short: about, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		f.wrong = wrong
		return f.run(cmd, func(ctx context.Context, at run.Place) (report.Run, error) { return play(ctx, f.seed, at) })
	}}
}

// control makes one control. That it is without a guard must be noticed.
func (f *flags) control(cmd *cobra.Command, guard string) error {
	c, err := run.ControlOf(guard)
	if err != nil {
		return err
	}
	return f.run(cmd, func(ctx context.Context, at run.Place) (report.Run, error) {
		control, result := c.Run(ctx, f.seed, at)
		if result.Began.IsZero() {
			return result, errors.New(control.Error)
		}
		return result, nil
	})
}

// run prepares what every run needs, lets it happen, and reports.
func (f *flags) run(cmd *cobra.Command, play func(context.Context, run.Place) (report.Run, error)) (err error) {
	dir, err := f.prepare()
	if err != nil {
		return err
	}
	at := run.Place{Dir: dir, Major: f.major, Log: f.log(cmd)}
	if at.Crew, err = run.BuildCrew(cmd.Context(), dir); err != nil {
		return err
	}
	if f.wrong {
		if at.Wrong, err = run.BuildWrong(cmd.Context(), dir); err != nil {
			return err
		}
	}
	result, played := play(cmd.Context(), at)
	if err := cmd.Context().Err(); err != nil {
		return errors.Join(err, played) // nobody wants to know
	}
	if played != nil && result.Began.IsZero() {
		return played // there was no run
	}
	result.Command = f.again(cmd, result.Settings.Rate)
	if err := report.Write(result, dir); err != nil {
		return err
	}
	report.Print(cmd.OutOrStdout(), result)
	fmt.Fprintf(cmd.OutOrStdout(), "\nThe whole report: %s\n", filepath.Join(f.out, "report.html"))
	if played != nil {
		return fmt.Errorf("the run itself went wrong: %w", played)
	}
	if ok, _ := result.OK(); !ok {
		return errNotOK
	}
	return nil
}

// prepare makes the folder for what is left of a run, and chooses a seed.
func (f *flags) prepare() (dir string, err error) {
	if f.seed == 0 {
		f.seed = rand.Uint64N(1_000_000) + 1
	}
	if f.named = f.out != ""; !f.named {
		f.out = "torture-out"
	}
	if dir, err = filepath.Abs(f.out); err != nil {
		return "", err
	}
	return dir, occupy(dir, !f.named)
}

func (f *flags) log(cmd *cobra.Command) io.Writer {
	if f.quiet {
		return io.Discard
	}
	return cmd.ErrOrStderr()
}

func (f *flags) rivalCommand() *cobra.Command {
	return &cobra.Command{Use: "rival", Short: "River and Fencepost under the same faults, in about 5 minutes", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		dir, err := f.prepare()
		if err != nil {
			return err
		}
		rows, err := rival.Run(cmd.Context(), rival.Options{Dir: dir, Seed: f.seed, Log: f.log(cmd)})
		if err != nil {
			return err
		}
		rival.Print(cmd.OutOrStdout(), rows)
		return nil
	}}
}

// needs says what a fault needs that is not there everywhere.
func needs(n fault.Needs) string {
	switch {
	case n.Mount:
		return " (needs root)"
	case n.Pooler:
		return " (needs PgBouncer)"
	case n.Major > 0:
		return fmt.Sprintf(" (needs PostgreSQL %d)", n.Major)
	}
	return ""
}

func listCommand() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the faults and the guards", Args: cobra.NoArgs, Run: func(cmd *cobra.Command, _ []string) {
		out := cmd.OutOrStdout()
		fmt.Fprintln(out, "Faults (--fault):")
		for _, f := range fault.All {
			fmt.Fprintf(out, "  %-20s %s%s\n", f.Name, f.About, needs(f.Needs))
		}
		fmt.Fprintln(out, "\nGuards (--break):")
		for _, c := range run.Controls {
			fmt.Fprintf(out, "  %-20s %s\n", c.Guard, c.About)
		}
	}}
}
