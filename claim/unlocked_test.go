package claim_test

import (
	"slices"
	"testing"

	"github.com/fencepost-go/fencepost/claim"
)

// Jobs that somebody holds keep no other from ending, however they are held and
// whatever was seen of it; and if one is waited for all the same, that is for a
// second, once.
func TestHeldJobsKeepNoOtherFromEnding(t *testing.T) {
	t.Parallel()
	const unheld = "j.xmax IN ('0'::xid, j.xmin)"
	for name, test := range map[string]struct {
		before, during string // what an open transaction does, before and after the claim
		extend         bool
		edits          []string
		stored         int
	}{
		"a reference, before the claim":    {before: "SELECT FROM fencepost.jobs ORDER BY id LIMIT 1 FOR KEY SHARE", stored: 9},
		"a reference, before an extension": {during: "SELECT FROM fencepost.jobs ORDER BY id LIMIT 1 FOR KEY SHARE", extend: true, stored: 9},
		"two references":                   {before: "SELECT FROM fencepost.jobs ORDER BY id LIMIT 1 FOR KEY SHARE", during: "SELECT FROM fencepost.jobs ORDER BY id LIMIT 2 FOR SHARE", stored: 8},
		"a lock":                           {during: "SELECT FROM fencepost.jobs ORDER BY id LIMIT 1 FOR UPDATE", stored: 9},
		"nobody, after an extension":       {extend: true, stored: 10},
		"a lock that is not seen":          {during: "SELECT FROM fencepost.jobs ORDER BY id LIMIT 1 FOR UPDATE", edits: []string{unheld, "true"}, stored: 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t).with(claim.Mutant(t, schema, claim.SQLFinish, test.edits...))
			b.insert(10)
			for range 2 { // so that there is more than one locker
				tx := b.open()
				defer b.rollback(tx)
				if test.before != "" {
					if _, err := tx.Exec(b.ctx, test.before); err != nil {
						t.Fatal(err)
					}
				}
			}
			var outcomes []claim.Outcome
			var leases []claim.Lease
			for _, row := range b.take(10, lease) {
				leases = append(leases, row.Lease())
				outcomes = append(outcomes, claim.Outcome{Lease: row.Lease(), Verb: claim.Done})
			}
			if test.during != "" {
				tx := b.open()
				defer b.rollback(tx)
				if _, err := tx.Exec(b.ctx, test.during); err != nil {
					t.Fatal(err)
				}
			}
			if test.extend {
				if lost, err := b.Extend(b.ctx, b.conn, leases, lease); err != nil || len(lost) > 0 {
					t.Fatal(lost, err)
				}
			}
			results, err := b.Finish(b.ctx, b.conn, outcomes)
			if err != nil {
				t.Fatal(err)
			}
			stored := slices.DeleteFunc(slices.Clone(results), func(r claim.Result) bool { return r != claim.Stored })
			if busy := len(results) - len(stored); len(stored) != test.stored || slices.Contains(results, claim.Lost) || slices.Contains(results, claim.Gone) {
				t.Errorf("%d stored, %d not: %v", len(stored), busy, results)
			}
			expect(b, int64(test.stored), "SELECT count(*) FROM {{schema}}.finished")
		})
	}
}
