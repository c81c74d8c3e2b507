package claim_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// Every statement is one that this server understands.
func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{schema, awkward} {
		b := setUpIn(t, schema)
		for i, statement := range claim.Statements {
			if _, err := b.conn.PgConn().Prepare(b.ctx, fmt.Sprint("statement", i), b.SQL(statement), nil); err != nil {
				t.Errorf("%v, in:\n%s", err, statement)
			}
		}
	}
}

// plan is a node of what EXPLAIN (FORMAT JSON) prints.
type plan struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Cond     string  `json:"Index Cond"`
	Cost     float64 `json:"Total Cost"`
	Filter   string
	Plans    []plan
}

// whole collects the nodes that read a whole table or index: how much they
// cost grows with every row, whatever is joined to them. What a condition on
// an index picks costs as much as the rows that it picks.
func (p plan) whole() (found []string) {
	if p.Type == "Limit" && p.Plans[0].Type == "Index Only Scan" && p.Plans[0].Filter == "" {
		return nil // the first entry of an index
	}
	switch p.Type {
	case "Seq Scan":
		// They have a row for each queue, process, and claim that is open.
		if p.Relation != "queues" && p.Relation != "workers" && p.Relation != "claims" {
			found = append(found, p.Type+" on "+p.Relation)
		}
	case "Index Scan", "Index Only Scan", "Bitmap Index Scan":
		if p.Cond == "" {
			found = append(found, p.Type+" without a condition")
		}
	}
	for _, child := range p.Plans {
		found = append(found, child.whole()...)
	}
	return found
}

// begins says that a walk in the order of claims begins at its mark: that
// what is below is not even looked at to be passed over.
func (p plan) begins() bool {
	return p.Index == "jobs_order" && strings.Contains(p.Cond, "ROW(") ||
		slices.ContainsFunc(p.Plans, plan.begins)
}

