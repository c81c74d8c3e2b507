package claim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-go/fencepost/claim"
)

var verbs = []claim.Verb{claim.Done, claim.Retry, claim.Dead, claim.Cancelled, claim.Snooze, claim.Release, claim.Return}

// lateWrites are all the ways in which the holder of a claim writes about it.
// Each returns ErrLeaseLost when the claim is over.
func lateWrites() map[string]func(*bench, claim.Lease) error {
	writes := map[string]func(*bench, claim.Lease) error{
		"extend": func(b *bench, l claim.Lease) error {
			lost, err := b.Extend(b.ctx, b.conn, []claim.Lease{l}, time.Hour)
			if err == nil && len(lost) == 1 && lost[0].Lease == l {
				err = claim.ErrLeaseLost
			}
			return err
		},
		"progress": func(b *bench, l claim.Lease) error {
			return b.Progress(b.ctx, b.conn, l, json.RawMessage(`"late"`))
		},
		"CompleteTx": func(b *bench, l claim.Lease) error {
			tx, err := b.conn.Begin(b.ctx)
			if err != nil {
				return err
			}
			err = b.CompleteTx(b.ctx, tx, l)
			return errors.Join(err, tx.Commit(b.ctx)) // as a caller does that forgets to look
		},
		"CompleteSQLTx": func(b *bench, l claim.Lease) error {
			db := stdlib.OpenDB(*b.conn.Config())
			defer db.Close()
			tx, err := db.BeginTx(b.ctx, nil)
			if err != nil {
				return err
			}
			err = b.CompleteSQLTx(b.ctx, tx, l)
			return errors.Join(err, tx.Commit())
		},
	}
	for _, verb := range verbs {
		writes[string(verb)] = func(b *bench, l claim.Lease) error {
			results, err := b.Finish(b.ctx, b.conn, []claim.Outcome{{Lease: l, Verb: verb, Delay: time.Hour, Error: "late"}})
			if err == nil && (results[0] == claim.Lost || results[0] == claim.Gone) {
				err = claim.ErrLeaseLost
			}
			return err
		}
	}
	return writes
}

// B54: whatever an old holder writes after a takeover changes nothing, and it
// is told so: while the successor runs, when the job waits for its next
// attempt, and after it has ended.
func TestLateWriteChangesNothing(t *testing.T) {
	t.Parallel()
	situations := map[string]func(b *bench, old claim.Row){
		"successor runs": func(b *bench, old claim.Row) { b.takeOver(old) },
		"reaped":         func(b *bench, old claim.Row) { b.tick() },
		"handed back": func(b *bench, old claim.Row) {
			b.finish(claim.Stored, claim.Outcome{Lease: old.Lease(), Verb: claim.Return})
		},
		"reaped as dead": func(b *bench, old claim.Row) {
			b.exec("UPDATE {{schema}}.jobs SET max_attempts = attempts")
			b.tick()
		},
	}
	for _, verb := range verbs {
		situations["successor said "+string(verb)] = func(b *bench, old claim.Row) {
			next := b.takeOver(old)
			b.finish(claim.Stored, claim.Outcome{Lease: next.Lease(), Verb: verb, Delay: time.Minute})
		}
	}
	b := setUp(t)
	for name, situation := range situations {
		t.Run(name, func(t *testing.T) {
			b := b.fresh(t)
			b.insert(1)
			old := b.takeOne(over)
			situation(b, old)
			before := b.dump()
			for name, write := range lateWrites() {
				if err := write(b, old.Lease()); !isLost(err) {
					t.Errorf("%s: got %v, want ErrLeaseLost", name, err)
				}
				if after := b.dump(); after != before {
					t.Fatalf("%s changed the job from\n%s\nto\n%s", name, before, after)
				}
			}
		})
	}
}

// The same without the test of the fence: the old holder overwrites what its
// successor does.
func TestFenceIsWhatStopsLateWrites(t *testing.T) {
	t.Parallel()
	const fenced, unfenced = "WHERE j.id = o.id AND j.fence = o.fence\n        FOR", "WHERE j.id = o.id\n        FOR"
	mutants := map[string]struct {
		template string
		edits    []string
	}{
		"extend":        {claim.SQLExtend, []string{fenced, unfenced}},
		"progress":      {claim.SQLProgress, []string{"AND j.fence = $2::bigint", "AND $2::bigint IS NOT NULL"}},
		"CompleteTx":    {claim.SQLComplete, []string{" AND j.fence = $2::bigint FOR UPDATE", " FOR UPDATE"}},
		"CompleteSQLTx": {claim.SQLComplete, []string{" AND j.fence = $2::bigint FOR UPDATE", " FOR UPDATE"}},
	}
	for _, verb := range verbs {
		mutants[string(verb)] = mutants["extend"]
		m := mutants[string(verb)]
		m.template = claim.SQLFinish
		mutants[string(verb)] = m
	}
	b := setUp(t)
	for name, write := range lateWrites() {
		t.Run(name, func(t *testing.T) {
			b := b.fresh(t)
			b.insert(1)
			old := b.takeOne(over)
			b.takeOver(old)
			before := b.dump()
			mutant := b.with(claim.Mutant(t, schema, mutants[name].template, mutants[name].edits...))
			if err := write(mutant, old.Lease()); err != nil && !isLost(err) {
				t.Fatal(err)
			}
			if b.dump() == before {
				t.Error("the test does not see what the fence is for")
			}
		})
	}
}

