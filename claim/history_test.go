package claim_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost/claim"
)

// Workers, the reaper, operators and zombies, which write again about claims
// that they once had, go over the same few jobs from many connections. What
// the tables went through, and what everybody was told, agree: each claim has
// one end, fences only grow, and nothing but a retry brings back a job that has
// ended.
func TestHistoryWithOperators(t *testing.T) {
	t.Parallel()
	const turns = 100
	b := setUp(t)
	if _, err := b.conn.PgConn().Exec(b.ctx, `
		CREATE TABLE history (n bigint GENERATED ALWAYS AS IDENTITY, xact xid8 DEFAULT pg_current_xact_id(),
			what text, id bigint, fence bigint, status text, last_error text);
		GRANT INSERT ON history TO `+role+`;
		CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF TG_OP = 'DELETE' THEN
				INSERT INTO history (what, id, fence, status, last_error)
				VALUES (TG_OP || ' ' || TG_TABLE_NAME, OLD.id, OLD.fence, OLD.status, OLD.last_error);
			ELSE
				INSERT INTO history (what, id, fence, status, last_error)
				VALUES (TG_OP || ' ' || TG_TABLE_NAME, NEW.id, NEW.fence, NEW.status, NEW.last_error);
			END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER record AFTER INSERT OR UPDATE OR DELETE ON fencepost.jobs FOR EACH ROW EXECUTE FUNCTION record();
		CREATE TRIGGER record AFTER INSERT OR DELETE ON fencepost.finished FOR EACH ROW EXECUTE FUNCTION record()`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	b.exec("INSERT INTO {{schema}}.jobs (kind, max_attempts) SELECT 'test', 3 FROM generate_series(1, 40)")

	// What everybody was told.
	var (
		mu     sync.Mutex
		leases []claim.Lease // of all claims, over or not
		stored = make(map[claim.Lease]bool)
		reaped int
		did    = make(map[string]int) // verb and status
	)
	some := func(n int) (picked []claim.Lease) {
		mu.Lock()
		defer mu.Unlock()
		seen := make(map[claim.Lease]bool)
		for range min(n, len(leases)) {
			// Mostly new ones, which may still be held, and some old ones.
			l := leases[len(leases)-1-rand.IntN(min(len(leases), 60))]
			if rand.IntN(4) == 0 {
				l = leases[rand.IntN(len(leases))]
			}
			if !seen[l] {
				seen[l] = true
				picked = append(picked, l)
			}
		}
		return picked
	}
	operate := func(verb string, n int) func(context.Context, *pgx.Conn) error {
		return func(_ context.Context, conn *pgx.Conn) error {
			var ids []int64
			seen := make(map[int64]bool)
			for _, l := range some(n) {
				if !seen[l.ID] {
					seen[l.ID] = true
					ids = append(ids, l.ID)
				}
			}
			answers, err := operators[verb].call(b, conn, ids...)
			mu.Lock()
			defer mu.Unlock()
			for _, d := range answers {
				if d.Done {
					did[verb+" "+d.Status]++
				}
			}
			return err
		}
	}
	loops := map[string]func(context.Context, *pgx.Conn) error{
		"claim": func(ctx context.Context, conn *pgx.Conn) error {
			c, err := b.Claim(ctx, conn, claim.Request{Queue: queue, Limit: 10}, time.Duration(rand.IntN(200)-20)*time.Millisecond, "worker")
			mu.Lock()
			defer mu.Unlock()
			for _, row := range c.Rows {
				leases = append(leases, row.Lease())
			}
			return err
		},
		"finish": func(ctx context.Context, conn *pgx.Conn) error {
			var outcomes []claim.Outcome
			for _, l := range some(8) {
				outcomes = append(outcomes, claim.Outcome{Lease: l, Verb: verbs[rand.IntN(len(verbs))], Error: "said"})
			}
			results, err := b.Finish(ctx, conn, outcomes)
			mu.Lock()
			defer mu.Unlock()
			for i, result := range results {
				if result == claim.Stored {
					stored[outcomes[i].Lease] = true
				}
			}
			return err
		},
		"complete": func(ctx context.Context, conn *pgx.Conn) error {
			for _, l := range some(1) {
				err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return b.CompleteTx(ctx, tx, l) })
				if err == nil {
					mu.Lock()
					stored[l] = true
					mu.Unlock()
				} else if !isLost(err) {
					return err
				}
			}
			return nil
		},
		"extend": func(ctx context.Context, conn *pgx.Conn) error {
			_, err := b.Extend(ctx, conn, some(20), 100*time.Millisecond)
			return err
		},
		"tick": func(ctx context.Context, conn *pgx.Conn) error {
			ticked, err := b.Tick(ctx, conn, claim.TickRequest{Queues: []string{queue}, Reap: true, Own: "own", Token: "token"})
			mu.Lock()
			reaped += ticked.Reaped
			mu.Unlock()
			if err == nil {
				_, err = conn.Exec(ctx, `UPDATE fencepost.jobs SET run_at = clock_timestamp() WHERE id = ANY (ARRAY(
					SELECT id FROM fencepost.jobs WHERE status = 'ready' AND run_at > clock_timestamp() FOR UPDATE SKIP LOCKED))`)
			}
			return err
		},
		"enqueue": func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "INSERT INTO fencepost.jobs (kind, max_attempts) VALUES ('test', 3)")
			return err
		},
		"cancel": operate("cancel", 2), "release": operate("release", 2), "retry": operate("retry", 6), "delete": operate("delete", 1),
	}
	if err := loops["claim"](b.ctx, b.conn); err != nil { // there is something to write about
		t.Fatal(err)
	}
	// It goes on until everything has come to pass that it is about.
	wanted := []string{"cancel running", "cancel ready", "release running", "retry dead", "retry done", "retry cancelled", "delete running"}
	deadline := time.Now().Add(30 * time.Second)
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().After(deadline) || !slices.ContainsFunc(wanted, func(verb string) bool { return did[verb] == 0 })
	}
	group, ctx := errgroup.WithContext(b.ctx)
	for _, turn := range loops {
		for range 2 {
			conn := b.connect()
			group.Go(func() error {
				for n := 0; n < turns || !enough(); n++ {
					if err := turn(ctx, conn); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	expect(b, int64(0), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")

	// Each claim has one end, or none yet.
	running := ask[int](b, "SELECT count(*) FROM {{schema}}.jobs WHERE status = 'running'")
	ends := len(stored) + reaped + did["cancel running"] + did["release running"] + did["delete running"]
	if len(leases) != ends+running {
		t.Errorf("%d claims have had %d ends, and %d are running: %d stored, %d reaped, %v", len(leases), ends, running, len(stored), reaped, did)
	}
	for _, verb := range wanted {
		if did[verb] == 0 {
			t.Errorf("%s never came to pass: the test says little", verb)
		}
	}
	// What came back was retried, and each from a row of its own.
	expect(b, did["retry dead"]+did["retry done"]+did["retry cancelled"], `
		SELECT count(*) FROM (SELECT h.*, row_number() OVER (PARTITION BY id ORDER BY n) AS nth FROM history AS h WHERE what = 'INSERT jobs') AS i
		WHERE nth > 1`)
	expect(b, 0, `SELECT count(*) FROM (SELECT h.*, row_number() OVER (PARTITION BY id ORDER BY n) AS nth FROM history AS h WHERE what = 'INSERT jobs') AS i
		WHERE nth > 1 AND (SELECT count(*) FROM history AS f WHERE f.what = 'DELETE finished' AND f.id = i.id AND f.xact = i.xact) <> 1`)
	// Fences never fall, and grow with each change of state.
	expect(b, 0, `SELECT count(*) FROM (
			SELECT h.*, lag(fence) OVER w AS fence_before, lag(status) OVER w AS status_before
			FROM history AS h WHERE what IN ('INSERT jobs', 'UPDATE jobs') WINDOW w AS (PARTITION BY id ORDER BY n)) AS x
		WHERE fence < fence_before OR fence = fence_before AND status <> status_before`)
	expect(b, 0, `SELECT count(*) FROM history AS f WHERE f.what = 'INSERT finished'
		AND f.fence < (SELECT max(h.fence) FROM history AS h WHERE h.id = f.id AND h.n < f.n)`)
	// No claim ended twice, and what operators cancelled is under no claim's fence.
	expect(b, 0, "SELECT count(*) FROM (SELECT FROM history WHERE what = 'INSERT finished' GROUP BY id, fence HAVING count(*) > 1) AS x")
	expect(b, did["cancel running"]+did["cancel ready"]+did["cancel scheduled"]+did["cancel retrying"],
		"SELECT count(*) FROM history WHERE what = 'INSERT finished' AND status = 'cancelled' AND last_error = 'cancelled by an operator'")
}
