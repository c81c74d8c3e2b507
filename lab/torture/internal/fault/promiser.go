package fault

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// promiserFaults meet a worker while nobody else hears of new jobs. The others
// have to see to it when the promise has run out.
var promiserFaults = []Fault{
	{
		Name: "kill-promiser", About: "a worker is killed while it promises to look into a queue without bells",
		Length: 10 * time.Second, touches: processes,
		body: func(ctx context.Context, a *act) error {
			p, err := promiser(ctx, a)
			if err != nil || len(a.Workers()) == 0 {
				return err
			}
			if p != nil && p.KillFor(a.away()) == nil {
				a.note = "caught"
				return lastly(ctx, a.away(), p)
			}
			a.note = "not caught: killed at random"
			return killAny(ctx, a.Workers(), a.away())
		},
	},
	{
		Name: "freeze-promiser", About: "a worker is frozen (SIGSTOP) for 5 s while it promises to look into a queue without bells",
		Length: 10 * time.Second, touches: processes,
		body: func(ctx context.Context, a *act) error {
			p, err := promiser(ctx, a)
			if err != nil {
				return err
			}
			a.note = "caught"
			if p == nil {
				a.note = "not caught: frozen at random"
				if p = a.victim(); p == nil {
					return nil
				}
				err = ignoreDead(p.Pause())
			}
			wait(ctx, a.away())
			return errors.Join(err, ignoreDead(p.Resume()))
		},
	},
}

// away is how long the promiser is gone: longer than the others wait for news of
// his promise.
func (a *act) away() time.Duration { return min(5*time.Second, a.length/2) }

// promiser waits until a worker promises to look without bells, and freezes it. It
// waits for twice the length of the fault at most, or for half of it in a hurry.
// nil: none did.
func promiser(ctx context.Context, a *act) (*stage.Process, error) {
	most := 2 * a.length
	if a.hurried {
		most = a.length - a.away()
	}
	records := make(map[string]*record)
	for end := time.Now().Add(most); time.Now().Before(end); {
		for _, p := range a.Workers() {
			r := records[p.Name()] // of this life
			if r == nil {
				r = recordOf(p)
				records[p.Name()] = r
			}
			if r.read(); !r.promises(history.Now()) {
				continue
			}
			caught, err := promising(ctx, p, r)
			if caught || err != nil {
				return p, err
			}
		}
		if !wait(ctx, 10*time.Millisecond) {
			break
		}
	}
	return nil, nil
}

// promising freezes the worker, and lets it go on if it promises no more.
func promising(ctx context.Context, p *stage.Process, r *record) (bool, error) {
	if err := p.Pause(); err != nil {
		return false, ignoreDead(err)
	}
	wait(ctx, settled)
	if r.read(); p.Name() == r.name && r.promises(history.Now()) {
		return true, nil
	}
	return false, ignoreDead(p.Resume())
}
