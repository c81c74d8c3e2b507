package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// patience bounds every wait for an event.
const patience = 60 * time.Second

// short is a plan that measures nothing well, and everything.
func short(t *testing.T, dsn string) Plan {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	return Plan{Config: config, Prepare: true, Time: time.Second, Progress: func(string, int, int) {}}
}

func database(t *testing.T) string {
	t.Helper()
	return pgtest.New(t, "fencepost bench", func(context.Context, string) error { return nil })
}

// mustBeClean checks that nothing is left in the database.
func mustBeClean(t *testing.T, dsn string) {
	t.Helper()
	list, err := LeftOvers(t.Context(), pgtest.Conn(t, dsn))
	if err != nil || len(list) > 0 {
		t.Errorf("left over: %v, %v", list, err)
	}
}

// mustBeGone waits for a session to end on the server: it frees its locks then,
// which is some time after its client has hung up.
func mustBeGone(t *testing.T, conn *pgx.Conn, pid uint32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for there := true; there; {
		if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1::int)", pid).Scan(&there); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEverythingIsMeasured(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dsn := database(t)
	seen, err := Run(ctx, short(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	mustBeMeasured(t, seen)
	if seen.Server.Pooled || seen.Server.Version == "" || seen.Server.SynchronousCommit == "" {
		t.Errorf("%+v", seen.Server)
	}
	if seen.SixteenWaits.most() == "" {
		t.Error("no session was seen while 16 clients enqueued")
	}
	for _, v := range Judge(seen) {
		t.Log(v.About, v.Limit, v.Text)
	}
	mustBeClean(t, dsn)
}

// On a machine so busy that the time of a measurement is up when it begins,
// each is made once all the same.
func TestWithoutTime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dsn := database(t)
	plan := short(t, dsn)
	plan.Time = 0
	seen, err := Run(ctx, plan)
	if err != nil {
		t.Fatal(err)
	}
	mustBeMeasured(t, seen)
	mustBeClean(t, dsn)
}

func mustBeMeasured(t *testing.T, seen Seen) {
	t.Helper()
	for _, f := range Figures(seen) {
		if f.N < 1 || f.Plain < 0 || f.Value == "-" {
			t.Errorf("%+v", f)
		}
	}
}

// Whenever it is broken off, nothing is left.
func TestBrokenOff(t *testing.T) {
	t.Parallel()
	for _, m := range measurements {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			reason := errors.New("enough")
			ctx, stop := context.WithCancelCause(ctx)
			dsn := database(t)
			plan := short(t, dsn)
			plan.Progress = func(what string, _, _ int) {
				if what == m.name {
					stop(reason)
				}
			}
			if _, err := Run(ctx, plan); !errors.Is(err, reason) || !strings.Contains(err.Error(), m.name) {
				t.Errorf("%v", err)
			}
			mustBeClean(t, dsn)
		})
	}
}

// A server that does not keep up does not make it last for ever.
func TestOvertime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dsn := database(t)
	plan := short(t, dsn)
	plan.grace = time.Millisecond - plan.Time
	if _, err := Run(ctx, plan); err == nil || !strings.Contains(err.Error(), "not over after 1ms") {
		t.Errorf("%v", err)
	}
	mustBeClean(t, dsn)
}

func TestLeftOvers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dsn := database(t)
	conn := pgtest.Conn(t, dsn)
	live, err := build(ctx, short(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	dead, err := build(ctx, short(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	dead.pool.Close()
	hangUp(dead.keeper)
	mustBeGone(t, conn, dead.keeper.PgConn().PID())
	// Others of such a name: not with our comment, not with our letters.
	for _, sql := range []string{
		`CREATE SCHEMA fencepost_bench_aaaaaaaaaa`,
		`CREATE SCHEMA fencepost_bench_of_mine`, `COMMENT ON SCHEMA fencepost_bench_of_mine IS '` + comment + `'`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, names := range [][]string{{live.schema, dead.schema}, {live.schema}} {
		list, err := Clean(ctx, conn)
		if err != nil || len(list) != len(names) {
			t.Fatalf("%v, %v; want %v", list, err, names)
		}
		for _, l := range list {
			if l.InUse != (l.Schema == live.schema) {
				t.Errorf("%+v; %s is in use", l, live.schema)
			}
		}
	}
	if err := live.strike(); err != nil {
		t.Error(err)
	}
	mustBeClean(t, dsn)
	var others int
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'fencepost\_bench%'`).Scan(&others); err != nil || others != 2 {
		t.Errorf("of the 2 schemas of others %d are left, %v", others, err)
	}
}

// Through PgBouncer in transaction mode it measures what it can, with and
// without a way of its own to listen.
func TestThroughAPooler(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	server := pgtest.Server(t, pg.Options{})
	direct := server.URL("postgres")
	plan := short(t, pgtest.Pooler(t, server, "transaction", 4)("postgres"))
	for _, listens := range []bool{false, true} {
		if listens {
			var err error
			if plan.Listen, err = pgx.ParseConfig(direct); err != nil {
				t.Fatal(err)
			}
		}
		seen, err := Run(ctx, plan)
		if err != nil {
			t.Fatal(err)
		}
		if !seen.Server.Pooled || seen.heard() != listens || (seen.Floor.N > 0) != listens || seen.Drain.N == 0 {
			t.Errorf("with a way to listen: %v: %+v", listens, seen)
		}
		mustBeClean(t, direct)
	}
}

// A role that may not make a schema is told what to do about it.
func TestWithoutTheRight(t *testing.T) {
	t.Parallel()
	const role = "fencepost_test_bench_nobody"
	dsn := database(t)
	if err := pgtest.Roles(t.Context(), dsn, role); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), short(t, pgtest.As(t, dsn, role)))
	if err == nil || !strings.Contains(err.Error(), "GRANT CREATE ON DATABASE") || !strings.Contains(err.Error(), "TO "+role) {
		t.Errorf("%v", err)
	}
}
