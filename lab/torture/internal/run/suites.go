package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/torture"
	"github.com/fencepost-go/fencepost/lab/torture/internal/fault"
	"github.com/fencepost-go/fencepost/lab/torture/internal/report"
	"github.com/fencepost-go/fencepost/lab/torture/internal/rival"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// shortFaults are those of the short run: of every family, those that take the
// least time.
var shortFaults = []string{
	"kill-promiser", "freeze", "freeze-promiser", "pause", "stop", "terminate-listener", "terminate-exchange",
	"crash-restart", "reset", "answer-lost", "bells-lost", "bells-forged", "ddl-lock",
}

// shortControls are those that show themselves soonest.
var shortControls = []torture.Guard{torture.FinishFence, torture.ClaimLock, torture.StoredFirst, torture.Poll}

// shortTime is more than the short run ever takes: it ends one that hangs.
const shortTime = 10 * time.Minute

// Short is the run that a change has to pass: less than five minutes.
func Short(ctx context.Context, seed uint64, at Place) (report.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, shortTime)
	defer cancel()
	p := Quick(seed)
	p.Name = "short"
	for _, name := range shortFaults {
		f, ok := fault.Named(name)
		if !ok {
			return report.Run{}, fmt.Errorf("there is no fault %q", name)
		}
		p.Faults = append(p.Faults, f)
	}
	result, err := One(ctx, p, at)
	if err != nil {
		return result, err
	}
	result.Demands = report.Demands{Faults: 12, Invariants: true, Controls: len(shortControls), StaleWrites: 500, Silent: 300}
	return result, addControls(ctx, &result, seed, at, shortControls)
}

// Full is every fault, every control, and River beside: about half an hour. A
// fault that this machine cannot make fails it, or it would be less than it
// says.
func Full(ctx context.Context, seed uint64, at Place) (report.Run, error) {
	p := Standard(seed)
	p.Name = "full"
	p.Faults = Possible(at)
	result, err := One(ctx, p, at)
	if err != nil {
		return result, err
	}
	result.Demands = report.Demands{
		Names: make(map[string]string), Judged: len(p.Faults) * 9 / 10,
		StaleWrites: 10_000, Frozen: 10, Invariants: true, Silent: 1000,
		Controls: len(Controls), Rivals: 10,
	}
	for _, f := range fault.All {
		result.Demands.Names[f.Name] = Lacks(f, at)
	}
	if err := addControls(ctx, &result, seed, at, torture.Guards); err != nil {
		return result, err
	}
	result.Rivals, err = rival.Run(ctx, rival.Options{Dir: at.Dir, Seed: seed, Log: at.Log})
	if err != nil {
		err = fmt.Errorf("beside River: %w", err)
		result.Errors = append(result.Errors, err.Error())
	}
	return result, err
}

func addControls(ctx context.Context, result *report.Run, seed uint64, at Place, guards []torture.Guard) error {
	for _, c := range Controls {
		if !slices.Contains(guards, c.Guard) {
			continue
		}
		control, _ := c.Run(ctx, seed, at)
		result.Controls = append(result.Controls, control)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	result.Seconds = time.Since(result.Began).Seconds()
	return nil
}

// Possible are the faults that can be made on this machine.
func Possible(at Place) (faults []fault.Fault) {
	for _, f := range fault.All {
		if Lacks(f, at) == "" {
			faults = append(faults, f)
		}
	}
	return faults
}

// Lacks says what a fault needs that is not there; "": nothing.
func Lacks(f fault.Fault, at Place) string {
	switch n := f.Needs; {
	case n.Mount && !stage.CanMount():
		return "it mounts a small file system, which takes root"
	case n.Pooler && !pg.HasPooler():
		return "PgBouncer is not installed"
	case n.Wrong && at.Wrong == "":
		return "there is no program with a wrong clock"
	case at.Major != 0 && n.Major > at.Major:
		return fmt.Sprintf("it takes PostgreSQL %d", n.Major)
	}
	return ""
}
