package claim_test

import (
	"testing"

	"github.com/fencepost-go/fencepost/claim"
)

// sqlTouched lists the indexes of jobs that a claim would have to change: those
// with a column that it writes, as a key, beside one, in an expression or in a
// condition.
const sqlTouched = `
	SELECT coalesce(string_agg(DISTINCT i.indexrelid::regclass::text, ', '), '')
	FROM pg_index AS i
	JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
		AND d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid
	JOIN pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
	WHERE i.indrelid = '{{schema}}.jobs'::regclass
	  AND a.attname IN ('status', 'attempts', 'lease_until', 'fence', 'worker_id')`

// Claims, extensions and progress change no index: they are what PostgreSQL calls
// HOT updates, as long as no index knows what they write and there is room on
// the page.
func TestAClaimChangesNoIndex(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		ddl string
		hot bool
	}{
		"as it is":        {"", true},
		"other indexes":   {"CREATE INDEX one ON {{schema}}.jobs (kind, created_at) WHERE max_attempts > 3", true},
		"a key":           {"CREATE INDEX one ON {{schema}}.jobs (lease_until)", false},
		"a condition":     {"CREATE INDEX one ON {{schema}}.jobs (queue) WHERE status = 'ready'", false},
		"an expression":   {"CREATE INDEX one ON {{schema}}.jobs ((attempts + 1))", false},
		"an extra column": {"CREATE INDEX one ON {{schema}}.jobs (kind) INCLUDE (worker_id)", false},
		"a full page":     {"ALTER TABLE {{schema}}.jobs SET (fillfactor = 100)", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t)
			b.exec("VACUUM {{schema}}.jobs")
			b.exec("DROP INDEX IF EXISTS {{schema}}.one")
			if test.ddl != "" {
				b.exec(test.ddl)
				defer b.exec("ALTER TABLE {{schema}}.jobs SET (fillfactor = 50)")
			}
			b.exec("INSERT INTO {{schema}}.jobs (kind, payload) SELECT 'test', to_jsonb(repeat('x', 200)) FROM generate_series(1, 400)")
			if touched := ask[string](b, sqlTouched); (touched == "") != test.hot && name != "a full page" {
				t.Errorf("a claim would change %s", touched)
			}
			tx := b.open()
			c, err := b.Claim(b.ctx, tx, claim.Request{Queue: queue, Limit: 100}, lease, "worker")
			if err != nil || len(c.Rows) != 100 {
				t.Fatal(len(c.Rows), err)
			}
			leases := make([]claim.Lease, len(c.Rows))
			for i, row := range c.Rows {
				leases[i] = row.Lease()
			}
			var updated, hot int
			count := func() {
				t.Helper()
				if err := tx.QueryRow(b.ctx, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relid = 'fencepost.jobs'::regclass").
					Scan(&updated, &hot); err != nil {
					t.Fatal(err)
				}
			}
			if count(); updated != 100 || (hot == updated) != test.hot {
				t.Errorf("%d of %d updates of a claim were HOT", hot, updated)
			}
			b.commit(tx)
			if !test.hot {
				return
			}
			// Each commit makes room: what it has replaced is cleared away by the next.
			tx = b.open()
			if lost, err := b.Extend(b.ctx, tx, leases[:10], lease); err != nil || len(lost) > 0 {
				t.Error(lost, err)
			}
			if count(); updated != 10 || hot != updated {
				t.Errorf("%d of %d extensions were HOT", hot, updated)
			}
			b.commit(tx)
			tx = b.open()
			for _, l := range leases[:10] {
				if err := b.Progress(b.ctx, tx, l, []byte("1")); err != nil {
					t.Error(err)
				}
			}
			if count(); updated != 10 || hot != updated {
				t.Errorf("%d of %d times that progress was stored were HOT", hot, updated)
			}
			b.commit(tx)
		})
	}
}
