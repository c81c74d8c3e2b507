package claim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// B62: with every other table emptied, each job of a dead worker comes back:
// that of claims is made anew from the jobs.
// B66: of any kind and queue, whoever reaps.
func TestRecoveryRestsOnTheLeaseAlone(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec("INSERT INTO {{schema}}.jobs (kind, queue) SELECT 'kind ' || n, 'queue ' || n % 7 FROM generate_series(1, 70) AS n")
	for i := range 7 {
		queue := fmt.Sprint("queue ", i)
		if _, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 100}, over, "dead "+queue); err != nil {
			t.Fatal(err)
		}
	}
	b.exec("TRUNCATE {{schema}}.queues, {{schema}}.workers, {{schema}}.finished, {{schema}}.schema_migrations, {{schema}}.claims")
	b.adopt()
	ticked, err := b.Tick(b.ctx, b.conn, claim.TickRequest{Queues: []string{"unknown"}, Kinds: []string{"unknown"}, Reap: true, Worker: "watcher", Own: "own"})
	if err != nil || ticked.Reaped != 70 {
		t.Errorf("reaped %d of 70 jobs, %v", ticked.Reaped, err)
	}
	expect(b, int64(70), `SELECT count(*) FROM {{schema}}.jobs WHERE status = 'ready' AND attempts = 1
		AND last_error = 'lease of worker dead ' || queue || ' ran out in attempt 1 of 20'`)
}

// B76, B77: the pause after a reaped attempt grows to an hour and no more,
// and is never negative or an error, whatever the number of attempts.
func TestReapedJobPausesByTheCurve(t *testing.T) {
	t.Parallel()
	const limit = 1<<31 - 1
	b := setUp(t)
	for _, test := range []struct {
		attempts  int
		low, high float64 // seconds
	}{
		{1, 0.8, 1.2},
		{2, 1.6, 2.4},
		{5, 12.8, 19.2},
		{10, 409.6, 614.4},
		{12, 1638.4, 2457.6},
		{13, 3276.8, 3600},
		{30, 3276.8, 3600},
		{31, 3276.8, 3600},
		{32, 3276.8, 3600},
		{62, 3276.8, 3600},
		{63, 3276.8, 3600},
		{64, 3276.8, 3600},
		{1000, 3276.8, 3600},
		{32768, 3276.8, 3600},
		{157_177, 3276.8, 3600},
		{limit - 1, 3276.8, 3600},
	} {
		b := b.fresh(t)
		b.exec("INSERT INTO {{schema}}.jobs (kind, attempts, max_attempts) SELECT 'test', $1::int, $2::int FROM generate_series(1, 50)", test.attempts-1, limit)
		if rows := b.take(50, over); len(rows) != 50 {
			t.Fatal(len(rows))
		}
		before := ask[time.Time](b, "SELECT clock_timestamp()")
		if reaped := b.tick().Reaped; reaped != 50 {
			t.Fatalf("attempt %d: reaped %d of 50", test.attempts, reaped)
		}
		after := ask[time.Time](b, "SELECT clock_timestamp()")
		seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
		least, most := before.Add(seconds(test.low)), after.Add(seconds(test.high))
		if got := ask[time.Time](b, "SELECT min(run_at) FROM {{schema}}.jobs"); got.Before(least) {
			t.Errorf("attempt %d: due at %s, before %s", test.attempts, got, least)
		}
		if got := ask[time.Time](b, "SELECT max(run_at) FROM {{schema}}.jobs"); got.After(most) {
			t.Errorf("attempt %d: due at %s, after %s", test.attempts, got, most)
		}
		expect(b, true, "SELECT count(DISTINCT run_at) > 10 FROM {{schema}}.jobs") // spread
	}
	// The very last attempt is no longer repeated, and no error either.
	b = b.fresh(t)
	b.insertOne("attempts, max_attempts", fmt.Sprintf("%d, %d", limit-1, limit))
	b.takeOne(over)
	b.tick()
	expect(b, "dead", "SELECT status FROM {{schema}}.finished")
}

