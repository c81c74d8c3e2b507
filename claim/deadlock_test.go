package claim_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost/claim"
)

// B6: claims, outcomes, extensions, the reaper, the clean-up, progress,
// completions in transactions and the deaths of their worker go over the same few rows from many connections,
// each in an order of its own. None of them ever fails: there is no deadlock,
// and nobody waits for long.
func TestNoLoopsDeadlock(t *testing.T) {
	t.Parallel()
	const turns = 120
	b := setUp(t)
	b.exec("INSERT INTO {{schema}}.queues VALUES ('default', '1 microsecond')")
	b.exec("INSERT INTO {{schema}}.jobs (kind, max_attempts) SELECT 'test', 2147483647 FROM generate_series(1, 300)")

	// held reads which claims there are, so that the loops share them.
	held := func(ctx context.Context, conn *pgx.Conn) ([]claim.Lease, error) {
		rows, err := conn.Query(ctx, "SELECT id, fence FROM fencepost.jobs WHERE status = 'running'")
		if err != nil {
			return nil, err
		}
		leases, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claim.Lease])
		rand.Shuffle(len(leases), func(i, j int) { leases[i], leases[j] = leases[j], leases[i] })
		return leases, err
	}
	someEnd := func(leases []claim.Lease) []claim.Outcome {
		outcomes := make([]claim.Outcome, min(len(leases), 60))
		for i := range outcomes {
			outcomes[i] = claim.Outcome{Lease: leases[i], Verb: verbs[rand.IntN(len(verbs))]}
		}
		return outcomes
	}
	loops := map[string]func(ctx context.Context, conn *pgx.Conn) error{
		"claim": func(ctx context.Context, conn *pgx.Conn) error {
			// Some leases are over at once.
			_, err := b.Claim(ctx, conn, claim.Request{Queue: queue, Limit: 40}, time.Duration(rand.IntN(20)-5)*time.Millisecond, "worker")
			return err
		},
		"finish": func(ctx context.Context, conn *pgx.Conn) error {
			leases, err := held(ctx, conn)
			if err != nil {
				return err
			}
			_, err = b.Finish(ctx, conn, someEnd(leases))
			return err
		},
		"exchange": func(ctx context.Context, conn *pgx.Conn) error {
			leases, err := held(ctx, conn)
			if err != nil {
				return err
			}
			_, _, err = b.Exchange(ctx, conn, someEnd(leases), []claim.Request{{Queue: queue, Limit: 40}}, 10*time.Millisecond, "worker")
			return err
		},
		"extend": func(ctx context.Context, conn *pgx.Conn) error {
			leases, err := held(ctx, conn)
			if err != nil {
				return err
			}
			_, err = b.Extend(ctx, conn, leases, 5*time.Millisecond)
			return err
		},
		"tick": func(ctx context.Context, conn *pgx.Conn) error {
			var dead []claim.Suspect
			var suspect claim.Suspect
			err := conn.QueryRow(ctx, "SELECT worker_id, lock_key FROM fencepost.workers").Scan(&suspect.Worker, &suspect.Key)
			if err == nil {
				dead = append(dead, suspect)
			} else if !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			_, err = b.Tick(ctx, conn, claim.TickRequest{
				Queues: []string{queue}, Reap: true, Worker: "watcher", Dead: dead, Own: "own", Token: "token",
			})
			return err
		},
		"register": func(ctx context.Context, conn *pgx.Conn) error {
			if _, err := b.Register(ctx, conn, claim.Worker{ID: "worker"}, true); err != nil {
				return err
			}
			// It is dead already, and has been for long.
			_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock_all(); UPDATE fencepost.workers SET written_at = clock_timestamp() - interval '1 hour'")
			return err
		},
		"sweep": func(ctx context.Context, conn *pgx.Conn) error {
			_, err := b.Sweep(ctx, conn)
			return err
		},
		"prune": func(ctx context.Context, conn *pgx.Conn) error {
			_, err := b.Prune(ctx, conn)
			return err
		},
		"complete": func(ctx context.Context, conn *pgx.Conn) error {
			leases, err := held(ctx, conn)
			if err != nil || len(leases) == 0 {
				return err
			}
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				if err := b.CompleteTx(ctx, tx, leases[0]); !isLost(err) {
					return err
				}
				return nil
			})
		},
		"progress": func(ctx context.Context, conn *pgx.Conn) error {
			leases, err := held(ctx, conn)
			if err != nil || len(leases) == 0 {
				return err
			}
			if err := b.Progress(ctx, conn, leases[0], json.RawMessage(`{}`)); !isLost(err) {
				return err
			}
			return nil
		},
		"check": func(ctx context.Context, conn *pgx.Conn) error {
			leases, err := held(ctx, conn)
			if err == nil {
				_, err = b.Check(ctx, conn, leases)
			}
			return err
		},
		"enqueue": func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `INSERT INTO fencepost.jobs (kind, max_attempts) SELECT 'test', 2147483647 FROM generate_series(1, 20);
				UPDATE fencepost.jobs SET run_at = clock_timestamp() WHERE id = ANY (ARRAY(
					SELECT id FROM fencepost.jobs WHERE status = 'ready' AND run_at > clock_timestamp() FOR UPDATE SKIP LOCKED))`)
			return err
		},
	}
	for verb, operator := range operators {
		loops[verb] = func(ctx context.Context, conn *pgx.Conn) error {
			var ids []int64
			if err := conn.QueryRow(ctx, "SELECT coalesce(array_agg(id ORDER BY random()), '{}') FROM (SELECT DISTINCT id FROM (SELECT id FROM fencepost.all_jobs ORDER BY random() LIMIT 30) AS y) AS x").Scan(&ids); err != nil {
				return err
			}
			if verb == "delete" {
				ids = ids[:min(len(ids), 1)] // or nothing would be left
			}
			_, err := operator.call(b, conn, ids...)
			return err
		}
	}
	group, ctx := errgroup.WithContext(b.ctx)
	for name, turn := range loops {
		for range 2 {
			conn := b.connect()
			group.Go(func() error {
				defer conn.Close(ctx)
				for range turns {
					if err := turn(ctx, conn); err != nil {
						return errors.Join(errors.New(name), err)
					}
				}
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	expect(b, int64(0), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
	expect(b, true, "SELECT count(*) > 1000 FROM (SELECT id FROM {{schema}}.jobs UNION ALL SELECT id FROM {{schema}}.finished) AS x")
}

// The guard of the test above: two calls with the same outcomes in different
// order, if they waited for rows in the order given, would wait for each other.
func TestSkippingIsWhatPreventsADeadlock(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		stuck bool
	}{
		"as it is":               {nil, false},
		"waits, as the call has": {[]string{"FROM rest AS r ORDER BY r.id", "FROM rest AS r ORDER BY r.n", "FOR UPDATE SKIP LOCKED\n    ) AS j", "FOR UPDATE\n    ) AS j"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLFinish, test.edits...))
			b.insert(2)
			rows := b.take(2, lease)
			one := claim.Outcome{Lease: rows[0].Lease(), Verb: claim.Done}
			two := claim.Outcome{Lease: rows[1].Lease(), Verb: claim.Done}

			// By Exchange, which does not try again what has waited.
			finish := func(db claim.DB, outcomes ...claim.Outcome) ([]claim.Result, error) {
				results, _, err := b.Exchange(b.ctx, db, outcomes, nil, lease, "worker")
				return results, err
			}
			tx, other := b.open(), b.connect()
			if results, err := finish(tx, two); err != nil || results[0] != claim.Stored {
				t.Fatal(results, err)
			}
			waiting := answerOrWait(b, other, func() ([]claim.Result, error) { return finish(other, one, two) })
			_, err := finish(tx, one)
			b.rollback(tx)
			got := <-waiting
			if stuck := err != nil || got.err != nil; stuck != test.stuck {
				t.Errorf("one got %v, the other %v", err, got.err)
			}
		})
	}
}
