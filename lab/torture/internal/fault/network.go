package fault

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage/filter"
)

var networkFaults = []Fault{
	{
		Name: "reset", About: "connections are reset, again and again",
		Length: 8 * time.Second, touches: network, body: reset,
	},
	{
		Name: "reset-inside", About: "connections are reset in the middle of an answer",
		Length: 8 * time.Second, touches: network, body: resetInside,
	},
	{
		Name: "stall", About: "nothing comes through in either direction, sockets stay open, for longer than a lease; then all of it does",
		Length: 9 * time.Second, touches: network, body: stall,
	},
	{
		Name: "answer-lost", About: "what is sent arrives and no answer does, and then the connection is reset: committed, and nobody knows",
		Length: 8 * time.Second, touches: network, body: answerLost,
	},
	{
		Name: "latency", About: "each packet takes 20 to 180 ms, of all processes in both directions",
		Length: 10 * time.Second, touches: network,
		body: func(ctx context.Context, a *act) error {
			return toxic(ctx, a, a.Processes(""), "latency", map[string]int{"latency": 100, "jitter": 80}, filter.Up, filter.Down)
		},
	},
	{
		Name: "slow-link", About: "answers come at 16 kB a second, to half of the workers",
		Length: 10 * time.Second, touches: network,
		body: func(ctx context.Context, a *act) error {
			return toxic(ctx, a, a.victims(), "bandwidth", map[string]int{"rate": 16}, filter.Down)
		},
	},
}

// cut writes into the history that the network of some has a fault, and returns
// the end of that.
func cut(all []*stage.Process, how string) (mend func()) {
	for _, p := range all {
		p.Cut(how)
	}
	return func() {
		for _, p := range all {
			p.Mend(how)
		}
	}
}

// toxic adds one that makes everything late, for the length of the fault.
func toxic(ctx context.Context, a *act, all []*stage.Process, kind string, attributes map[string]int, directions ...filter.Direction) error {
	defer cut(all, history.Late)()
	var errs []error
	for _, p := range all {
		for _, d := range directions {
			errs = append(errs, p.Net().Toxic(kind, d, attributes))
		}
	}
	wait(ctx, a.length)
	return errors.Join(append(errs, pure(ctx, all))...)
}

// pure takes the toxics away.
func pure(ctx context.Context, all []*stage.Process) error {
	mend, cancel := mending(ctx)
	defer cancel()
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Net().Pure(mend))
	}
	return errors.Join(errs...)
}

// reset lets half of the workers, each time others, find their connections
// reset when they next hear something.
func reset(ctx context.Context, a *act) error {
	return flicker(ctx, a, "reset_peer", func() map[string]int { return map[string]int{"timeout": 0} })
}

// resetInside does it after so many bytes of answers.
func resetInside(ctx context.Context, a *act) error {
	return flicker(ctx, a, "limit_data", func() map[string]int { return map[string]int{"bytes": 20 + a.r.IntN(3000)} })
}

// flicker adds a toxic that ends connections for a moment, again and again.
func flicker(ctx context.Context, a *act, kind string, attributes func() map[string]int) error {
	return a.repeat(ctx, time.Second, func() error {
		some := a.touched()
		defer cut(some, history.Broken)()
		var errs []error
		for _, p := range some {
			errs = append(errs, p.Net().Toxic(kind, filter.Down, attributes()))
		}
		wait(ctx, a.between(50*time.Millisecond, 300*time.Millisecond))
		return errors.Join(append(errs, pure(ctx, some))...)
	})
}

// touched are half of the workers and one of all processes.
func (a *act) touched() []*stage.Process {
	some := a.victims()
	if all := a.Processes(""); len(all) > 0 {
		if p := all[a.r.IntN(len(all))]; !slices.Contains(some, p) {
			some = append(some, p)
		}
	}
	return some
}

// stall holds half of the workers.
func stall(ctx context.Context, a *act) error {
	some := a.victims()
	defer cut(some, history.Silent)()
	for _, p := range some {
		p.Net().Hold(filter.Up, filter.Down)
	}
	wait(ctx, a.length)
	for _, p := range some {
		p.Net().Release()
	}
	return nil
}

// answerLost holds what the server says to some, and resets their connections
// then. It does so twice.
func answerLost(ctx context.Context, a *act) error {
	for range 2 {
		some := a.touched()
		silent := cut(some, history.Silent)
		for _, p := range some {
			p.Net().Hold(filter.Down)
		}
		wait(ctx, a.between(a.length/4, a.length*3/8))
		broken := cut(some, history.Broken)
		for _, p := range some {
			p.Net().Cut()
			p.Net().Release()
		}
		silent()
		broken()
		wait(ctx, a.length/8)
	}
	return nil
}
