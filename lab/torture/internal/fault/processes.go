package fault

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

var processFaults = []Fault{
	{
		Name: "kill", About: "workers are killed at random moments; others take over before they live again",
		Length: 10 * time.Second, touches: processes, body: kill,
	},
	{
		Name: "kill-claimed", About: "a worker is killed when its claim is committed and no handler has begun",
		Length: 8 * time.Second, touches: processes,
		body: func(ctx context.Context, a *act) error {
			return killAt(ctx, a, func(r *record, c claim) bool { return !r.started[c] })
		},
	},
	{
		Name: "kill-finishing", About: "a worker is killed when a handler has returned and its outcome is not stored",
		Length: 8 * time.Second, touches: processes,
		body: func(ctx context.Context, a *act) error {
			return killAt(ctx, a, func(r *record, c claim) bool { return r.ended[c] })
		},
	},
	{
		Name: "freeze", About: "workers are frozen (SIGSTOP) for more than two leases",
		Length: 14 * time.Second, touches: processes,
		body: func(ctx context.Context, a *act) error { return freeze(ctx, a, a.laden(ctx), 2.2) },
	},
	{
		Name: "pause", About: "workers are frozen (SIGSTOP) for 0.6 of a lease, which costs them nothing",
		Length: 4 * time.Second, touches: processes,
		body: func(ctx context.Context, a *act) error { return freeze(ctx, a, a.victims(), 0.6) },
	},
}

// kill kills two or three workers, each at a moment of its own, and leaves each
// dead for a while, as long as the fault lasts at most.
func kill(ctx context.Context, a *act) error {
	var killed []*stage.Process
	err := a.repeat(ctx, a.length/3, func() error {
		p := a.victim()
		if p == nil || p.PID() == 0 {
			return nil
		}
		killed = append(killed, p)
		return ignoreDead(p.KillFor(a.between(a.length/5, a.length/2)))
	})
	return errors.Join(err, alive(ctx, killed))
}

// alive waits until all have a life again.
func alive(ctx context.Context, all []*stage.Process) error {
	ctx, cancel := mending(ctx)
	defer cancel()
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Await(ctx))
	}
	return errors.Join(errs...)
}

// settled is how long a statement that a process has sent before it was frozen
// may take to be over.
const settled = 15 * time.Millisecond

// killAt freezes a worker for a moment again and again until a job of its is
// where it should be, and kills it then. If that is not to be, it tries the
// next one, for twice the length of the fault at most, and kills any in the end.
func killAt(ctx context.Context, a *act, at func(*record, claim) bool) error {
	workers := a.Workers()
	if len(workers) == 0 {
		wait(ctx, a.length)
		return nil
	}
	a.r.Shuffle(len(workers), func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
	half := a.length / 2 // for one worker; and to be dead
	end := time.Now().Add(2 * a.length)
	if a.hurried {
		end = time.Now().Add(half)
	}
	for n := 0; time.Now().Before(end) && ctx.Err() == nil; n++ {
		p := workers[n%len(workers)]
		found, err := hunt(ctx, a, p, min(half, time.Until(end)), at)
		if err != nil {
			a.Logf("%s is not to be had: %v", p.Name(), err)
			wait(ctx, 100*time.Millisecond)
			continue
		}
		if found && p.KillFor(half) == nil {
			a.note = "caught"
			return lastly(ctx, half, p)
		}
	}
	a.note = "not caught: killed at random"
	return killAny(ctx, workers, half)
}

// killAny kills one that lives, and waits for a life of them if none does.
func killAny(ctx context.Context, workers []*stage.Process, dead time.Duration) error {
	mend, cancel := mending(ctx)
	defer cancel()
	for {
		for _, p := range workers {
			switch err := p.KillFor(dead); {
			case err == nil:
				return lastly(ctx, dead, p)
			case ignoreDead(err) != nil:
				return err
			}
		}
		if err := workers[0].Await(mend); err != nil {
			return err
		}
	}
}

func lastly(ctx context.Context, d time.Duration, p *stage.Process) error {
	wait(ctx, d)
	return alive(ctx, []*stage.Process{p})
}

// hunt lasts until one of the worker's jobs is where it should be, and leaves
// it frozen then; or until its time is over, or that of the worker: as workers
// do here, it may die at any moment.
func hunt(ctx context.Context, a *act, p *stage.Process, length time.Duration, at func(*record, claim) bool) (bool, error) {
	pid := p.PID()
	r := recordOf(p)
	for end := time.Now().Add(length); time.Now().Before(end) && ctx.Err() == nil; {
		found, err := caught(ctx, a, p, pid, r, at)
		if found {
			return true, nil
		}
		if err = errors.Join(err, p.Resume()); err != nil {
			return false, err
		}
		wait(ctx, a.between(2*time.Millisecond, 40*time.Millisecond))
	}
	return false, nil
}

// caught freezes the worker and says whether one of its jobs is where it should
// be. It is frozen afterwards.
func caught(ctx context.Context, a *act, p *stage.Process, pid int, r *record, at func(*record, claim) bool) (bool, error) {
	if err := p.Pause(); err != nil {
		return false, err
	}
	if p.PID() != pid {
		return false, stage.ErrDead // this is another life
	}
	wait(ctx, settled)
	r.read()
	rows, err := a.Admin().Query(ctx, "SELECT id, fence FROM fencepost.jobs WHERE status = 'running' AND split_part(worker_id, ':', 2) = $1", strconv.Itoa(pid))
	if err != nil {
		return false, err
	}
	claims, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c claim, err error) {
		err = row.Scan(&c.job, &c.fence)
		return c, err
	})
	return slices.ContainsFunc(claims, func(c claim) bool { return at(r, c) }), err
}

// defaultLease is what a worker has that was not told.
const defaultLease = 6 * time.Second

// inHand is how many jobs those that are frozen have together, if that can be:
// each is to be written about by somebody who has lost it.
const inHand = 12

// laden are victims, when they have their hands full. Some may have begun to live
// just now: for that they have a lease of time, unless the fault is in a hurry.
func (a *act) laden(ctx context.Context) []*stage.Process {
	victims := a.victims()
	for end := time.Now().Add(defaultLease); !a.hurried && len(victims) > 0 && time.Now().Before(end); {
		var pids []string
		for _, p := range victims {
			pids = append(pids, strconv.Itoa(p.PID()))
		}
		var n int
		err := a.Admin().QueryRow(ctx, "SELECT count(*) FROM fencepost.jobs WHERE status = 'running' AND split_part(worker_id, ':', 2) = ANY ($1)", pids).Scan(&n)
		if err != nil || n >= inHand || !wait(ctx, 20*time.Millisecond) {
			break // another fault may have the server: then they are frozen as they are
		}
	}
	return victims
}

// freeze stops processes for so many leases.
func freeze(ctx context.Context, a *act, all []*stage.Process, leases float64) error {
	lease := defaultLease
	var errs []error
	for _, p := range all {
		if l := p.Assignment().Lease; l > 0 {
			lease = l
		}
		errs = append(errs, ignoreDead(p.Pause()))
	}
	length := time.Duration(leases * float64(lease))
	if a.hurried {
		length = min(length, a.length)
	}
	wait(ctx, length)
	for _, p := range all {
		errs = append(errs, ignoreDead(p.Resume()))
	}
	return errors.Join(errs...)
}

// ignoreDead: some jobs end their worker, at any moment.
func ignoreDead(err error) error {
	if errors.Is(err, stage.ErrDead) {
		return nil
	}
	return err
}