// At 200,000 rows, analysed or never, no hot statement reads the whole table
// under the plan that is made once and kept, whatever its parameters.
func TestPlansReadNoWholeTable(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec("ALTER TABLE {{schema}}.jobs SET (autovacuum_enabled = off)")
	b.exec("ALTER TABLE {{schema}}.finished SET (autovacuum_enabled = off)")
	b.exec("SET synchronous_commit = off")
	b.exec(`INSERT INTO {{schema}}.jobs (kind, run_at, status, attempts, lease_until, worker_id)
		SELECT 'kind ' || n % 5, now() + (n - 100000) * interval '1 second',
			CASE WHEN running THEN 'running' ELSE 'ready' END, running::int, CASE WHEN running THEN now() + n * interval '1 ms' END,
			CASE WHEN running THEN 'worker ' || n % 20 END
		FROM generate_series(1, 200000) AS n, LATERAL (SELECT n % 100 = 0 AS running) AS r`)
	b.exec(`INSERT INTO {{schema}}.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload)
		SELECT n, n, now(), now(), now() + n * interval '1 second', 1, 1, 0, 0, 'done', 'default', 'test', '{}' FROM generate_series(1, 30000) AS n`)

	b.exec(`INSERT INTO {{schema}}.workers (worker_id, lock_key, server_start)
		SELECT 'worker ' || n, n, pg_postmaster_start_time() FROM generate_series(0, 199) AS n`)

	b.adopt()

	ids := ask[string](b, "SELECT array_agg(id)::text FROM (SELECT id FROM {{schema}}.jobs WHERE status = 'running' LIMIT 100) AS x")
	array := func(element string) string {
		return "array_fill(" + element + ", ARRAY[100])"
	}
	type statement struct{ name, sql, arguments string }
	finish := "'" + ids + "', " + array("1::bigint") + ", " + array("'retry'::text") + ", " + array("1::bigint") + ", " + array("''::text") + ", false"
	tick := "'{default,other}', NULL, 500, 'own', 'token', NULL, 0, '{worker 1}', '{1}', 'worker 0'"
	from := marksOf(claim.Start{2: {RunAt: time.Now(), ID: 1}})
	statements := []statement{
		{"claim", b.SQL(claim.SQLClaim), "'default', NULL, 100, 30000000, 'worker', " + from + ", true"},
		{"claim of kinds", b.SQL(claim.SQLClaim), "'default', '{kind 1,kind 2}', 100, 30000000, 'worker', " + from + ", true"},
		{"next", b.SQL(claim.SQLNext), "'default', NULL, " + from},
		{"drained", b.SQL(claim.SQLDrained), "'default', NULL, 'teller'"},
		{"finish", b.SQL(claim.SQLFinish), finish},
		{"extend", b.SQL(claim.SQLExtend), "'" + ids + "', " + array("1::bigint") + ", 30000000"},
		{"tick", b.SQL(claim.SQLTick), tick},
		{"tick by leases", b.SQL(claim.SQLByLeases), tick},
		{"sweep", b.SQL(claim.SQLSweep), "100"},
		{"close", b.SQL(claim.SQLClose), "'" + ask[string](b, "SELECT array_agg(id)::text FROM {{schema}}.claims") + "'"},
		{"complete", b.SQL(claim.SQLComplete), "1, 1"},
		{"progress", b.SQL(claim.SQLProgress), "1, 1, '{}'"},
		{"adopt", b.SQL(claim.SQLAdopt), "0, 4096"},
		{"prune", b.SQL(claim.SQLPrune), "1000"},
		{"get", b.SQL(claim.SQLGet), "1"},
		{"check", b.SQL(claim.SQLCheck), "'" + ids + "', " + array("1::bigint")},
		{"cancel", b.SQL(claim.SQLCancel), "'" + ids + "'"},
		{"release", b.SQL(claim.SQLRelease), "'" + ids + "'"},
		{"retry", b.SQL(claim.SQLRetry), "'" + ids + "'"},
		{"delete", b.SQL(claim.SQLDelete), "'" + ids + "'"},
	}
	// What the test must see: an EXISTS that becomes a hash of the table, and the
	// temptation of a partial index.
	bad := []statement{
		{"EXISTS in finish, for each outcome", claim.Mutant(t, schema, claim.SQLFinish,
			"(SELECT true FROM {{schema}}.finished AS f WHERE f.id = o.id AND f.fence = o.fence LIMIT 1)",
			"EXISTS (SELECT FROM {{schema}}.finished AS f WHERE f.id = o.id AND f.fence = o.fence)",
			"FROM rest AS o\nWHERE o.n <> ALL (ARRAY(SELECT d.n FROM d))", "FROM o").SQL(claim.SQLFinish), finish},
		{"EXISTS in tick", claim.Mutant(t, schema, claim.SQLTick,
			"coalesce((SELECT min(f.keep_until) FROM {{schema}}.finished AS f) < clock_timestamp(), false)",
			"EXISTS (SELECT FROM {{schema}}.finished AS f WHERE f.keep_until < (SELECT clock_timestamp()))").SQL(claim.SQLTick), tick},
	}
	const pair = "(r.run_at, r.id) > (p.from_run_at, p.from_id)"
	passesOver := claim.Mutant(t, schema, claim.SQLClaim, pair,
		"(r.run_at > p.from_run_at OR r.run_at = p.from_run_at AND r.id > p.from_id)").SQL(claim.SQLClaim)
	seen := make(map[string]bool)

	for _, setting := range []string{"plan_cache_mode = force_generic_plan", "jit = off", "enable_hashjoin = off", "enable_mergejoin = off"} {
		b.exec("SET " + setting) // as sqlSettings does
	}
	for _, state := range []string{"never analysed", "analysed"} {
		if state == "analysed" {
			b.exec("ANALYZE {{schema}}.jobs")
			b.exec("ANALYZE {{schema}}.finished")
		}
		for _, s := range statements {
			if whole := b.explain(s.sql, s.arguments).whole(); len(whole) > 0 {
				t.Errorf("%s, %s: %v, in\n%s", s.name, state, whole, b.explainText(s.sql, s.arguments))
			}
		}
		for _, s := range statements[:3] {
			if !b.explain(s.sql, s.arguments).begins() {
				t.Errorf("%s, %s: passes over what is below the mark, in\n%s", s.name, state, b.explainText(s.sql, s.arguments))
			}
		}
		if b.explain(passesOver, statements[0].arguments).begins() {
			t.Errorf("%s: the test does not see a claim that passes over what is below the mark", state)
		}
		for _, s := range bad {
			if len(b.explain(s.sql, s.arguments).whole()) > 0 {
				seen[s.name] = true
			}
		}
	}
	for _, s := range bad {
		if !seen[s.name] {
			t.Errorf("the test does not see what is wrong with %s:\n%s", s.name, b.explainText(s.sql, s.arguments))
		}
	}
}