// One tick reaps a bounded number, longest overdue first, and says that it
// was full.
func TestTickReapsInBatches(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(claim.ReapBatch + 10)
	b.take(10, over)
	rows := b.take(claim.ReapBatch, 2*over) // with larger ids
	if reaped := b.tick().Reaped; reaped != claim.ReapBatch {
		t.Errorf("reaped %d, want %d", reaped, claim.ReapBatch)
	}
	ids := make([]int64, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	expect(b, int64(claim.ReapBatch), "SELECT count(*) FROM {{schema}}.jobs WHERE status = 'ready' AND id = ANY ($1::bigint[])", ids)
	if reaped := b.tick().Reaped; reaped != 10 {
		t.Errorf("reaped %d, want the other 10", reaped)
	}
}

// After the database's clock stepped, leases may only seem to be over.
func TestTickDoesNotReapWhenToldSo(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(3)
	b.take(3, over)
	ticked, err := b.Tick(b.ctx, b.conn, claim.TickRequest{Queues: []string{queue}, Own: "own", Token: "token"})
	if err != nil || ticked.Reaped != 0 {
		t.Errorf("reaped %d, %v", ticked.Reaped, err)
	}
	expect(b, int64(3), "SELECT count(*) FROM {{schema}}.jobs WHERE status = 'running'")
}

// A tick tells for each queue when its next job is due, also one that it has
// just reaped, when the next lease ends, and the time.
func TestTickLooks(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec(`INSERT INTO {{schema}}.jobs (kind, queue, run_at, priority) VALUES
		('a', 'past', clock_timestamp() - interval '1 hour', 2), ('a', 'past', clock_timestamp() + interval '1 hour', -2),
		('a', 'future', clock_timestamp() + interval '1 hour', 2), ('b', 'future', clock_timestamp() + interval '1 minute', 0),
		('a', 'reaped', clock_timestamp(), 0), ('a', 'running', clock_timestamp(), 0), ('b', 'strange', clock_timestamp(), 0)`)
	claimFrom := func(queue string, lease time.Duration) {
		t.Helper()
		c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 1}, lease, "worker")
		if err != nil || len(c.Rows) != 1 {
			t.Fatal(c, err)
		}
	}
	claimFrom("reaped", over)
	claimFrom("running", time.Hour)
	queues := []string{"past", "future", "reaped", "running", "strange", "empty"}
	ticked, err := b.Tick(b.ctx, b.conn, claim.TickRequest{Queues: queues, Kinds: []string{"a"}, Reap: true, Own: "own", Token: "token"})
	if err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]time.Duration{"past": -time.Hour, "future": time.Hour, "reaped": time.Second} {
		got, ok := ticked.Next[queue]
		if !ok || got < want-time.Minute || got > want+time.Second {
			t.Errorf("%s: next in %s (%v), want %s", queue, got, ok, want)
		}
		delete(ticked.Next, queue)
	}
	if len(ticked.Next) > 0 {
		t.Errorf("more queues with a job than there are: %v", ticked.Next)
	}
	if !ticked.HasLease || ticked.Lease > time.Second || ticked.Lease < 0 {
		t.Errorf("what was reaped is to be looked for in %s (%v), want once more, a second later", ticked.Lease, ticked.HasLease)
	}
	b.wait()
	if ticked = b.tick(); !ticked.HasLease || ticked.Lease > time.Hour || ticked.Lease < 59*time.Minute {
		t.Errorf("next lease ends in %s (%v), want an hour", ticked.Lease, ticked.HasLease)
	}
	if now := ask[time.Time](b, "SELECT clock_timestamp()"); now.Sub(ticked.Now).Abs() > time.Minute {
		t.Errorf("the tick says it is %s, the server %s", ticked.Now, now)
	}
	b = b.fresh(t)
	if ticked := b.tick(); ticked.HasLease || len(ticked.Next) > 0 || ticked.Reaped > 0 || ticked.Expired {
		t.Errorf("an empty database gives %+v", ticked)
	}
}

// A lease is as long as was asked for, also when the transaction it is given
// or moved in has waited before.
func TestLeaseIsNotBornOld(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, table := range map[string]*claim.Table{
		"as it is": healthy.Table,
		"claim":    claim.Mutant(t, schema, claim.SQLClaim, "lease_until = clock_timestamp()", "lease_until = now()"),
		"extend":   claim.Mutant(t, schema, claim.SQLExtend, "lease_until = clock_timestamp()", "lease_until = now()"),
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(table)
			b.insert(1)
			tx := b.open()
			waited := func(what string) bool { // whether the lease ends later than if counted from the transaction's begin
				t.Helper()
				var full bool
				if err := tx.QueryRow(b.ctx, "SELECT lease_until >= now() + interval '1300 milliseconds' FROM fencepost.jobs").Scan(&full); err != nil {
					t.Fatal(what, err)
				}
				return full
			}
			if _, err := tx.Exec(b.ctx, "SELECT pg_sleep(0.3)"); err != nil { // the wait that the test is about
				t.Fatal(err)
			}
			claimed, err := b.Claim(b.ctx, tx, claim.Request{Queue: queue, Limit: 1}, time.Second, "worker")
			if err != nil || len(claimed.Rows) != 1 {
				t.Fatal(claimed, err)
			}
			if full := waited("claim"); full != (name != "claim") {
				t.Errorf("full lease after the claim: %v", full)
			}
			if _, err := b.Extend(b.ctx, tx, []claim.Lease{claimed.Rows[0].Lease()}, time.Second); err != nil {
				t.Fatal(err)
			}
			if full := waited("extend"); full != (name != "extend") {
				t.Errorf("full lease after the extension: %v", full)
			}
			b.commit(tx)
		})
	}
}

// A batch of extensions moves exactly the leases that it names.
func TestExtendMovesOnlyWhatItNames(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(5)
	rows := b.take(5, lease)
	named := []claim.Lease{rows[3].Lease(), rows[1].Lease()}
	gone := claim.Lease{ID: 1, Fence: 1}
	lost, err := b.Extend(b.ctx, b.conn, append(slices.Clone(named), gone), time.Hour)
	if want := []claim.Loss{{Lease: gone, Reason: claim.ReasonGone}}; err != nil || !slices.Equal(lost, want) {
		t.Errorf("lost %v, %v; want %v", lost, err, want)
	}
	expect(b, int64(2), "SELECT count(*) FROM {{schema}}.jobs WHERE lease_until > clock_timestamp() + interval '59 minutes'")
	expect(b, int64(2), "SELECT count(*) FROM {{schema}}.jobs WHERE lease_until > clock_timestamp() + interval '59 minutes' AND id = ANY ($1::bigint[])",
		[]int64{rows[1].ID, rows[3].ID})
	if lost, err := b.Extend(b.ctx, b.conn, nil, time.Hour); err != nil || len(lost) != 0 {
		t.Errorf("an empty batch: %v, %v", lost, err)
	}
}
