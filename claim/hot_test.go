package claim_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

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

// Claims change no index: they are what PostgreSQL calls HOT updates, as long as
// no index knows what they write and there is room on the page.
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
			if updated, hot := b.updates(tx); updated != 100 || (hot == updated) != test.hot {
				t.Errorf("%d of %d updates were HOT", hot, updated)
			}
			b.rollback(tx)
		})
	}
}

// Nor do extensions and progress.
func TestExtensionsAndProgressChangeNoIndex(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec("ALTER TABLE {{schema}}.jobs SET (fillfactor = 20)") // when old rows are cleared away is not the matter here
	b.insert(200)
	rows := b.take(10, lease)
	tx := b.open()
	for _, row := range rows {
		if _, err := b.Extend(b.ctx, tx, []claim.Lease{row.Lease()}, lease); err != nil {
			t.Fatal(err)
		}
		if err := b.Progress(b.ctx, tx, row.Lease(), []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	if updated, hot := b.updates(tx); updated != 20 || hot != updated {
		t.Errorf("%d of %d updates were HOT", hot, updated)
	}
	b.rollback(tx)
}

// updates counts what the transaction has updated in the table of jobs.
func (b *bench) updates(tx pgx.Tx) (all, hot int) {
	b.t.Helper()
	if err := tx.QueryRow(b.ctx, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relid = 'fencepost.jobs'::regclass").
		Scan(&all, &hot); err != nil {
		b.t.Fatal(err)
	}
	return all, hot
}
