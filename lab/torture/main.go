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
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost/lab/torture/internal/fault"
	"github.com/fencepost-go/fencepost/lab/torture/internal/report"
	"github.com/fencepost-go/fencepost/lab/torture/internal/rival"
	"github.com/fencepost-go/fencepost/lab/torture/internal/run"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends us at once
	if err := root().ExecuteContext(ctx); err != nil {
		if !errors.Is(err, errNotOK) { // the report has said so
			fmt.Fprintln(os.Stderr, "torture:", err)
		}
		os.Exit(1)
	}
}

var errNotOK = errors.New("the run has failed")

// flags are those that all runs have in common.
type flags struct {
	out   string
	seed  uint64
	major int
	quiet bool
	wrong bool // a program with a wrong clock is needed
}

func root() *cobra.Command {
	var f flags
	var faults []string
	var minutes float64
	p := run.Standard(0)
	var guard string
	cmd := &cobra.Command{
		Use:   "torture",
		Short: "Break what a queue stands on, and prove that nothing was lost, doubled or overwritten",
		Long: "Without a command: one run with the faults that are named, or all that this machine can make,\n" +
			"each once, or again and again for some minutes. With --break: one run without a guard,\n" +
			"which the checker has to notice.",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if guard != "" {
				return f.control(cmd, guard)
			}
			if err := sane(p, minutes); err != nil {
				return err
			}
			for _, name := range faults {
				one, ok := fault.Named(name)
				if !ok {
					return fmt.Errorf("there is no fault %q: see go run ./torture list", name)
				}
				p.Faults = append(p.Faults, one)
				f.wrong = f.wrong || one.Needs.Wrong
			}
			f.wrong = f.wrong || len(faults) == 0
			return f.run(cmd, func(ctx context.Context, at run.Place) (report.Run, error) {
				p.Seed = f.seed
				p.Length = time.Duration(minutes * float64(time.Minute))
				if len(faults) == 0 {
					p.Faults = run.Possible(at)
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
	cmd.PersistentFlags().IntVar(&f.major, "major", 18, "major version of PostgreSQL")
	cmd.PersistentFlags().BoolVar(&f.quiet, "quiet", false, "say nothing before the report")
	cmd.Flags().StringSliceVar(&faults, "fault", nil, "only these faults; see the command list")
	cmd.Flags().Float64Var(&minutes, "minutes", 0, "how long (default: until each fault was once)")
	cmd.Flags().Float64Var(&p.Rate, "rate", 0, "jobs a second (default: half of what the machine can do)")
	cmd.Flags().IntVar(&p.Workers, "workers", p.Workers, "worker processes")
	cmd.Flags().DurationVar(&p.Lease, "lease", p.Lease, "of the workers: fencepost.Config.Lease")
	cmd.Flags().DurationVar(&p.Poll, "poll", p.Poll, "of the workers: fencepost.Config.PollInterval")
	cmd.Flags().StringVar(&guard, "break", "", "do without a guard; see the command list")
	// A control is a plan of its own.
	for _, other := range []string{"fault", "minutes", "rate", "workers", "lease", "poll"} {
		cmd.MarkFlagsMutuallyExclusive("break", other)
	}
	cmd.AddCommand(
		suite(&f, "short", "At least 12 faults and 4 controls, in less than 5 minutes", false, run.Short),
		suite(&f, "full", "All faults, all controls, and River beside, in about 25 minutes", true, run.Full),
		f.rivalCommand(),
		listCommand(),
	)
	return cmd
}

// sane says what is wrong with the numbers of a plan.
func sane(p run.Plan, minutes float64) error {
	switch {
	case minutes < 0:
		return fmt.Errorf("--minutes is %v; must not be below 0", minutes)
	case p.Rate < 0:
		return fmt.Errorf("--rate is %v; must not be below 0", p.Rate)
	case p.Workers < 1:
		return fmt.Errorf("--workers is %d; must be at least 1", p.Workers)
	case p.Lease < 2*time.Second:
		return fmt.Errorf("--lease is %v; must be at least 2s", p.Lease)
	case p.Poll < time.Second:
		return fmt.Errorf("--poll is %v; must be at least 1s", p.Poll)
	}
	return nil
}

// suite is a command that plays more than one run. wrong: one of its faults needs
// the program with a wrong clock.
func suite(f *flags, name, about string, wrong bool, play func(context.Context, uint64, run.Place) (report.Run, error)) *cobra.Command {
	return &cobra.Command{Use: name, Short: about, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		f.wrong = wrong
		return f.run(cmd, func(ctx context.Context, at run.Place) (report.Run, error) { return play(ctx, f.seed, at) })
	}}
}

// control makes one control. That the run fails is what it is for.
func (f *flags) control(cmd *cobra.Command, guard string) error {
	c, err := run.ControlOf(guard)
	if err != nil {
		return err
	}
	var control report.Control
	err = f.run(cmd, func(ctx context.Context, at run.Place) (result report.Run, err error) {
		control, result = c.Run(ctx, f.seed, at)
		result.Controls = []report.Control{control}
		return result, nil
	})
	if !control.OK() {
		return errors.Join(err, fmt.Errorf("the checker has not noticed that the guard %s was missing", guard))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\nThat was to be expected: the guard %s was missing, and the checker has noticed.\n", guard)
	return nil
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
	if played != nil && result.Began.IsZero() {
		return played // there was no run
	}
	result.Command = repeat(cmd, f.seed, result.Settings.Rate)
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
	if f.out == "" {
		f.out = "torture-out"
		if err := os.RemoveAll(f.out); err != nil {
			return "", err
		}
	}
	if dir, err = filepath.Abs(f.out); err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

func (f *flags) log(cmd *cobra.Command) io.Writer {
	if f.quiet {
		return io.Discard
	}
	return cmd.ErrOrStderr()
}

// repeat is the command that does the same again.
func repeat(cmd *cobra.Command, seed uint64, rate float64) string {
	words := []string{"cd lab && go run ./torture"}
	if cmd.HasParent() {
		words = append(words, cmd.Name())
	}
	for _, name := range []string{"fault", "minutes", "workers", "lease", "poll", "break", "major"} {
		if flag := cmd.Flag(name); flag != nil && flag.Changed {
			words = append(words, "--"+name+" "+strings.Trim(flag.Value.String(), "[]"))
		}
	}
	if flag := cmd.Flag("rate"); flag != nil {
		words = append(words, fmt.Sprintf("--rate %.0f", rate)) // measured, unless it was given
	}
	return strings.Join(append(words, fmt.Sprintf("--seed %d", seed)), " ")
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

func listCommand() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the faults and the guards", Args: cobra.NoArgs, Run: func(cmd *cobra.Command, _ []string) {
		out := cmd.OutOrStdout()
		fmt.Fprintln(out, "Faults (--fault):")
		for _, f := range fault.All {
			lack := ""
			if f.Needs.Mount && !stage.CanMount() {
				lack = " (needs root)"
			}
			fmt.Fprintf(out, "  %-20s %s%s\n", f.Name, f.About, lack)
		}
		fmt.Fprintln(out, "\nGuards (--break):")
		for _, c := range run.Controls {
			fmt.Fprintf(out, "  %-20s %s\n", c.Guard, c.About)
		}
	}}
}
