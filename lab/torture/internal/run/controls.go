package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/internal/torture"
	"github.com/fencepost-go/fencepost/lab/torture/internal/fault"
	"github.com/fencepost-go/fencepost/lab/torture/internal/report"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// Control is a run without one guard, under what needs it. The checker must see
// that it is missing.
type Control struct {
	Guard torture.Guard
	About string // what is missing
	// Caught are the invariants of which one at least must be violated.
	Caught []int
	// Says are words of which one must be in the counterexample: what else may be
	// wrong is no proof that the guard was missed.
	Says   []string
	Faults []string
	Length time.Duration // of the load: its faults are repeated meanwhile
	Plan   func(*Plan)   // what else it takes; nil: nothing
}

// Controls are all of them, one for each guard.
var Controls = []Control{
	{
		Guard: torture.FinishFence, Caught: []int{5},
		Says:   []string{"nobody who had the fence", "old fence"},
		About:  "an outcome is stored whatever fence it shows",
		Faults: []string{"freeze"},
	},
	{
		Guard: torture.ExtendFence, Caught: []int{5},
		Says:   []string{"extend"},
		About:  "a lease is extended whatever fence is shown",
		Faults: []string{"freeze"},
	},
	{
		Guard: torture.CompleteFence, Caught: []int{5},
		Says:   []string{"complete"},
		About:  "a handler's own transaction completes its job whatever fence it shows",
		Faults: []string{"freeze"},
	},
	{
		Guard: torture.ReapLock, Caught: []int{8},
		Says:   []string{"a job was taken that nobody had", "before its lease was over"},
		About:  "a job is taken from its worker by its id alone, a while after it was found",
		Faults: []string{"freeze", "kill"},
	},
	{
		Guard: torture.ClaimLock, Caught: []int{8},
		Says:   []string{"claimed while it was somebody's", "two handlers of a job ran at once"},
		About:  "a claim checks what it takes in a sub-select only, and locks nothing there",
		Length: 10 * time.Second,
		Plan:   func(p *Plan) { p.Rate = 100 },
	},
	{
		Guard: torture.ClaimCounts, Caught: []int{7},
		Says:   []string{"attempts were miscounted", "more handlers started than attempts are allowed"},
		About:  "an attempt counts when it fails, not when it is claimed",
		Length: 10 * time.Second,
		Plan: func(p *Plan) {
			p.Mix = script.Mix{script.Short: 0.8, script.Fail: 0.15, script.Killer: 0.05}
			p.Rate = 30
		},
	},
	{
		Guard: torture.ListenFirst, Caught: []int{11},
		Says:   []string{"while bells were heard"},
		About:  "the look at what is due comes before LISTEN",
		Faults: []string{"terminate-listener"},
		Length: 85 * time.Second, // and few jobs: the next bell would make up for the one that is missed
		Plan: func(p *Plan) {
			p.Workers, p.Poll, p.Rate, p.Most = 1, 20*time.Second, 1.5, 15*time.Second
			p.Unattended, p.Wake, p.Bursts = true, 2*time.Second, 0
			p.Mix = script.Mix{script.Short: 1}
		},
	},
	{
		Guard: torture.ClockFence, Caught: []int{4},
		Says:   []string{"given twice", "after a failover a fence is not larger"},
		About:  "fences come from a counter, and the server fails over to a standby that lacks the last commits",
		Faults: []string{"failover"},
	},
	{
		Guard: torture.DrainExtends, Caught: []int{8},
		Says:   []string{"the lease of a live worker ran out"},
		About:  "leases are not extended while a stop waits for handlers",
		Faults: []string{"stop"},
		Plan: func(p *Plan) {
			p.SoftStop, p.Calm = 8*time.Second, 6*time.Second
			p.Mix = script.Mix{script.Short: 0.5, script.Long: 0.5}
			p.Rate = 15
		},
	},
	{
		Guard: torture.StoredFirst, Caught: []int{15},
		Says:   []string{"acknowledged"},
		About:  "a job counts as done before that is stored",
		Faults: []string{"crash-restart"},
	},
	{
		Guard: torture.Poll, Caught: []int{11},
		Says:   []string{"without bells"},
		About:  "an idle process trusts bells alone",
		Faults: []string{"bells-lost"},
		Plan:   func(p *Plan) { p.Rate, p.Most, p.Bursts = 5, 15*time.Second, 0 },
	},
	{
		Guard: torture.ClaimRow, Caught: []int{17},
		Says:   []string{"no claim names"},
		About:  "a claim writes down nowhere that its jobs run",
		Length: 10 * time.Second,
	},
	{
		// Some transactions are open for seconds before they commit. Nothing else
		// happens: a claim that fails forgets its mark, and a new process has none.
		Guard: torture.LookBelow, Caught: []int{11},
		Says:   []string{"while bells were heard"},
		About:  "claims begin where the last one ended, and never look below that",
		Length: 20 * time.Second,
		Plan: func(p *Plan) {
			p.Unattended, p.Bursts = true, 0
			p.Mix = script.Mix{script.Short: 1}
		},
	},
	{
		Guard: torture.QuietLock, Caught: []int{11},
		Says:   []string{"while bells were heard"},
		About:  "a promise to look ends without waiting for those who were silent because of it",
		Length: silence,
		Plan:   silent,
	},
	{
		Guard: torture.QuietLook, Caught: []int{11},
		Says:   []string{"while bells were heard"},
		About:  "a promise to look ends without the last look",
		Length: silence,
		Plan:   silent,
	},
}

// silence is how long a run lasts in which bells are silent again and again, and
// some of those who were silent commit when nobody looks any more.
const silence = 60 * time.Second

// silent has all jobs come in bursts, one after the other and about 10 s apart.
// Once a promise is over nothing else comes for a while, and nobody looks for
// another reason: there is one worker, who polls hardly ever.
func silent(p *Plan) {
	p.Workers, p.Producers, p.Poll, p.Unattended, p.Wake = 1, 1, 20*time.Second, true, 2*time.Second
	p.Rate, p.Bursts = 10, 1
	p.Mix = script.Mix{script.Short: 1}
}

// ControlOf returns the control for a guard.
func ControlOf(guard string) (Control, error) {
	i := slices.IndexFunc(Controls, func(c Control) bool { return string(c.Guard) == guard })
	if i < 0 {
		return Control{}, fmt.Errorf("there is no guard %q; see the command list", guard)
	}
	return Controls[i], nil
}

// Run makes the run of the control. What it returns says whether the missing
// guard was noticed; the report is that of the run.
func (c Control) Run(ctx context.Context, seed uint64, at Place) (report.Control, report.Run) {
	begin := time.Now()
	p := Quick(seed)
	p.Name = "control-" + string(c.Guard)
	p.Break = c.Guard
	p.Length = c.Length
	result := report.Control{Name: string(c.Guard), Guard: c.About, Expected: c.Caught, Says: c.Says, Caught: []int{}}
	for _, name := range c.Faults {
		f, ok := fault.Named(name)
		if !ok {
			result.Error = fmt.Sprintf("there is no fault %q", name)
			return result, report.Run{}
		}
		p.Faults = append(p.Faults, f)
	}
	if c.Plan != nil {
		c.Plan(&p)
	}
	r, err := One(ctx, p, at)
	result.Caught = report.Caught(r.Findings, c.Caught, c.Says)
	// A queue without a guard may well not come to its end.
	if left := (LeftError{}); err != nil && (!result.OK() || errors.As(err, &left)) {
		result.Error = err.Error()
	}
	result.Seconds = time.Since(begin).Seconds()
	r.Without, r.Controls = result.Name, []report.Control{result}
	return result, r
}
