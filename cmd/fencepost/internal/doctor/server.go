package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Versions of the server that the project is tested with.
const oldestServer, newestServer = 14, 18

// reachable connects and measures a round trip, the shortest of three. The
// first line of the report; without it there are no others.
func reachable(ctx context.Context, e *exam) (Finding, error) {
	unreachable := func(err error) (Finding, error) {
		return but(Fail, nil, oneLine(err), "see whether the server runs, and whether host, port, user, password and database are right"),
			fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	conn, err := e.connection(ctx)
	if err != nil {
		return unreachable(err)
	}
	trip := time.Hour
	var pid uint32
	for range 3 {
		ctx, cancel := context.WithTimeout(ctx, answerLimit)
		start := time.Now()
		err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
		trip = min(trip, time.Since(start))
		cancel()
		if err != nil {
			return unreachable(err)
		}
	}
	pooled, through := pid != conn.PgConn().PID(), ""
	if pooled {
		through = ", through a pooler"
	}
	return ok(figures{"round_trip_ms": millis(trip), "pooled": pooled}, "a round trip takes %.1f ms%s", millis(trip), through), nil
}

// oneLine is an error on one line. pgx puts each address that it has tried on a
// line of its own, and there the reason is; it tries some twice, with and
// without TLS.
func oneLine(err error) string {
	return strings.Join(slices.Compact(strings.Split(err.Error(), "\n\t")), " ")
}

func version(ctx context.Context, e *exam) ([]Finding, error) {
	v, err := askOne[struct {
		Number int
		Name   string
	}](ctx, e, "SELECT current_setting('server_version_num')::int, current_setting('server_version')")
	if err != nil {
		return nil, err
	}
	return []Finding{judgeVersion(v.Number, v.Name)}, nil
}

func judgeVersion(number int, name string) Finding {
	f := figures{"server_version_num": number}
	switch major := number / 10000; {
	case major < oldestServer:
		return but(Fail, f, fmt.Sprintf("PostgreSQL %s is older than %d", name, oldestServer),
			fmt.Sprintf("move to PostgreSQL %d to %d", oldestServer, newestServer))
	case major > newestServer:
		return but(Warn, f, fmt.Sprintf("PostgreSQL %s is newer than what this program was tested with", name),
			"see whether there is a newer fencepost")
	default:
		return ok(f, "PostgreSQL %s", name)
	}
}

// writable asks for what the session began with: the transaction of the
// question reads only.
func writable(ctx context.Context, e *exam) ([]Finding, error) {
	s, err := askOne[struct{ Recovery, ReadOnly bool }](ctx, e, `
		SELECT pg_is_in_recovery(), reset_val = 'on' FROM pg_settings WHERE name = 'default_transaction_read_only'`)
	if err != nil {
		return nil, err
	}
	f := figures{"in_recovery": s.Recovery, "default_read_only": s.ReadOnly}
	switch {
	case s.Recovery:
		return []Finding{but(Fail, f, "this server is in recovery, a standby: nothing can be enqueued or claimed on it",
			"connect to the primary; with several hosts in the URL add target_session_attrs=read-write")}, nil
	case s.ReadOnly:
		return []Finding{but(Fail, f, "default_transaction_read_only is on: nothing can be claimed",
			"set it to off for this role and database; after a failover, connect to the new primary")}, nil
	default:
		return []Finding{ok(f, "the server takes writes")}, nil
	}
}

// connections are counted by the statistics of each database, which every role
// may read.
func connections(ctx context.Context, e *exam) ([]Finding, error) {
	c, err := askOne[struct{ Limit, Used int }](ctx, e, `
		SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
		           - coalesce(current_setting('reserved_connections', true)::int, 0),
		       (SELECT coalesce(sum(numbackends), 0)::int FROM pg_stat_database)`)
	if err != nil {
		return nil, err
	}
	f := figures{"used": c.Used, "limit": c.Limit}
	if c.Used*10 >= c.Limit*9 {
		return []Finding{but(Warn, f, fmt.Sprintf("%d of %d connections are in use", c.Used, c.Limit),
			"make pools smaller, raise max_connections, or put a pooler in front; each worker process needs 3 besides its pool")}, nil
	}
	return []Finding{ok(f, "%d of %d connections are in use", c.Used, c.Limit)}, nil
}
