package crew

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// tables gives the test Fencepost's tables and a floor on them, with so many
// jobs.
func tables(t *testing.T, jobs int) (*pgx.Conn, *floor) {
	t.Helper()
	dsn := pgtest.New(t, "bench", func(context.Context, string) error { return nil })
	q := &floor{}
	t.Cleanup(q.Close)
	if _, err := q.Open(t.Context(), wire.Options{DSN: dsn, Best: true}); err != nil {
		t.Fatal(err)
	}
	many := make([]Job, jobs)
	for i := range many {
		many[i] = Job{N: i, Payload: payload(i, 200)}
	}
	if err := q.Copy(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	return pgtest.Conn(t, dsn), q
}

// A floor that reads all of the table, or joins by comparing each with each,
// would be no floor.
func TestFloorPlans(t *testing.T) {
	t.Parallel()
	conn, _ := tables(t, 20_000)
	for _, state := range []string{"just loaded", "analysed"} {
		for _, s := range []struct{ sql, arguments string }{
			{floorClaim, `'default', 500`},
			{floorDelete, `'{}', '{}'`},
			{floorMove, `'{}', '{}'`},
			{floorAgain, `'{}', '{}', '{}'`},
		} {
			plan := explain(t, conn, s.sql, s.arguments)
			for _, bad := range []string{"Seq Scan on jobs", "Hash", "Merge", "Sort", "Materialize"} {
				if strings.Contains(plan, bad) {
					t.Errorf("%s: %s in\n%s", state, bad, plan)
				}
			}
		}
		if _, err := conn.Exec(t.Context(), "ANALYZE"); err != nil {
			t.Fatal(err)
		}
	}
}

// explain returns the plan that the floor's connections keep.
func explain(t *testing.T, conn *pgx.Conn, sql, arguments string) (plan string) {
	t.Helper()
	results, err := conn.PgConn().Exec(t.Context(), "SET plan_cache_mode = force_generic_plan; PREPARE p AS "+sql+
		"; EXPLAIN EXECUTE p ("+arguments+"); DEALLOCATE p").ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range results[2].Rows {
		plan += string(row[0]) + "\n"
	}
	return plan
}

// A completion under a fence that is not the job's stores nothing, and is told.
func TestFloorIsFenced(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		finish string
		err    error
	}{{floorDelete, nil}, {floorMove, nil}, {floorDelete, Retry{}}} {
		conn, q := tables(t, 2)
		q.finish = c.finish
		batch, err := q.turn(t.Context(), conn, nil, fencepost.DefaultQueue, 2)
		if err != nil || len(batch) != 2 {
			t.Fatalf("%d claimed, %v", len(batch), err)
		}
		batch[0].err, batch[1].err = c.err, c.err
		batch[0].fence--
		_, err = q.turn(t.Context(), conn, batch, fencepost.DefaultQueue, 0)
		if err == nil || !strings.Contains(err.Error(), "1 of 2 outcomes stored") {
			t.Errorf("outcome %v: %v\n%s", c.err, err, c.finish)
		}
	}
}
