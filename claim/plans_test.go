package claim_test

import (
	"testing"

	"github.com/fencepost-go/fencepost/claim"
)

// A session has kept its plans from when the tables were empty, and statistics say
// that they are still. Then there are many jobs: only the first trip reads all of
// them.
func TestPlansAreMadeAnewAsTablesGrow(t *testing.T) {
	t.Parallel()
	const jobs, trips, batch = 10_000, 20, 200
	healthy := setUp(t)
	healthy.exec("ALTER TABLE {{schema}}.jobs SET (autovacuum_enabled = off)")
	healthy.exec("ALTER TABLE {{schema}}.finished SET (autovacuum_enabled = off)")
	read := func() int64 {
		return ask[int64](healthy, "SELECT sum(seq_tup_read)::bigint FROM pg_stat_user_tables WHERE relname IN ('jobs', 'finished')")
	}
	for _, test := range []struct {
		name  string
		edits []string
		once  bool
	}{
		{"as it is", nil, true},
		{"nothing grows", []string{
			"pg_relation_size({{jobs}}::regclass)", "0::bigint",
			"pg_relation_size({{finished}}::regclass)", "0::bigint",
		}, false},
	} {
		b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLSettings, test.edits...))
		b.exec("VACUUM ANALYZE {{schema}}.jobs")
		b.exec("VACUUM ANALYZE {{schema}}.finished")
		conn := b.connect()
		exchange := func(outcomes []claim.Outcome, want claim.Result) (next []claim.Outcome) {
			results, claimed, err := b.Exchange(b.ctx, conn, outcomes, []claim.Request{{Queue: queue, Limit: batch}}, lease, "worker")
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range results {
				if result != want {
					t.Fatalf("an outcome is %v", result)
				}
			}
			for _, row := range claimed[0].Rows {
				next = append(next, claim.Outcome{Lease: row.Lease(), Verb: claim.Done})
			}
			return next
		}
		exchange([]claim.Outcome{{Lease: claim.Lease{ID: 1, Fence: 1}, Verb: claim.Done}}, claim.Gone)
		b.insert(jobs)
		before := read()
		var outcomes []claim.Outcome
		for range trips {
			outcomes = exchange(outcomes, claim.Stored)
		}
		ended := ask[int64](b, "SELECT count(*) FROM {{schema}}.finished")
		if want := int64((trips - 1) * batch); ended != want {
			t.Fatalf("%d jobs have ended, want %d", ended, want)
		}
		pid := conn.PgConn().PID()
		if err := conn.Close(b.ctx); err != nil { // then the server adds up what it has done
			t.Fatal(err)
		}
		for ask[bool](b, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1::int)", int(pid)) {
		}
		b.exec("SELECT pg_stat_clear_snapshot()")
		// The first trip reads all jobs nine times: to choose, for each priority down
		// to theirs, to update, and to look at what is left, for each priority.
		got := read() - before
		t.Logf("%s: %d rows read by reading whole tables", test.name, got)
		if once := got <= 9*jobs; once != test.once {
			t.Errorf("%s: %d rows read by reading whole tables, in %d trips", test.name, got, trips)
		}
	}
}
