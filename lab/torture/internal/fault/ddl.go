package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
	"github.com/fencepost-go/fencepost/migrations"
)

var ddlFaults = []Fault{
	{
		Name: "ddl-lock", About: "somebody holds the strongest lock on the table of jobs, for most of a lease",
		Length: 4 * time.Second, touches: schema | sessions, body: ddlLock,
	},
	{
		Name: "migration", About: "under load: a column and an index come and go, and a migration is applied with its retries for locks",
		Length: 6 * time.Second, touches: schema | sessions, body: migrate,
	},
}

func ddlLock(ctx context.Context, a *act) error {
	return a.session(ctx, func(ctx, mend context.Context, conn *pgx.Conn) error {
		for _, sql := range []string{"BEGIN", "LOCK TABLE fencepost.jobs IN ACCESS EXCLUSIVE MODE"} {
			if _, err := conn.Exec(mend, sql); err != nil {
				return &failed{sql, err}
			}
		}
		wait(ctx, a.length)
		_, err := conn.Exec(mend, "ROLLBACK")
		return err
	})
}

// migrate changes the schema in ways that a later version might. What it adds
// is gone at the end.
func migrate(ctx context.Context, a *act) error {
	return a.session(ctx, func(ctx, mend context.Context, conn *pgx.Conn) error {
		// What is made concurrently waits for transactions that are open, and
		// nobody waits behind it. If its patience ended it would leave a part.
		concurrently := func(sql string) error {
			_, err := conn.Exec(mend, "SET lock_timeout = 0")
			if err == nil {
				_, err = conn.Exec(mend, sql)
			}
			if err != nil {
				return &failed{sql, err}
			}
			return nil
		}
		pause := a.length / 4
		err := patiently(mend, conn, "ALTER TABLE fencepost.jobs ADD COLUMN torture text DEFAULT 'x'")
		wait(ctx, pause)
		if err == nil {
			err = concurrently("CREATE INDEX CONCURRENTLY torture ON fencepost.jobs (kind, torture)")
		}
		wait(ctx, pause)
		if err == nil {
			// Nothing is new for it, or everything: it takes the lock and its time.
			_, err = migrations.Up(mend, conn, stage.Schema)
		}
		wait(ctx, pause)
		return errors.Join(err,
			concurrently("DROP INDEX CONCURRENTLY IF EXISTS fencepost.torture"),
			patiently(mend, conn, "ALTER TABLE fencepost.jobs DROP COLUMN IF EXISTS torture"))
	})
}

// patiently executes DDL as one should: it waits for a lock for a moment only,
// since all others wait behind it, and tries again, for longer each time, since
// a transaction may be open for seconds.
func patiently(ctx context.Context, conn *pgx.Conn, sql string) error {
	for patience := time.Second; ; patience = min(2*patience, 10*time.Second) {
		if _, err := conn.Exec(ctx, fmt.Sprintf("SET lock_timeout = %d", patience.Milliseconds())); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, sql)
		if err == nil {
			return nil
		}
		if !isCode(err, "55P03") && !isCode(err, "40P01") || !wait(ctx, 300*time.Millisecond) { // lock_not_available, deadlock_detected
			return &failed{sql, err}
		}
	}
}

// session gives a fault a session of the superuser of its own, and two
// contexts: of the fault, and of its end.
func (a *act) session(ctx context.Context, do func(ctx, mend context.Context, conn *pgx.Conn) error) error {
	mend, cancel := mending(ctx)
	defer cancel()
	conn, err := a.connect(mend, "")
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, mend, conn), conn.Close(mend))
}

// sessionName is the application_name of the sessions of faults.
const sessionName = "torture fault"

// connect makes a session of a role, directly on the primary; "": of the
// superuser.
func (a *act) connect(ctx context.Context, role string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(a.Primary().URL(stage.Database))
	if err != nil {
		return nil, err
	}
	if role != "" {
		config.User = role
	}
	config.RuntimeParams["application_name"] = sessionName
	return pgx.ConnectConfig(ctx, config)
}