// Every claim has a fence of its own, larger than all before it, also after a
// failover or a restore that lost the row's last claims, and also when the
// server's clock steps back.
func TestFenceNeverRepeats(t *testing.T) {
	t.Parallel()
	const clock = "greatest(j.fence + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
	healthy := setUp(t)
	for name, test := range map[string]struct {
		fence            string
		lossy, backwards bool // holds
	}{
		"as it is":      {clock, true, true},
		"plain counter": {"j.fence + 1", false, true},
		"only a clock":  {"(extract(epoch FROM clock_timestamp()) * 1000000)::bigint", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLClaim, clock, test.fence))
			b.insert(1)
			forget := "UPDATE {{schema}}.jobs SET status = 'ready', fence = 0, attempts = 0, lease_until = NULL, worker_id = NULL"

			first := b.takeOne(lease)
			b.exec(forget) // the claim was lost with the old primary
			second := b.takeOne(lease)
			if holds := second.Fence > first.Fence; holds != test.lossy {
				t.Errorf("fence %d, and after lost commits %d", first.Fence, second.Fence)
			}
			b.exec(forget)
			b.exec("UPDATE {{schema}}.jobs SET fence = $1::bigint", time.Now().Add(time.Hour).UnixMicro())
			third := b.takeOne(lease)
			if holds := third.Fence > time.Now().Add(time.Minute).UnixMicro(); holds != test.backwards {
				t.Errorf("fence %d after one that is an hour ahead", third.Fence)
			}
			if third.Fence > 1<<53 {
				t.Errorf("fence %d cannot be read as a double", third.Fence)
			}
		})
	}
}

// A process can hold a job again that it has lost before, and then names it
// under both fences in one call.
func TestOneJobUnderTwoFencesInOneCall(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(1)
	old := b.takeOne(over)
	next := b.takeOver(old)

	lost, err := b.Extend(b.ctx, b.conn, []claim.Lease{old.Lease(), next.Lease()}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if len(lost) != 1 || lost[0].Lease != old.Lease() {
		t.Errorf("lost %v, want the old claim %v", lost, old.Lease())
	}
	expect(b, true, "SELECT lease_until > clock_timestamp() + interval '59 minutes' FROM {{schema}}.jobs")

	results, err := b.Finish(b.ctx, b.conn, []claim.Outcome{
		{Lease: old.Lease(), Verb: claim.Dead}, {Lease: next.Lease(), Verb: claim.Done},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(results), "[lost stored]"; got != want {
		t.Errorf("results %s, want %s", got, want)
	}
	expect(b, "done", "SELECT status FROM {{schema}}.finished")
}

// A claim that has ended as something else cannot be completed any more.
func TestCompleteTxAfterAnotherEnd(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, verb := range []claim.Verb{claim.Dead, claim.Cancelled} {
		b.insert(1)
		row := b.takeOne(lease)
		b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: verb})
		tx := b.open()
		if err := b.CompleteTx(b.ctx, tx, row.Lease()); !isLost(err) {
			t.Errorf("CompleteTx after %s: %v", verb, err)
		}
		b.rollback(tx)
	}
}

// One INSERT of a job whose fence cannot count on stops no queue: the job is
// passed over, and looks due to nobody. One that can count on only just enough
// ends like any other.
func TestASpentFenceStopsNoQueue(t *testing.T) {
	t.Parallel()
	const spent, last = "4611686018427387902", "4611686018427387901"
	b := setUp(t)
	// broken says what is wrong with a queue of such jobs and one other.
	broken := func(b *bench) error {
		b.insertOne("fence, run_at", "4611686018427387903, clock_timestamp() - interval '1 hour'") // the highest of jobs_fence
		b.insertOne("fence, run_at", spent+", clock_timestamp() - interval '1 hour'")
		b.insertOne("fence", last)
		b.insert(1)
		c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 10}, lease, "worker")
		if err != nil || len(c.Rows) != 2 || c.HasNext {
			return fmt.Errorf("claimed %d jobs, %v; another is due: %t", len(c.Rows), err, c.HasNext)
		}
		if next, any := b.tick().Next[queue]; any {
			return fmt.Errorf("by the tick a job is due in %v", next)
		}
		var outcomes []claim.Outcome
		for _, row := range c.Rows {
			outcomes = append(outcomes, claim.Outcome{Lease: row.Lease(), Verb: claim.Release})
		}
		_, err = b.Finish(b.ctx, b.conn, outcomes)
		return err
	}
	if err := broken(b); err != nil {
		t.Error(err)
	}
	for name, m := range map[string]struct{ template, edit string }{
		"claim":        {claim.SQLClaim, "true"},
		"claim by one": {claim.SQLClaim, "r.fence <= " + spent},
		"next":         {claim.SQLNext, "true"},
		"tick":         {claim.SQLTick, "true"},
	} {
		b := b.fresh(t).with(claim.Mutant(t, schema, m.template, claim.SQLUnspent, m.edit))
		if err := broken(b); err == nil {
			t.Errorf("%s: the test does not see what the guard is for", name)
		}
	}
}
