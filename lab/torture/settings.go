package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/torture/internal/fault"
	"github.com/fencepost-go/fencepost/lab/torture/internal/run"
)

// settings are those of a run that is no suite.
type settings struct {
	faults  []string
	minutes float64
	guard   string
	plan    run.Plan // with rate, workers, lease and poll interval
}

// check refuses what cannot be, all of it at once.
func (s settings) check(cmd *cobra.Command) error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	given := cmd.Flags().Changed

	if s.guard != "" {
		if _, err := run.ControlOf(s.guard); err != nil {
			refuse("--break: %w", err)
		}
		var ignored []string
		for _, name := range []string{"fault", "minutes", "rate", "workers", "lease", "poll"} {
			if given(name) {
				ignored = append(ignored, "--"+name)
			}
		}
		if len(ignored) > 0 {
			refuse("--break: a control has faults, load and settings of its own; leave out %s", strings.Join(ignored, ", "))
		}
		return errors.Join(errs...)
	}
	for _, name := range s.faults {
		if _, ok := fault.Named(name); !ok {
			refuse("--fault: there is no fault %q; see go run ./torture list", name)
		}
	}
	// So much is more than there is a use for, and can still be counted in.
	if most := 1e6; given("minutes") && !(s.minutes > 0 && s.minutes <= most) {
		refuse("--minutes %g: must be more than 0; leave it out for each fault once", s.minutes)
	}
	if given("rate") && (!(s.plan.Rate > 0) || math.IsInf(s.plan.Rate, 0)) {
		refuse("--rate %g: must be more than 0; leave it out for half of what the machine can do", s.plan.Rate)
	}
	if s.plan.Workers < 1 {
		refuse("--workers %d: must be at least 1", s.plan.Workers)
	}
	if err := config("--lease", s.plan.Lease, fencepost.Config{Lease: s.plan.Lease}); err != nil {
		errs = append(errs, err)
	}
	if err := config("--poll", s.plan.Poll, fencepost.Config{PollInterval: s.plan.Poll}); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// config says what Fencepost itself has against a setting, before the workers
// are told. For it 0 is the default, which here is another one.
func config(flag string, value time.Duration, c fencepost.Config) error {
	if value == 0 {
		return fmt.Errorf("%s 0s: must be more than 0; leave it out for the default", flag)
	}
	pool, err := pgxpool.New(context.Background(), "host=nowhere") // it is never used
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := fencepost.New(pool, c); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

// needsWrong says that a program with a wrong clock is needed.
func (s settings) needsWrong() bool {
	return len(s.faults) == 0 || slices.ContainsFunc(s.faults, func(name string) bool {
		f, _ := fault.Named(name)
		return f.Needs.Wrong
	})
}

// planFor is the plan of the run. What is not named is left out if it cannot be
// made here, and one line says so.
func (s settings) planFor(at run.Place, seed uint64) (run.Plan, error) {
	p := s.plan
	p.Seed = seed
	p.Length = time.Duration(s.minutes * float64(time.Minute))
	var errs []error
	for _, name := range s.faults {
		f, _ := fault.Named(name)
		if lack := run.Lacks(f, at); lack != "" {
			errs = append(errs, fmt.Errorf("--fault %s: %s", name, lack))
		}
		p.Faults = append(p.Faults, f)
	}
	if len(s.faults) == 0 {
		p.Faults = run.Possible(at)
		var missing []string
		for _, f := range fault.All {
			if lack := run.Lacks(f, at); lack != "" {
				missing = append(missing, fmt.Sprintf("%s (%s)", f.Name, lack))
			}
		}
		if len(missing) > 0 {
			fmt.Fprintln(at.Log, "left out, as they cannot be made here:", strings.Join(missing, ", "))
		}
	}
	return p, errors.Join(errs...)
}

// oldest is the oldest major version of PostgreSQL that Fencepost works with.
const oldest = 14

// check refuses what cannot be of the flags that all runs have in common.
func (f *flags) check() error {
	if f.major < oldest {
		return fmt.Errorf("--major %d: must be %d or newer", f.major, oldest)
	}
	return nil
}