// With three thousand open claims a tick is not so dear by the planner's reckoning that
// the server compiles it, which would take it longer than the tick itself. The tick
// is one statement, so nothing before it can forbid that.
func TestATickIsNotCompiled(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	const above = 100_000 // jit_above_cost as servers come
	const tick = "'{default,other}', NULL, 500, 'own', 'token', NULL, 0, '{}', '{}', 'worker 0'"
	compiled := claim.Mutant(t, schema, claim.SQLTick,
		`c.id = ANY (ARRAY(
          SELECT k.id FROM {{schema}}.claims AS k
          WHERE (SELECT count(*) FROM doubtful) > 0
            AND k.worker_id = ANY (ARRAY(SELECT f.worker_id FROM doubtful AS f))))`,
		`(SELECT count(*) FROM doubtful) > 0 AND c.worker_id = ANY (ARRAY(SELECT f.worker_id FROM doubtful AS f))`).SQL(claim.SQLTick)
	b.exec(`INSERT INTO {{schema}}.jobs (kind, run_at, status, attempts, lease_until, worker_id)
		SELECT 'test', now() + (n - 30000) * interval '1 second',
			CASE WHEN running THEN 'running' ELSE 'ready' END, running::int, CASE WHEN running THEN now() + n * interval '1 ms' END,
			CASE WHEN running THEN 'worker ' || n % 20 END
		FROM generate_series(1, 60000) AS n, LATERAL (SELECT n % 20 = 0 AS running) AS r`)
	b.exec(`INSERT INTO {{schema}}.claims (look_at, worker_id, ids) SELECT lease_until, worker_id, ARRAY[id] FROM {{schema}}.jobs WHERE status = 'running'`)
	for _, state := range []string{"never analysed", "analysed"} {
		if state == "analysed" {
			b.exec("ANALYZE {{schema}}.jobs")
			b.exec("ANALYZE {{schema}}.claims")
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			b.exec("SET plan_cache_mode = " + mode)
			if cost := b.explain(b.SQL(claim.SQLTick), tick).Cost; cost >= above {
				t.Errorf("%s, %s: a tick costs %.0f", state, mode, cost)
			}
			if cost := b.explain(compiled, tick).Cost; cost < above && state == "analysed" {
				t.Errorf("%s: by all claims it costs no more than %.0f", mode, cost)
			}
		}
	}
}

// explain returns the plan that the server keeps for a statement.
func (b *bench) explain(sql, arguments string) plan {
	b.t.Helper()
	var tops []struct{ Plan plan }
	if err := json.Unmarshal([]byte(b.explainAs("(FORMAT JSON)", sql, arguments)), &tops); err != nil {
		b.t.Fatal(err)
	}
	return tops[0].Plan
}

// explainText is the same for people.
func (b *bench) explainText(sql, arguments string) string {
	b.t.Helper()
	return b.explainAs("(COSTS off)", sql, arguments)
}

func (b *bench) explainAs(options, sql, arguments string) string {
	b.t.Helper()
	script := "PREPARE explained AS " + sql + "; EXPLAIN " + options + " EXECUTE explained (" + arguments + "); DEALLOCATE explained"
	results, err := b.conn.PgConn().Exec(b.ctx, script).ReadAll()
	if err != nil {
		b.t.Fatalf("%v, in:\n%s", err, sql)
	}
	var lines []string
	for _, row := range results[1].Rows {
		lines = append(lines, string(row[0]))
	}
	return strings.Join(lines, "\n")
}
