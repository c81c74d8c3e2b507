package fault

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// Pauses are how long nothing happens before a fault, and after it.
type Pauses struct{ Calm, Recovery time.Duration }

// Step is one fault of a schedule.
type Step struct {
	Fault Fault
	Seed  uint64 // of what it does
	Pauses
	// Beside are steps that happen while the fault goes on. It ends after them.
	Beside []Step
}

// Schedule puts faults into an order that the seed decides: each once, and then
// from the beginning in another order, for as long as they fit into the time.
// If that is zero, each once.
func Schedule(seed uint64, faults []Fault, pauses Pauses, length time.Duration) []Step {
	r := rand.New(rand.NewPCG(seed, 4))
	var steps []Step
	for used := time.Duration(0); len(faults) > 0; {
		for _, step := range round(r, faults, pauses) {
			used += step.lasts()
			if length > 0 && used > length && len(steps) > 0 {
				return steps
			}
			steps = append(steps, step)
		}
		if length == 0 {
			break
		}
	}
	return steps
}

// round has each fault once. One that keeps company comes where chance has put
// it, with the first others that can go on beside it.
func round(r *rand.Rand, faults []Fault, pauses Pauses) []Step {
	var order []Step
	for _, f := range faults {
		order = append(order, Step{Fault: f, Seed: r.Uint64(), Pauses: pauses})
	}
	r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	at := slices.IndexFunc(order, func(s Step) bool { return s.Fault.company > 0 })
	if at < 0 {
		return order
	}
	host := order[at]
	var before, after []Step
	for i, left := 0, host.Fault.company; i < len(order); i++ {
		step := order[i]
		switch {
		case i == at:
		case left > 0 && step.Fault.touches&(servers|schema) == 0: // it ends no session of the host's, and waits for none
			host.Beside = append(host.Beside, step)
			left -= step.lasts()
		case i < at:
			before = append(before, step)
		default:
			after = append(after, step)
		}
	}
	return slices.Concat(before, []Step{host}, after)
}

// lasts is how long the step takes, about.
func (s Step) lasts() time.Duration {
	if len(s.Beside) == 0 {
		return s.Calm + s.Fault.Length + s.Recovery
	}
	sum := s.Calm + s.Calm + s.Recovery
	for _, other := range s.Beside {
		sum += other.lasts()
	}
	return sum
}

// Run waits for the calm, runs the fault, and what happens beside it, and waits
// for the recovery. It is the same every time as far as the fault can choose.
func (s Step) Run(ctx context.Context, on *stage.Stage) error {
	if !wait(ctx, s.Calm) {
		return nil
	}
	r := rand.New(rand.NewPCG(s.Seed, 4))
	var err error
	if len(s.Beside) == 0 {
		err = s.Fault.Run(ctx, on, r)
	} else {
		err = s.Fault.do(ctx, &act{Stage: on, r: r, length: s.Fault.Length, meanwhile: func(ctx context.Context) error { return s.beside(ctx, on) }})
	}
	wait(ctx, s.Recovery)
	return err
}

// beside runs what happens beside the fault, with as much calm after the last
// recovery as there is before any other fault.
func (s Step) beside(ctx context.Context, on *stage.Stage) error {
	for _, step := range s.Beside {
		if err := step.Run(ctx, on); err != nil || ctx.Err() != nil {
			return err
		}
	}
	wait(ctx, s.Calm)
	return nil
}
