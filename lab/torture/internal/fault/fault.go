// Package fault is everything that is done to a queue, to the processes that
// work on it, and to what they stand on. Each fault is bounded, mends what it
// broke, also when its context ends, and is in the history.
package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// Fault is one thing that goes wrong.
type Fault struct {
	Name  string
	About string // one line for people
	Needs Needs
	// Length is how long it lasts, about.
	Length time.Duration
	// Run lets it begin, last and end. It returns when all is mended; who then
	// needs how long to be well again is another matter.
	Run func(ctx context.Context, s *stage.Stage, r *rand.Rand) error

	touches kind
	// company is for how long other faults of a schedule happen while this one
	// goes on, at least, as far as there are some that can; 0: none do.
	company time.Duration
	body    func(ctx context.Context, a *act) error
}

// kind is what a fault deals with. Two that deal with the same cannot go on at
// once.
type kind uint

const (
	processes kind = 1 << iota
	network
	bells
	sessions
	schema
	servers
)

// mendTime bounds what comes after the end of a fault's context.
const mendTime = 90 * time.Second

// act is a fault in progress.
type act struct {
	*stage.Stage
	r      *rand.Rand
	length time.Duration
	// hurried: it may not last longer, even if what it is about takes longer.
	hurried bool
	// meanwhile is what happens while the fault goes on, which ends after it; nil:
	// what it thinks of itself.
	meanwhile func(context.Context) error
	// note is what it has to say when it is over.
	note string
}

// All are all faults, in the order of the files of this package.
var All []Fault

func init() { // some are made of others, and look here
	All = slices.Concat(
		processFaults, promiserFaults, stopFaults, backendFaults, serverFaults, networkFaults, bellFaults, poolFaults,
		diskFaults, failoverFaults, clockFaults, ddlFaults, severalFaults,
	)
	for i := range All {
		f := All[i]
		All[i].Run = func(ctx context.Context, s *stage.Stage, r *rand.Rand) error { return f.play(ctx, s, r, 0) }
	}
}

// Named returns the fault of a name.
func Named(name string) (Fault, bool) {
	i := slices.IndexFunc(All, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, false
	}
	return All[i], true
}

// Within returns the same fault, for no longer than most. It keeps no company.
func (f Fault) Within(most time.Duration) Fault {
	original := f
	f.Length, f.company = min(f.Length, most), 0
	f.Run = func(ctx context.Context, s *stage.Stage, r *rand.Rand) error {
		return original.play(ctx, s, r, f.Length)
	}
	return f
}

// play runs the fault for another length than its own; 0: its own.
func (f Fault) play(ctx context.Context, s *stage.Stage, r *rand.Rand, length time.Duration) error {
	return f.do(ctx, &act{Stage: s, r: r, length: cmp.Or(length, f.Length), hurried: length > 0})
}

func (f Fault) do(ctx context.Context, a *act) error {
	if lack := f.Needs.Lack(a.Stage); lack != "" {
		return fmt.Errorf("fault %s: %s", f.Name, lack)
	}
	a.Logf("fault %s begins", f.Name)
	end := a.Begin(f.Name)
	err := f.bounded(ctx, a)
	end(a.note)
	a.Logf("fault %s is over", strings.TrimSuffix(f.Name+": "+a.note, ": "))
	if err != nil {
		return fmt.Errorf("fault %s: %w", f.Name, err)
	}
	return nil
}

// bounded runs the body. One that does not end is told to, as if the run was
// over; what goes on meanwhile has a bound of its own.
func (f Fault) bounded(ctx context.Context, a *act) error {
	if a.meanwhile != nil {
		return f.body(ctx, a)
	}
	late := errors.New("it did not end")
	ctx, cancel := context.WithTimeoutCause(ctx, a.length+mendTime, late)
	defer cancel()
	err := f.body(ctx, a)
	if context.Cause(ctx) == late {
		err = errors.Join(err, late)
	}
	return err
}

// wait lets time go by. It returns false when the fault is to end early.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// mending returns a context for the end of a fault, which has to come even if
// ctx has ended.
func mending(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), mendTime, errors.New("it takes too long to mend"))
}

// repeat does something again and again, at random moments that are about every
// apart, for the length of the fault.
func (a *act) repeat(ctx context.Context, every time.Duration, do func() error) error {
	for end := time.Now().Add(a.length); ; {
		if err := do(); err != nil && ctx.Err() == nil {
			return err
		}
		pause := a.between(every/2, every*3/2)
		if time.Now().Add(pause).After(end) {
			wait(ctx, time.Until(end))
			return nil
		}
		if !wait(ctx, pause) {
			return nil
		}
	}
}

// between returns a random duration.
func (a *act) between(from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(a.r.Int64N(int64(to-from)))
}

// victim is a random worker; nil if there is none.
func (a *act) victim() *stage.Process {
	workers := a.Workers()
	if len(workers) == 0 {
		return nil
	}
	return workers[a.r.IntN(len(workers))]
}

// victims are a random half of the workers, and one more if their number is odd.
func (a *act) victims() []*stage.Process {
	workers := slices.Clone(a.Workers())
	a.r.Shuffle(len(workers), func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
	return workers[:(len(workers)+1)/2]
}
