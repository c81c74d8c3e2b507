package fault

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

var poolFaults = []Fault{
	{
		Name: "pooler", About: "half of the workers go through PgBouncer in transaction mode, some of them with a direct way for bells",
		Needs:  Needs{Pooler: true},
		Length: 15 * time.Second, touches: processes | network | servers, body: pooler,
	},
	{
		Name: "pool-exhausted", About: "idle sessions take all connections of the server, and those of the handlers' pools as they fall free",
		Length: 8 * time.Second, touches: sessions, body: exhaust,
	},
	{
		Name: "snapshot", About: "a transaction holds a snapshot (REPEATABLE READ), and so keeps dead rows, while other faults begin and end; of a schedule with others, for two minutes or more",
		Length: 15 * time.Second, touches: sessions | network | processes, company: 2 * time.Minute, body: snapshot,
	},
}

// stopPatience is for a worker that is told to end: its handlers may take their
// time.
const stopPatience = 40 * time.Second

// pooler ends workers in order, starts each again with the pooler in its way,
// every second one with a direct way for bells, and afterwards the other way
// round.
func pooler(ctx context.Context, a *act) error {
	mend, cancel := mending(ctx)
	defer cancel()
	some := a.victims()
	next := make(map[*stage.Process]stage.Next)
	for i, p := range some {
		dsn, err := a.Pooled(mend, p)
		if err != nil {
			return err
		}
		way := stage.Next{DSN: dsn}
		if i%2 == 0 {
			way.ListenDSN = p.Assignment().DSN
		}
		next[p] = way
	}
	err := another(mend, some, func(p *stage.Process) stage.Next { return next[p] })
	wait(ctx, a.length)
	return errors.Join(err, another(mend, some, usual))
}

// another ends processes in order, all at once, and gives each another next
// life.
func another(ctx context.Context, all []*stage.Process, next func(*stage.Process) stage.Next) error {
	var ends errgroup.Group
	for _, p := range all {
		ends.Go(func() error { return errors.Join(p.Term(stopPatience), p.Again(next(p))) })
	}
	return errors.Join(ends.Wait(), alive(ctx, all))
}

// usual is the life that all others have.
func usual(*stage.Process) stage.Next { return stage.Next{} }

// takeTime bounds how long it takes to have all connections.
const takeTime = 20 * time.Second

// exhaust takes every connection that there is, but for those that are kept for
// superusers, and ends those of handlers' pools to take them too.
func exhaust(ctx context.Context, a *act) error {
	mend, cancel := mending(ctx)
	defer cancel()
	const role = "torture_idler"
	if err := a.set(mend, "DROP ROLE IF EXISTS "+role, "CREATE ROLE "+role+" LOGIN"); err != nil {
		return err
	}
	var idle []*pgx.Conn
	taken := false
	// To take them needs some seconds; the length is that of having them.
	for end := time.Now().Add(takeTime); time.Now().Before(end) && ctx.Err() == nil; {
		conn, err := a.connect(ctx, role)
		if err == nil {
			idle = append(idle, conn)
			continue
		}
		if !isCode(err, "53300") { // too_many_connections
			if ignoreLost(err) != nil {
				return err
			}
			wait(ctx, 100*time.Millisecond)
			continue
		}
		if !taken {
			taken, end = true, time.Now().Add(a.length)
			a.Logf("%d idle sessions have taken all connections", len(idle))
		}
		_, err = a.Admin().Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE usename IN (SELECT rolname FROM pg_roles WHERE pg_has_role(oid, 'torture_workers', 'MEMBER') AND NOT rolsuper)
			AND application_name NOT LIKE 'fencepost %' AND state = 'idle'
			-- Not that by which a worker looks at the schema when it starts: without
			-- a database it does not start.
			AND backend_start < clock_timestamp() - interval '2 seconds'`)
		if err = ignoreLost(err); err != nil && ctx.Err() == nil {
			return err
		}
		wait(ctx, 50*time.Millisecond)
	}
	for _, conn := range idle {
		_ = conn.Close(mend)
	}
	// A role with sessions can be dropped.
	errs := []error{a.set(mend, "DROP ROLE "+role)}
	if !taken && ctx.Err() == nil {
		errs = append(errs, errors.New("connections are left after "+strconv.Itoa(len(idle))+" idle sessions"))
	}
	return errors.Join(errs...)
}

// snapshot lets other faults begin and end under one snapshot: two that it
// chooses itself, if there are none beside it.
func snapshot(ctx context.Context, a *act) error {
	begin, cancel := mending(ctx)
	defer cancel()
	conn, err := a.connect(begin, "")
	if err != nil {
		return err
	}
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM fencepost.all_jobs"} {
		if _, err := conn.Exec(begin, sql); err != nil {
			return errors.Join(&failed{sql, err}, conn.Close(begin))
		}
	}
	if a.meanwhile != nil {
		err = a.meanwhile(ctx)
	} else {
		wait(ctx, a.length/5)
		err = a.within(ctx, "snapshot", 2, processes|network)
	}
	mend, cancel := mending(ctx) // that may have been minutes
	defer cancel()
	if _, lost := conn.Exec(mend, "ROLLBACK"); lost != nil {
		err = errors.Join(err, fmt.Errorf("the snapshot was not held to the end: %w", lost))
	}
	return errors.Join(err, conn.Close(mend))
}
