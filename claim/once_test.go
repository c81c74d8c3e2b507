package claim_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost/claim"
)

// 16 connections take 20,000 jobs and end them: each job is claimed by exactly
// one, and ends exactly once.
func TestEachJobIsClaimedAndFinishedOnce(t *testing.T) {
	t.Parallel()
	const connections, jobs = 16, 20_000
	rounds := 3
	if os.Getenv("FENCEPOST_LONG") != "" {
		rounds = 50
	}
	whole := setUp(t)
	for range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // each round is bounded by itself
		defer cancel()
		whole.ctx = ctx
		b := whole.fresh(t)
		b.insert(jobs)
		var mu sync.Mutex
		claimed, stored := make(map[int64]int), 0
		group, ctx := errgroup.WithContext(b.ctx)
		for i := range connections {
			conn := b.connect()
			group.Go(func() error {
				defer conn.Close(ctx)
				for {
					// Sizes that differ let claims and outcomes overlap anyhow.
					taken, err := b.Claim(ctx, conn, claim.Request{Queue: queue, Limit: 50 + 3*i}, lease, "worker")
					if err != nil || len(taken.Rows) == 0 {
						return err
					}
					ended, err := finishAll(ctx, b.Table, conn, taken.Rows)
					if err != nil {
						return err
					}
					mu.Lock()
					for _, row := range taken.Rows {
						claimed[row.ID]++
					}
					stored += ended
					mu.Unlock()
				}
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		for id, n := range claimed {
			if n != 1 {
				t.Errorf("job %d was claimed %d times", id, n)
			}
		}
		if len(claimed) != jobs || stored != jobs {
			t.Fatalf("of %d jobs %d were claimed and %d stored", jobs, len(claimed), stored)
		}
		expect(b, int64(0), "SELECT count(*) FROM {{schema}}.jobs")
		expect(b, int64(jobs), "SELECT count(*) FROM {{schema}}.finished WHERE status = 'done' AND attempts = 1")
		expect(b, int64(jobs), "SELECT count(DISTINCT id) FROM {{schema}}.finished")
	}
}

// finishAll ends claims as done, sending again what was busy, and returns how
// many were stored.
func finishAll(ctx context.Context, table *claim.Table, conn *pgx.Conn, rows []claim.Row) (stored int, err error) {
	outcomes := make([]claim.Outcome, len(rows))
	for i, row := range rows {
		outcomes[i] = claim.Outcome{Lease: row.Lease(), Verb: claim.Done}
	}
	for len(outcomes) > 0 {
		results, err := table.Finish(ctx, conn, outcomes)
		if err != nil {
			return stored, err
		}
		var busy []claim.Outcome
		for i, result := range results {
			switch result {
			case claim.Stored:
				stored++
			case claim.Busy:
				busy = append(busy, outcomes[i])
			}
		}
		outcomes = busy
	}
	return stored, nil
}

// Where the role's default is a stricter isolation, statements that meet are
// told to try again, and no job is claimed twice or lost all the same.
func TestStricterIsolationIsSafe(t *testing.T) {
	t.Parallel()
	const jobs = 300
	whole := setUp(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			b := whole.fresh(t)
			b.insert(jobs)
			var mu sync.Mutex
			claimed := make(map[int64]int)
			group, ctx := errgroup.WithContext(b.ctx)
			for range 4 {
				conn := b.connect()
				group.Go(func() error {
					if _, err := conn.Exec(ctx, "SELECT set_config('default_transaction_isolation', $1::text, false)", level); err != nil {
						return err
					}
					again := func(call func() error) error {
						for {
							if err := call(); !errors.Is(err, claim.ErrTryAgain) {
								return err
							}
						}
					}
					for {
						var taken claim.Claimed
						err := again(func() (err error) {
							taken, err = b.Claim(ctx, conn, claim.Request{Queue: queue, Limit: 10}, lease, "worker")
							return err
						})
						if err != nil || len(taken.Rows) == 0 {
							return err
						}
						mu.Lock()
						for _, row := range taken.Rows {
							claimed[row.ID]++
						}
						mu.Unlock()
						if err := again(func() error {
							_, err := finishAll(ctx, b.Table, conn, taken.Rows)
							return err
						}); err != nil {
							return err
						}
					}
				})
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			for id, n := range claimed {
				if n != 1 {
					t.Errorf("job %d was claimed %d times", id, n)
				}
			}
			if len(claimed) != jobs {
				t.Errorf("%d of %d jobs were claimed", len(claimed), jobs)
			}
			expect(b, int64(jobs), "SELECT count(*) FROM {{schema}}.finished")
		})
	}
}

// The claim of the first story, in which only the sub-select looks at the
// state and nothing is locked, is given a job that another claim has taken
// since it looked. Either guard alone prevents it.
func TestTwoClaimsNeverShareAJob(t *testing.T) {
	t.Parallel()
	unlocked := []string{"\n            FOR NO KEY UPDATE SKIP LOCKED", ""}
	unchecked := []string{"\n  AND j.status = 'ready'\nRETURNING", "\nRETURNING"}
	b := setUp(t)
	second := b.connect()
	for name, test := range map[string]struct {
		edits []string
		twice bool
	}{
		"as it is":         {nil, false},
		"no lock":          {unlocked, false},
		"no second look":   {unchecked, false},
		"neither (broken)": {append(unlocked, unchecked...), true},
	} {
		t.Run(name, func(t *testing.T) {
			b := b.fresh(t)
			b.insert(1)
			first := b.open()
			mine, err := b.Claim(b.ctx, first, claim.Request{Queue: queue, Limit: 1}, lease, "first")
			if err != nil || len(mine.Rows) != 1 {
				t.Fatal(mine, err)
			}
			mutant := claim.Mutant(t, schema, claim.SQLClaim, test.edits...)
			waiting := answerOrWait(b, second, func() (claim.Claimed, error) {
				return mutant.Claim(b.ctx, second, claim.Request{Queue: queue, Limit: 1}, lease, "second")
			})
			b.commit(first)
			yours := <-waiting
			if yours.err != nil {
				t.Fatal(yours.err)
			}
			if twice := len(yours.value.Rows) == 1; twice != test.twice {
				t.Errorf("claimed twice: %v, want %v", twice, test.twice)
			}
		})
	}
}

// B1: a claim never takes more than it was asked for, on tables that were
// never analysed and under the plans that run a sub-select again for every
// row. B2: what was claimed comes back to the caller, however much it is.
func TestClaimTakesNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	const limit, jobs = 7, 120
	// The choice as a sub-select that may be run again for each row.
	again := chosenAgain("WHERE j.id IN (SELECT q.id FROM (", ") AS q)")
	healthy := setUp(t)
	healthy.exec("ALTER TABLE {{schema}}.jobs SET (autovacuum_enabled = off)")
	for name, test := range map[string]struct {
		edits []string
		more  bool
	}{
		"as it is":           {nil, false},
		"IN, not an array":   {again, true},
		"LIMIT only per row": {[]string{"\n        LIMIT $3::bigint) AS ids", ") AS ids"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLClaim, test.edits...))
			b.exec("INSERT INTO {{schema}}.jobs (kind, priority) SELECT 'test', n % 5 - 2 FROM generate_series(1, $1::int) AS n", jobs)

			var mu sync.Mutex
			most, claimed := 0, make(map[int64]int)
			group, ctx := errgroup.WithContext(b.ctx)
			for range 6 {
				conn := b.connect()
				group.Go(func() error {
					if _, err := conn.Exec(ctx, badPlans); err != nil {
						return err
					}
					for {
						taken, err := b.Claim(ctx, conn, claim.Request{Queue: queue, Limit: limit}, lease, "worker")
						if err != nil || len(taken.Rows) == 0 {
							return err
						}
						mu.Lock()
						most = max(most, len(taken.Rows))
						for _, row := range taken.Rows {
							claimed[row.ID]++
						}
						mu.Unlock()
					}
				})
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			if more := most > limit; more != test.more {
				t.Errorf("the largest claim took %d jobs of %d asked for", most, limit)
			}
			for id, n := range claimed {
				if n != 1 {
					t.Errorf("job %d was claimed %d times", id, n)
				}
			}
			if !test.more && len(claimed) != jobs {
				t.Errorf("%d of %d jobs were claimed", len(claimed), jobs)
			}
			// Nothing is running that no caller knows of.
			expect(b, int64(len(claimed)), "SELECT count(*) FROM {{schema}}.jobs WHERE status = 'running'")
		})
	}
}

// chosenAgain changes a claim so that it takes its jobs from a choice of its own,
// between the two texts, and not from the array that was made once.
func chosenAgain(before, after string) (edits []string) {
	_, choice, _ := strings.Cut(claim.SQLClaim, "SELECT ARRAY(")
	choice, _, _ = strings.Cut(choice, ") AS ids")
	return []string{
		"SELECT ARRAY(" + choice + ")", "SELECT ARRAY[-1]::bigint[]",
		"WHERE j.id = ANY ((SELECT h.ids FROM chosen AS h)::bigint[])", before + choice + after,
	}
}

// badPlans leaves the planner little but nested loops without a memory.
var badPlans = func() string {
	var sql strings.Builder
	for _, way := range []string{"hashjoin", "mergejoin", "material", "hashagg", "sort", "memoize", "bitmapscan"} {
		sql.WriteString("SELECT set_config('enable_" + way + "', 'off', false);")
	}
	return sql.String()
}()
