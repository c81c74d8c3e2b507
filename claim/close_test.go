package claim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// isOpen says whether the row of a claim is there.
func (b *bench) isOpen(id int64) bool {
	b.t.Helper()
	return ask[bool](b, "SELECT EXISTS (SELECT FROM {{schema}}.claims WHERE id = $1::bigint)", id)
}

// With its last outcome a claim is closed, in the same commit. Whatever the
// caller says, a claim of which a job runs stays: one whose outcome is missing,
// or is refused or late, or that somebody else has claimed since.
func TestALastOutcomeClosesItsClaim(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	const runs = "AND (SELECT true FROM {{schema}}.jobs AS j WHERE j.id = ANY (k.ids) AND j.status = 'running' LIMIT 1) IS NULL"
	for name, test := range map[string]struct {
		edits []string
		wrong string
	}{
		"as it is":      {nil, ""},
		"never":         {[]string{runs, "AND false"}, "last"},
		"always":        {[]string{runs, ""}, "running"},
		"if none is it": {[]string{"AND j.status = 'running' LIMIT", "LIMIT"}, "last"},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLClose, test.edits...))
			wrong := make(map[string]bool)
			end := func(verb claim.Verb, row claim.Row, closes int64) claim.Result {
				t.Helper()
				results, err := b.Finish(b.ctx, b.conn, []claim.Outcome{{Lease: row.Lease(), Verb: verb, Delay: time.Hour, Closes: closes}})
				if err != nil {
					t.Fatal(err)
				}
				return results[0]
			}
			// One that is not the last, and then the last one.
			b.insert(3)
			rows := b.take(3, lease)
			own := rows[0].Claim
			end(claim.Done, rows[0], own)
			wrong["running"] = !b.isOpen(own)
			end(claim.Retry, rows[1], own)
			wrong["running"] = wrong["running"] || !b.isOpen(own)
			end(claim.Done, rows[2], own)
			wrong["last"] = b.isOpen(own)

			// One that is busy, and one that is late: the job is somebody else's by now.
			b.exec("DELETE FROM {{schema}}.jobs")
			b.insert(1)
			row := b.takeOne(lease)
			tx := b.open()
			if err := b.CompleteTx(b.ctx, tx, row.Lease()); err != nil {
				t.Fatal(err)
			}
			if result := end(claim.Done, row, row.Claim); result != claim.Busy {
				t.Errorf("the outcome is %v", result)
			}
			wrong["running"] = wrong["running"] || !b.isOpen(row.Claim)
			b.rollback(tx)
			if test.wrong == "running" {
				if !wrong["running"] {
					t.Error("the test does not see claims that are closed while a job runs")
				}
				return // nobody would find it
			}
			next := b.takeOver(row)
			if result := end(claim.Done, row, row.Claim); result != claim.Lost {
				t.Errorf("the outcome is %v", result)
			}
			wrong["running"] = wrong["running"] || !b.isOpen(row.Claim)
			end(claim.Done, next, next.Claim)
			wrong["last"] = wrong["last"] || b.isOpen(next.Claim)
			for what, is := range wrong {
				if is != (what == test.wrong) {
					t.Errorf("%s is wrong: %v", what, is)
				}
			}
		})
	}
}

// In an exchange the claim that ends is closed, and the one that begins is not,
// also if it takes the same job.
func TestAnExchangeClosesTheOldClaimAlone(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(2)
	rows := b.take(2, lease)
	results, claimed, err := b.Exchange(b.ctx, b.conn, []claim.Outcome{
		{Lease: rows[0].Lease(), Verb: claim.Done},
		{Lease: rows[1].Lease(), Verb: claim.Release, Closes: rows[0].Claim},
	}, []claim.Request{{Queue: queue, Limit: 2}}, lease, "worker")
	if err != nil || !slices.Equal(results, []claim.Result{claim.Stored, claim.Stored}) || len(claimed[0].Rows) != 1 {
		t.Fatal(results, claimed, err)
	}
	if again := claimed[0].Rows[0]; again.ID != rows[1].ID || again.Claim == rows[0].Claim || b.isOpen(rows[0].Claim) || !b.isOpen(again.Claim) {
		t.Errorf("claimed %+v and then %+v; open are %+v", rows, again, b.claims())
	}
}

// A claim that somebody looks into is left to him. Nobody waits.
func TestClosingSkipsWhatSomebodyHolds(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		waits bool
	}{
		"as it is": {nil, false},
		"waits":    {[]string{"FOR UPDATE SKIP LOCKED", "FOR UPDATE"}, true},
		"unlocked": {[]string{"FOR UPDATE SKIP LOCKED", ""}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLClose, test.edits...))
			b.insert(2)
			first, second := b.takeOne(lease), b.takeOne(lease)
			tx := b.open()
			if _, err := tx.Exec(b.ctx, "SELECT FROM fencepost.claims WHERE id = $1::bigint FOR UPDATE", first.Claim); err != nil {
				t.Fatal(err)
			}
			other := b.connect()
			closing := answerOrWait(b, other, func() ([]claim.Result, error) {
				return b.Finish(b.ctx, other, []claim.Outcome{
					{Lease: first.Lease(), Verb: claim.Done, Closes: first.Claim},
					{Lease: second.Lease(), Verb: claim.Done, Closes: second.Claim},
				})
			})
			if waits := len(closing) == 0; waits != test.waits {
				t.Errorf("waits: %v, want %v", waits, test.waits)
			}
			b.rollback(tx)
			if got := <-closing; got.err != nil || !slices.Equal(got.value, []claim.Result{claim.Stored, claim.Stored}) {
				t.Errorf("outcomes: %v, %v", got.value, got.err)
			}
			if test.edits == nil && (!b.isOpen(first.Claim) || b.isOpen(second.Claim)) {
				t.Errorf("open are %+v, want claim %d", b.claims(), first.Claim)
			}
		})
	}
}
