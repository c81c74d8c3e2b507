// Package run makes one run of the torture, from its plan to its verdict: a
// stage, a cast, faults by a schedule, a drain, and the check of the record.
package run

import (
	"time"

	"github.com/fencepost-go/fencepost/internal/torture"
	"github.com/fencepost-go/fencepost/lab/torture/internal/fault"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// Plan says what happens in a run. With the same plan the same happens at the
// same times, as far as a machine can repeat itself.
type Plan struct {
	Name string
	Seed uint64
	// Faults happen in an order that the seed decides, each once, or, with
	// Length, over and over until so much time has passed.
	Faults []fault.Fault
	Length time.Duration
	// Most is how long a fault lasts at most; 0: as long as it does by itself.
	Most time.Duration
	// Pauses before and after each fault.
	fault.Pauses

	Workers     int
	Producers   int            // each sends its part of the load
	Slots       map[string]int // of each worker
	Lease, Poll time.Duration
	SoftStop    time.Duration
	// Wake is within what time a due job must start while bells are heard; 0: as
	// the checker has it.
	Wake time.Duration
	Rate float64    // jobs a second; 0: half of what is measured first
	Mix  script.Mix // nil: the default
	// Bursts is the share of the jobs that come in bursts, each of which makes a
	// worker promise to look without bells.
	Bursts float64
	// Unattended: nobody operates on the jobs, which rings bells too.
	Unattended bool

	// Break is a guard that all workers do without; "": none.
	Break torture.Guard
}

// Standard is the plan of a whole run, but for its faults.
func Standard(seed uint64) Plan {
	return Plan{
		Name:      "run",
		Seed:      seed,
		Pauses:    fault.Pauses{Calm: 5 * time.Second, Recovery: 12 * time.Second}, // long enough to judge by
		Workers:   4,
		Producers: 2,
		Slots:     map[string]int{script.Main: 20, script.Side: 8, script.Bin: 6},
		Lease:     6 * time.Second,
		Poll:      5 * time.Second,
		SoftStop:  4 * time.Second,
		Bursts:    script.InBursts,
	}
}

// Quick is the plan of a run in a hurry: shorter faults, leases and pauses, and a
// load and bounds that a busy machine can keep too.
func Quick(seed uint64) Plan {
	p := Standard(seed)
	p.Most = 7 * time.Second
	p.Calm, p.Recovery = 2*time.Second, 4*time.Second
	p.Lease, p.Poll, p.SoftStop = 3*time.Second, 2*time.Second, 2*time.Second
	p.Rate, p.Wake = 60, 4*time.Second
	return p
}

// hardStop is short: handlers that ignore their context are part of the load.
const hardStop = time.Second
