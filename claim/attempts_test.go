package claim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// B58: a job with one attempt runs once, whatever ends that attempt, unless
// its handler never started or it snoozed.
func TestOneAttemptIsOneAttempt(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for verb, again := range map[claim.Verb]bool{
		claim.Retry: false, claim.Release: false, "reap": false, claim.Dead: false, claim.Cancelled: false, claim.Done: false,
		claim.Return: true, claim.Snooze: true,
	} {
		t.Run(string(verb), func(t *testing.T) {
			b := b.fresh(t)
			b.insertOne("max_attempts", "1")
			if verb == "reap" {
				b.takeOne(over)
				b.tick()
			} else {
				row := b.takeOne(lease)
				b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: verb, Error: "reason"})
			}
			b.makeDue()
			rows := b.take(1, lease)
			if len(rows) > 0 != again {
				t.Errorf("claimed again: %v, want %v", len(rows) > 0, again)
			}
			if again {
				if rows[0].Attempt != 1 {
					t.Errorf("attempt %d, want 1", rows[0].Attempt)
				}
				return
			}
			want := map[claim.Verb]string{claim.Done: "done", claim.Cancelled: "cancelled"}[verb]
			if want == "" {
				want = "dead"
			}
			expect(b, want, "SELECT status FROM {{schema}}.finished WHERE attempts = 1")
			expect(b, true, "SELECT last_error <> '' FROM {{schema}}.finished")
		})
	}
}

// The same for every attempt but the last: which outcomes count it, and when
// the job comes back.
func TestWhatEachOutcomeDoesToAJob(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for verb, want := range map[claim.Verb]struct {
		attempts, snoozes int
		moved             bool // run_at
	}{
		claim.Retry:   {1, 0, true},
		claim.Snooze:  {0, 1, true},
		claim.Release: {1, 0, false},
		claim.Return:  {0, 0, false},
	} {
		t.Run(string(verb), func(t *testing.T) {
			b := b.fresh(t)
			b.insertOne("run_at, last_error", "'2001-01-01Z', 'earlier'")
			row := b.takeOne(lease)
			b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: verb, Delay: time.Hour})
			got := ask[string](b, `SELECT format('%s %s %s %s', attempts, snoozes, status, last_error) FROM {{schema}}.jobs
				WHERE lease_until IS NULL AND worker_id IS NULL`)
			if want := fmt.Sprintf("%d %d ready earlier", want.attempts, want.snoozes); got != want {
				t.Errorf("attempts, snoozes, status, last error: %s, want %s", got, want)
			}
			expect(b, row.Fence+1, "SELECT fence FROM {{schema}}.jobs")
			moved := ask[bool](b, `SELECT run_at BETWEEN clock_timestamp() + interval '59 minutes' AND clock_timestamp() + interval '1 hour'
				FROM {{schema}}.jobs`)
			if moved != want.moved {
				t.Errorf("run_at moved by the delay: %v, want %v", moved, want.moved)
			}
			if !want.moved {
				expect(b, row.RunAt, "SELECT run_at FROM {{schema}}.jobs")
			}
		})
	}
}

// B57: a job that takes its process down with it runs out of attempts,
// because they are counted when it is claimed. The others go on.
func TestAttemptsCountAtTheClaim(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		runs  int
	}{
		"as it is":    {nil, 3},
		"not counted": {[]string{"    attempts = j.attempts + 1,\n", ""}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLClaim, test.edits...))
			if test.edits != nil {
				// A second guard, which would refuse such a claim at once.
				b.exec("ALTER TABLE {{schema}}.jobs DROP CONSTRAINT jobs_status")
			}
			killer := b.insertOne("max_attempts", "3")
			b.insert(5)
			runs := 0
			for range 6 {
				for _, row := range b.take(10, over) {
					if row.ID == killer {
						runs++ // and the process is gone
					} else {
						b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: claim.Done})
					}
				}
				b.tick()
				b.makeDue()
			}
			if runs != test.runs {
				t.Errorf("ran %d times, want %d", runs, test.runs)
			}
			expect(b, int64(5), "SELECT count(*) FROM {{schema}}.finished WHERE status = 'done'")
			if test.edits == nil {
				expect(b, "lease of worker worker ran out in attempt 3 of 3, the last one",
					"SELECT last_error FROM {{schema}}.finished WHERE id = $1::bigint AND status = 'dead'", killer)
			}
		})
	}
}

// B78: a snooze moves neither the attempt nor the maximum, however often, and
// its own counter stops at the end of its type.
func TestSnoozingWearsOutNoCounter(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	const limit = 1<<31 - 1
	b.insertOne("snoozes, max_attempts, attempts", fmt.Sprintf("%d, %d, %d", limit-2, limit, limit-1))
	for range 5 {
		row := b.takeOne(lease)
		if row.Attempt != limit || row.MaxAttempts != limit {
			t.Fatalf("attempt %d of %d", row.Attempt, row.MaxAttempts)
		}
		b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: claim.Snooze})
	}
	expect(b, limit, "SELECT snoozes FROM {{schema}}.jobs")
	expect(b, limit-1, "SELECT attempts FROM {{schema}}.jobs")
	// At that height a last attempt is still a last attempt.
	row := b.takeOne(lease)
	b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: claim.Retry})
	expect(b, "dead", "SELECT status FROM {{schema}}.finished")
}

// The pause is at least none and at most a hundred years, whatever is asked.
func TestDelayIsBounded(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, test := range []struct {
		delay     time.Duration
		low, high string
	}{
		{-time.Hour, "-1 minute", "0"},
		{-1 << 63, "-1 minute", "0"},
		{0, "-1 minute", "0"},
		{time.Microsecond, "-1 minute", "1 microsecond"},
		{90 * time.Minute, "89 minutes", "90 minutes"},
		{1<<63 - 1, "36499 days", "36500 days"},
	} {
		b := b.fresh(t)
		b.insert(1)
		row := b.takeOne(lease)
		b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: claim.Retry, Delay: test.delay})
		expect(b, true, `SELECT run_at BETWEEN clock_timestamp() + $1::text::interval AND clock_timestamp() + $2::text::interval
			FROM {{schema}}.jobs`, test.low, test.high)
	}
}
