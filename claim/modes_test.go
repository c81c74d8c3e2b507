package claim_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// connectIn connects with a query execution mode of pgx, as connect does.
func (b *bench) connectIn(mode pgx.QueryExecMode) *pgx.Conn {
	b.t.Helper()
	config, err := pgx.ParseConfig(pgtest.As(b.t, b.dsn, role))
	if err != nil {
		b.t.Fatal(err)
	}
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(b.ctx, config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

// The whole life of jobs by every call, in every execution mode of pgx and in
// a schema whose name has to be quoted.
func TestEveryCallInEveryMode(t *testing.T) {
	t.Parallel()
	healthy := setUpIn(t, awkward)
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			b := healthy.fresh(t)
			b.conn = b.connectIn(mode)
			const payload = `{"a": 9223372036854775807, "b": "\u00e9 '\"\\ 🙂", "c": [null, true, -1.50]}`
			id := b.insertOne("priority, payload, max_attempts", "-1, '"+`{"a": 9223372036854775807, "b": "\u00e9 ''\"\\ 🙂", "c": [null, true, -1.50]}`+"', 9")

			// Twice, so that cached statements are used as well.
			for attempt := 1; attempt <= 2; attempt++ {
				for _, kinds := range [][]string{{}, {"other"}} {
					c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Kinds: kinds, Limit: 5}, lease, "worker")
					if err != nil || len(c.Rows) != 0 || c.HasNext {
						t.Fatalf("kinds %v: %+v, %v", kinds, c, err)
					}
				}
				c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Kinds: []string{"a", "test"}, Limit: 5}, lease, "worker")
				if err != nil || len(c.Rows) != 1 {
					t.Fatal(c, err)
				}
				row := c.Rows[0]
				if row.ID != id || row.Attempt != attempt || row.MaxAttempts != 9 || row.Priority != -1 || row.Kind != "test" || row.Queue != queue || row.Fence < 1e15 {
					t.Errorf("claimed %+v", row)
				}
				if want := ask[string](b, "SELECT $1::text::jsonb::text", payload); string(row.Payload) != want {
					t.Errorf("payload %s, want %s", row.Payload, want)
				}
				if attempt == 1 && row.Progress != nil || attempt == 2 && string(row.Progress) != `{"n": 18446744073709551615}` {
					t.Errorf("attempt %d: progress %s", attempt, row.Progress)
				}
				if err := b.Progress(b.ctx, b.conn, row.Lease(), json.RawMessage(`{"n": 18446744073709551615}`)); err != nil {
					t.Fatal(err)
				}
				gone := claim.Lease{ID: 1, Fence: 1}
				if lost, err := b.Extend(b.ctx, b.conn, []claim.Lease{row.Lease(), gone}, lease); err != nil || !slices.Equal(lost, []claim.Loss{{Lease: gone, Reason: claim.ReasonGone}}) {
					t.Errorf("extend: lost %v, %v", lost, err)
				}
				b.expire("id = $1::bigint", id)
				ticked := b.tick()
				if ticked.Reaped != 1 || len(ticked.Next) != 1 {
					t.Errorf("tick: %+v", ticked)
				}
				b.finish(claim.Lost, claim.Outcome{Lease: row.Lease(), Verb: claim.Done})
				b.makeDue()
			}

			b.insert(len(verbs))
			var outcomes []claim.Outcome
			for i, row := range b.take(1+len(verbs), lease)[1:] {
				outcomes = append(outcomes, claim.Outcome{Lease: row.Lease(), Verb: verbs[i], Delay: time.Hour, Error: `{",'é"}`})
			}
			for _, want := range []claim.Result{claim.Stored, claim.Lost} {
				results, err := b.Finish(b.ctx, b.conn, outcomes)
				if err != nil || results[1] != want {
					t.Fatal(results, err)
				}
			}
			if results, err := b.Finish(b.ctx, b.conn, nil); err != nil || results != nil {
				t.Error(results, err)
			}

			held, err := b.Get(b.ctx, b.conn, id)
			if err != nil || held.Status != "running" || held.Fence == 0 || held.LeaseUntil.IsZero() {
				t.Fatal(held, err)
			}
			tx := b.openIn(mode)
			if err := b.CompleteTx(b.ctx, tx, claim.Lease{ID: id, Fence: held.Fence}); err != nil {
				t.Error(err)
			}
			b.commit(tx)
			db := stdlib.OpenDB(*b.conn.Config())
			defer db.Close()
			sqlTx, err := db.BeginTx(b.ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.CompleteSQLTx(b.ctx, sqlTx, claim.Lease{ID: id, Fence: held.Fence}); err != nil {
				t.Error(err)
			}
			if err := b.CompleteSQLTx(b.ctx, sqlTx, claim.Lease{ID: id, Fence: 1}); !isLost(err) {
				t.Error(err)
			}
			if err := sqlTx.Commit(); err != nil {
				t.Error(err)
			}
			done, err := b.Get(b.ctx, b.conn, id)
			if err != nil || done.Status != "done" || done.FinishedAt.IsZero() || string(done.Progress) != `{"n": 18446744073709551615}` {
				t.Errorf("got %+v, %v", done, err)
			}
			b.exec("UPDATE {{schema}}.finished SET keep_until = clock_timestamp() - interval '1 hour'")
			if n, err := b.Prune(b.ctx, b.conn); err != nil || n != 4 {
				t.Errorf("pruned %d, %v", n, err)
			}
			filter := claim.Filter{Queue: queue, Kind: "test"}
			if list, err := b.List(b.ctx, b.conn, filter); err != nil || len(list) != 4 {
				t.Errorf("listed %d, %v", len(list), err)
			}
			if ids, err := b.IDs(b.ctx, b.conn, filter, 0); err != nil || len(ids) != 4 {
				t.Errorf("ids %v, %v", ids, err)
			}
			if n, err := b.Count(b.ctx, b.conn, filter); err != nil || n != 4 {
				t.Errorf("counted %d, %v", n, err)
			}

			for range 2 {
				b := b.fresh(t)
				b.inState(7, "running")
				for _, step := range []string{"release running", "cancel ready", "retry cancelled", "delete ready"} {
					verb, status, _ := strings.Cut(step, " ")
					b.operate(verb, 7, "done", status)
				}
				gone := claim.Lease{ID: 7, Fence: 1}
				if lost, err := b.Check(b.ctx, b.conn, []claim.Lease{gone}); err != nil || !slices.Equal(lost, []claim.Loss{{Lease: gone, Reason: claim.ReasonGone}}) {
					t.Errorf("check: lost %v, %v", lost, err)
				}
				b.pause(queue)
				if err := b.SetKeep(b.ctx, b.conn, queue, time.Hour); err != nil {
					t.Error(err)
				}
				if queues, err := b.Queues(b.ctx, b.conn); err != nil || len(queues) != 1 || queues[0].PausedAt.IsZero() || queues[0].Keep != time.Hour {
					t.Errorf("queues %v, %v", queues, err)
				}
				b.resume(queue)
				if _, err := b.Register(b.ctx, b.conn, claim.Worker{ID: "w", Kinds: []string{"a,b"}, Queues: map[string]int{queue: 1}}, true); err != nil {
					t.Error(err)
				}
				if workers, err := b.Workers(b.ctx, healthy.conn); err != nil || len(workers) != 1 || workers[0].State != claim.WorkerLive || !slices.Equal(workers[0].Kinds, []string{"a,b"}) {
					t.Errorf("workers %+v, %v", workers, err)
				}
				if workers, err := b.Workers(b.ctx, b.conn); err != nil || len(workers) != 1 {
					t.Errorf("workers %+v, %v", workers, err)
				}
			}
		})
	}
}

