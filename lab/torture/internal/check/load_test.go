package check

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
	statements "github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
	"github.com/fencepost-go/fencepost/migrations"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// furnished is a connection to a database as a run has it.
func furnished(t *testing.T) *pgx.Conn {
	t.Helper()
	return pgtest.Conn(t, pgtest.New(t, "check", func(ctx context.Context, dsn string) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		if _, err := migrations.Up(ctx, conn, fencepost.DefaultSchema); err != nil {
			return err
		}
		_, err = conn.Exec(ctx, script.Business+witness.SQL+`INSERT INTO fencepost.queues (name, keep) VALUES ('bin', '0')`)
		return err
	}))
}

// What a server and its witness say of the ways that a job goes is understood.
func TestTheWitnessOfARealServer(t *testing.T) {
	ctx := t.Context()
	conn := furnished(t)
	table := statements.In(fencepost.DefaultSchema)
	dir := t.TempDir()
	w, err := history.Create(dir, "nobody")
	must(t, err)
	w.Write(history.Event{Op: history.Hello})
	must(t, w.Close())

	enqueue := func(token, queue string, max int) (id int64) {
		must(t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO shop.orders (token, via) VALUES ($1, 'test')`, token); err != nil {
				return err
			}
			return tx.QueryRow(ctx, `INSERT INTO fencepost.jobs (kind, queue, payload, max_attempts)
				VALUES ('short', $2, jsonb_build_object('token', $1::text), $3) RETURNING id`, token, queue, max).Scan(&id)
		}))
		return id
	}
	take := func(queue string, lease time.Duration) statements.Lease {
		claimed, err := table.Claim(ctx, conn, statements.Request{Queue: queue, Limit: 1}, lease, "somebody")
		must(t, err)
		if len(claimed.Rows) != 1 {
			t.Fatalf("claimed %d jobs of %s", len(claimed.Rows), queue)
		}
		return claimed.Rows[0].Lease()
	}
	finish := func(l statements.Lease, verb statements.Verb) {
		results, err := table.Finish(ctx, conn, []statements.Outcome{{Lease: l, Verb: verb, Error: "as planned"}})
		must(t, err)
		if results[0] != statements.Stored {
			t.Fatalf("%s of %v: %v", verb, l, results)
		}
	}
	reap := func(queue string) {
		_, err := table.Tick(ctx, conn, statements.TickRequest{Queues: []string{queue}, Reap: true, Own: "own", Token: "t"})
		must(t, err)
		_, err = conn.Exec(ctx, `UPDATE fencepost.jobs SET run_at = clock_timestamp() WHERE status = 'ready' AND queue = $1`, queue)
		must(t, err)
	}
	operate := func(do func(context.Context, statements.DB, []int64) ([]statements.Did, error), id int64) {
		did, err := do(ctx, conn, []int64{id})
		must(t, err)
		if !did[0].Done {
			t.Fatalf("%+v", did)
		}
	}

	id := enqueue("a", script.Main, 9)
	for _, verb := range []statements.Verb{statements.Retry, statements.Snooze, statements.Return, statements.Release} {
		finish(take(script.Main, time.Hour), verb)
	}
	take(script.Main, time.Hour)
	operate(table.Release, id)
	l := take(script.Main, time.Hour)
	_, err = table.Extend(ctx, conn, []statements.Lease{l}, 2*time.Hour)
	must(t, err)
	must(t, table.Progress(ctx, conn, l, []byte(`{}`)))
	finish(l, statements.Done)
	operate(table.Retry, id)
	take(script.Main, time.Microsecond)
	reap(script.Main)
	l = take(script.Main, time.Hour)
	must(t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO shop.effects (token, job, fence) VALUES ('a', $1, $2)`, l.ID, l.Fence); err != nil {
			return err
		}
		return table.CompleteTx(ctx, tx, l)
	}))
	operate(table.Delete, id)

	enqueue("b", script.Side, 1)
	take(script.Side, time.Microsecond)
	reap(script.Side)
	operate(table.Cancel, enqueue("c", script.Side, 3))
	enqueue("d", script.Bin, 3)
	finish(take(script.Bin, time.Hour), statements.Done)
	operate(table.Delete, enqueue("e", script.Bin, 3))

	in, err := Load(ctx, conn, dir)
	must(t, err)
	ix := newIndex(in)
	want := map[string][]what{
		"a": {
			inserted, claimed, failed, claimed, snoozed, claimed, returned, claimed, released, claimed, released,
			claimed, extended, noted, ended, retried, claimed, reaped, noted, claimed, ended, forgotten,
		},
		"b": {inserted, claimed, buried},
		"c": {inserted, cancelled},
		"d": {inserted, claimed, removed},
		"e": {inserted, removed},
	}
	for token, want := range want {
		var got []what
		for _, c := range ix.byToken[token][0].changes {
			got = append(got, c.what)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v, want %v", token, got, want)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", token, got, want)
				break
			}
		}
	}
	// Nobody has written down that he did any of this; but what the tables say of
	// each other is right.
	for _, f := range Check(in) {
		if n := f.Invariant; f.Violations > 0 && (n == 2 || n == 3 || n == 4 || n == 7 || n == 9) {
			say(t, []Finding{f})
			t.Errorf("%d is violated", n)
		}
	}
	if len(in.Final) != 2 || len(in.Orders) != 5 || len(in.Effects) != 1 {
		t.Errorf("loaded %d jobs, %d orders, %d effects", len(in.Final), len(in.Orders), len(in.Effects))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
