package fault

import (
	"context"
	"errors"
	"time"
)

var failoverFaults = []Fault{
	{
		Name: "failover", About: "the primary dies, and its asynchronous standby, which lacks the last commits, takes over",
		Needs:  Needs{Standby: true},
		Length: 4 * time.Second, touches: servers | network, body: failover,
	},
	{
		Name: "role-swap", About: "the standby takes over with nothing lost, and the old primary turns read-only under the sockets that lead to it",
		Needs:  Needs{Standby: true},
		Length: 6 * time.Second, touches: servers | network, body: roleSwap,
	},
}

// failover lets the primary commit for a while what the standby does not get.
// The clients know both.
func failover(ctx context.Context, a *act) error {
	mend, cancel := mending(ctx)
	defer cancel()
	if err := a.Raise(mend); err != nil { // after the second one there is none any more
		return err
	}
	if err := a.Follow(mend); err != nil {
		return err
	}
	if err := a.CutOff(mend); err != nil {
		return err
	}
	wait(ctx, a.between(a.length/4, a.length/2))
	err := a.Leave()
	old, promoted := a.Promote(mend)
	if promoted != nil {
		return errors.Join(err, promoted)
	}
	return errors.Join(err, a.Retire(mend, old))
}

// roleSwap makes the old primary refuse writes, and leaves the sockets open
// until the end. A transaction that is open at the moment can still commit; it
// is lost if it does so after the standby was promoted.
func roleSwap(ctx context.Context, a *act) error {
	mend, cancel := mending(ctx)
	defer cancel()
	if err := a.Raise(mend); err != nil {
		return err
	}
	if err := a.set(mend, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	if err := a.Follow(mend); err != nil {
		return err
	}
	old, err := a.Promote(mend)
	if err != nil {
		return err
	}
	wait(ctx, a.length)
	return a.Retire(mend, old)
}
