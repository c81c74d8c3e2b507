package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

var ddlFaults = []Fault{
	{
		Name: "ddl-lock", About: "somebody holds the strongest lock on the table of jobs, for most of a lease",
		Length: 4 * time.Second, touches: schema | sessions, body: ddlLock,
	},
	{
		Name: "migration", About: "under load, as a migration does it, step by step and with retries for locks: a column with a default, a constraint that is validated later, an index made concurrently, all functions replaced and a new one; then all of it is taken back",
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
		all, err := functions(mend, conn)
		if err != nil {
			return err
		}
		pause := a.length / 5
		for _, do := range []func() error{
			func() error {
				return patiently(mend, conn,
					"ALTER TABLE fencepost.jobs ADD COLUMN torture text NOT NULL DEFAULT 'x'",
					"ALTER TABLE fencepost.jobs ADD CONSTRAINT torture CHECK (torture <> '') NOT VALID")
			},
			func() error {
				return patiently(mend, conn, "ALTER TABLE fencepost.jobs VALIDATE CONSTRAINT torture")
			},
			func() error {
				return concurrently(mend, conn, "CREATE INDEX CONCURRENTLY torture ON fencepost.jobs (kind, torture)")
			},
			func() error {
				return patiently(mend, conn, append(all,
					"CREATE FUNCTION fencepost.torture(job fencepost.jobs) RETURNS text LANGUAGE sql AS 'SELECT job.torture'")...)
			},
		} {
			if err = do(); err != nil || !wait(ctx, pause) {
				break
			}
		}
		return errors.Join(err,
			concurrently(mend, conn, "DROP INDEX CONCURRENTLY IF EXISTS fencepost.torture"),
			patiently(mend, conn,
				"DROP FUNCTION IF EXISTS fencepost.torture",
				"ALTER TABLE fencepost.jobs DROP COLUMN IF EXISTS torture")) // and the constraint
	})
}

// functions are the statements that replace each function by itself. Everybody
// who has one in a plan has to plan again.
func functions(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'fencepost'::regnamespace AND prokind = 'f' ORDER BY oid")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// patiently executes DDL in a transaction as package migrations does: it waits
// for a lock for a moment only, since all others wait behind it, and tries
// again; here for longer each time, since under this load there are always
// transactions that are open for seconds.
func patiently(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for patience := 300 * time.Millisecond; ; patience = min(3*patience, 10*time.Second) {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for _, sql := range append([]string{fmt.Sprintf("SET LOCAL lock_timeout = %d", patience.Milliseconds())}, statements...) {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return &failed{sql, err}
				}
			}
			return nil
		})
		if !isCode(err, "55P03") && !isCode(err, "40P01") || !wait(ctx, time.Second) { // lock_not_available, deadlock_detected
			return err
		}
	}
}

// concurrently executes what waits for transactions that are open, and nobody
// waits behind it. If its patience ended it would leave a part.
func concurrently(ctx context.Context, conn *pgx.Conn, sql string) error {
	if _, err := conn.Exec(ctx, sql); err != nil {
		return &failed{sql, err}
	}
	return nil
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
