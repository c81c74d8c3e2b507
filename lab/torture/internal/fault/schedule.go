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
}

// Schedule puts faults into an order that the seed decides: each once, and then
// from the beginning in another order, for as long as they fit into the time.
// If that is zero, each once.
func Schedule(seed uint64, faults []Fault, pauses Pauses, length time.Duration) []Step {
	r := rand.New(rand.NewPCG(seed, 4))
	var steps []Step
	for used := time.Duration(0); len(faults) > 0; {
		order := slices.Clone(faults)
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, f := range order {
			step := Step{f, r.Uint64(), pauses}
			used += pauses.Calm + f.Length + pauses.Recovery
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

// Run waits for the calm, runs the fault, and waits for the recovery. It is the
// same every time as far as the fault can choose.
func (s Step) Run(ctx context.Context, on *stage.Stage) error {
	if !wait(ctx, s.Calm) {
		return nil
	}
	err := s.Fault.Run(ctx, on, rand.New(rand.NewPCG(s.Seed, 4)))
	wait(ctx, s.Recovery)
	return err
}
