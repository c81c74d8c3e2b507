package fault

import (
	"context"
	"errors"
	"time"
)

var serverFaults = []Fault{
	{
		Name: "crash-restart", About: "the server crashes (shutdown immediate), is gone for a moment, and recovers",
		Length: 3 * time.Second, touches: servers,
		body: func(ctx context.Context, a *act) error { return bounce(ctx, a, "immediate") },
	},
	{
		Name: "fast-restart", About: "the server is restarted in order (shutdown fast) under load",
		Length: 3 * time.Second, touches: servers,
		body: func(ctx context.Context, a *act) error { return bounce(ctx, a, "fast") },
	},
	{
		Name: "read-only", About: "all sessions turn read-only while their sockets stay open (default_transaction_read_only)",
		Length: 6 * time.Second, touches: servers, body: readOnly,
	},
}

func bounce(ctx context.Context, a *act, mode string) error {
	away := a.between(0, a.length)
	mend, cancel := mending(ctx)
	defer cancel()
	return a.Bounce(mend, mode, func() error {
		wait(ctx, away)
		return nil
	})
}

// readOnly makes every transaction read-only that is not told otherwise, as on
// a server that was demoted. Nobody is disconnected.
func readOnly(ctx context.Context, a *act) error {
	mend, cancel := mending(ctx)
	defer cancel()
	err := a.set(mend, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	wait(ctx, a.length)
	return errors.Join(err, a.set(mend, "ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"))
}

// set executes statements as the superuser, each by itself.
func (a *act) set(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := a.Admin().Exec(ctx, sql); err != nil {
			return &failed{sql, err}
		}
	}
	return nil
}
