package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Plan says how large a story is and where it plays.
type Plan struct {
	// DatabaseURL names the server; its role must be allowed to create a
	// schema. Empty: a private server, whose commits survive a crash.
	DatabaseURL string
	// Command is the program, with arguments, that calls Work.
	Command []string

	Jobs    int           // invoices, each with one job
	Workers int           // processes, at least 3
	Lease   time.Duration // of the workers
	Poll    time.Duration // interval of the workers
	Effort  time.Duration // how long a handler takes beside its statements
	Probes  int           // single jobs that measure the pick-up

	Tell     func(line string)                  // called as the story goes on
	Progress func(what string, done, total int) // called often, from several goroutines
	Log      io.Writer                          // for the private server: what may take long; nil: silent
}

// Full returns the sizes of the stories as the command tells them.
func Full() Plan {
	return Plan{
		Jobs: 20_000, Workers: 8, Lease: 3 * time.Second, Poll: 10 * time.Second,
		Effort: 5 * time.Millisecond, Probes: 200,
	}
}

// storyLimit bounds a story once its server runs. A full one takes half of it
// on two cores.
const storyLimit = 85 * time.Second

// onStage runs a story with a stage and a crew, and leaves neither behind,
// whatever happens.
func onStage(ctx context.Context, p Plan, naive bool, story func(context.Context, *stage, *crew) error) (err error) {
	if !canFreeze {
		return errors.New("demo: needs SIGSTOP and SIGCONT, which this system does not have")
	}
	s, err := build(ctx, p)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	c := newCrew(p, s, naive)
	defer func() {
		c.disband()
		if err = errors.Join(err, s.strike()); err != nil {
			err = fmt.Errorf("demo: %w", err)
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, storyLimit, fmt.Errorf("the story took longer than %v", storyLimit))
	defer cancel()
	err = story(ctx, s, c)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err) // pgx tells only that its context ended
	}
	return err
}