func (b *bench) openIn(mode pgx.QueryExecMode) pgx.Tx {
	b.t.Helper()
	tx, err := b.connectIn(mode).Begin(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return tx
}

// The rows of a claim arrive before its commit is confirmed. A commit that
// fails hands out nothing, in every mode; the same for outcomes.
func TestNothingCountsBeforeTheCommit(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(1)
	row := b.takeOne(lease)
	b.insert(3)
	if _, err := b.conn.PgConn().Exec(b.ctx, `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION 'refused at commit' USING ERRCODE = '40001';
		END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE OR DELETE ON fencepost.jobs
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	for _, mode := range modes {
		conn := b.connectIn(mode)
		c, err := b.Claim(b.ctx, conn, claim.Request{Queue: queue, Limit: 5}, lease, "worker")
		wantKind(t, err, claim.ErrTryAgain, "claim")
		if len(c.Rows) != 0 {
			t.Errorf("%s: the claim handed out %d jobs", mode, len(c.Rows))
		}
		results, err := b.Finish(b.ctx, conn, []claim.Outcome{{Lease: row.Lease(), Verb: claim.Done}})
		wantKind(t, err, claim.ErrTryAgain, "finish")
		if results != nil {
			t.Errorf("%s: outcomes %v", mode, results)
		}
		_, err = b.Extend(b.ctx, conn, []claim.Lease{row.Lease()}, lease)
		wantKind(t, err, claim.ErrTryAgain, "extend")
		if conn.IsClosed() {
			t.Errorf("%s: the connection did not survive", mode)
		}
	}
	expect(b, int64(3), "SELECT count(*) FROM {{schema}}.jobs WHERE status = 'ready'")
}

// B132: what is due, and for how long, does not depend on a session's zone.
func TestTimeZonesDoNotMatter(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, zone := range []string{"UTC", "Asia/Tokyo", "America/New_York", "Asia/Kathmandu"} {
		for _, mode := range modes {
			b := b.fresh(t)
			b.conn = b.connectIn(mode)
			b.exec("SELECT set_config('timezone', $1::text, false)", zone)
			b.insertOne("run_at, created_at", "'2024-11-03 05:30:00Z', '2024-03-10 02:30:00-08'")
			row := b.takeOne(lease)
			if want := time.Date(2024, 11, 3, 5, 30, 0, 0, time.UTC); !row.RunAt.Equal(want) {
				t.Errorf("%s, %s: due at %s, want %s", zone, mode, row.RunAt, want)
			}
			if want := time.Date(2024, 3, 10, 10, 30, 0, 0, time.UTC); !row.CreatedAt.Equal(want) {
				t.Errorf("%s, %s: created at %s, want %s", zone, mode, row.CreatedAt, want)
			}
			b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: claim.Retry, Delay: time.Hour})
			c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 1}, lease, "worker")
			if err != nil || !c.HasNext || c.Next > time.Hour || c.Next < 59*time.Minute {
				t.Errorf("%s, %s: next in %s, %v", zone, mode, c.Next, err)
			}
			if next := b.tick().Next[queue]; next > time.Hour || next < 59*time.Minute {
				t.Errorf("%s, %s: the tick says in %s", zone, mode, next)
			}
			// Defaults of a plain INSERT: now, whatever now is called here.
			b.insert(1)
			fresh, now := b.takeOne(lease), ask[time.Time](b, "SELECT clock_timestamp()")
			if age := now.Sub(fresh.RunAt); age.Abs() > time.Minute {
				t.Errorf("%s, %s: a new job is %s old", zone, mode, age)
			}
			if age := now.Sub(fresh.CreatedAt); age.Abs() > time.Minute {
				t.Errorf("%s, %s: a new job was created %s ago", zone, mode, age)
			}
		}
	}
}
