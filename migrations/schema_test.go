package migrations_test

import (
	"strings"
	"testing"
)

// A row that no worker could handle is refused when it is written, by a
// constraint whose name says why.
func TestBadRowsAreRefused(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	const running = "status = 'running', attempts = 1, lease_until = clock_timestamp(), worker_id = 'w'"
	for _, test := range []struct{ set, constraint string }{
		{"run_at = 'infinity'", "jobs_run_at"},
		{"run_at = '-infinity'", "jobs_run_at"},
		{"run_at = '0044-03-15 BC'", "jobs_run_at"},
		{"run_at = '1969-12-31 23:59:59Z'", "jobs_run_at"},
		{"run_at = '10000-01-01 00:00:00Z'", "jobs_run_at"},
		{"created_at = 'infinity'", "jobs_created_at"},
		{"created_at = '-infinity'", "jobs_created_at"},
		{"created_at = '0044-03-15 BC'", "jobs_created_at"},
		{"created_at = '10000-01-01 00:00:00Z'", "jobs_created_at"},
		{running + ", lease_until = 'infinity'", "jobs_lease_until"},
		{running + ", lease_until = '-infinity'", "jobs_lease_until"},
		{"priority = 3", "jobs_priority"},
		{"priority = -3", "jobs_priority"},
		{"queue = ''", "jobs_queue"},
		{"queue = repeat('x', 129)", "jobs_queue"},
		{"queue = repeat('ä', 65)", "jobs_queue"},
		{"kind = ''", "jobs_kind"},
		{"kind = repeat('x', 129)", "jobs_kind"},
		{"status = 'done'", "jobs_status"},
		{"status = 'READY'", "jobs_status"},
		{"status = ''", "jobs_status"},
		{"lease_until = clock_timestamp()", "jobs_status"},
		{"worker_id = 'w'", "jobs_status"},
		{"attempts = 20", "jobs_status"}, // ready, and no attempt left
		{"max_attempts = 0", "jobs_attempts"},
		{"attempts = -1", "jobs_attempts"},
		{running + ", attempts = 0", "jobs_status"},
		{running + ", attempts = 21", "jobs_status"},
		{running + ", worker_id = NULL", "jobs_status"},
		{running + ", worker_id = ''", "jobs_worker_id"},
		{running + ", worker_id = repeat('x', 129)", "jobs_worker_id"},
		{running + ", lease_until = NULL", "jobs_status"},
		{"snoozes = -1", "jobs_snoozes"},
		{"fence = -1", "jobs_fence"},
		{"last_error = repeat('x', 8193)", "jobs_last_error"},
		{"payload = to_jsonb(repeat('x', 9000000))", "jobs_payload"},
		{"progress = to_jsonb(repeat('x', 600000))", "jobs_progress"},
		{"kind = NULL", "NOT NULL"},
		{"queue = NULL", "NOT NULL"},
		{"payload = NULL", "NOT NULL"},
		{"run_at = NULL", "NOT NULL"},
	} {
		columns, values := split(test.set)
		err := runScript(b.ctx, b.conn, "INSERT INTO fencepost.jobs ("+columns+") VALUES ("+values+")")
		want := "23514"
		if test.constraint == "NOT NULL" {
			want = "23502"
		}
		if code(err) != want || want == "23514" && constraint(err) != test.constraint {
			t.Errorf("%s: got %v, want a violation of %s", test.set, err, test.constraint)
		}
	}
	for _, set := range []string{
		"kind = 'test'", "run_at = '1970-01-01 00:00:00Z'", "run_at = '9999-12-31 23:59:59.999999Z'", "priority = -2", "priority = 2",
		"queue = repeat('x', 128)", "queue = repeat('ä', 64)", "queue = E' \\t:\\n'", "kind = repeat('x', 128)", "payload = 'null'", "payload = '[]'",
		"payload = to_jsonb(repeat('x', 1048576))", "progress = to_jsonb(repeat('x', 65536))", "last_error = repeat('x', 8192)",
		"max_attempts = 1", "max_attempts = 2147483647, attempts = 2147483646", "snoozes = 2147483647", "fence = 9007199254740993", running,
	} {
		columns, values := split(set)
		if err := runScript(b.ctx, b.conn, "INSERT INTO fencepost.jobs ("+columns+") VALUES ("+values+")"); err != nil {
			t.Errorf("%s: %v", set, err)
		}
	}
	for sql, name := range map[string]string{
		"INSERT INTO fencepost.queues VALUES ('', '1 day')":                 "queues_name",
		"INSERT INTO fencepost.queues VALUES (repeat('x', 129), '1 day')":   "queues_name",
		"INSERT INTO fencepost.queues VALUES ('a', '-1 second')":            "queues_keep",
		"INSERT INTO fencepost.queues VALUES ('a', '101 years')":            "queues_keep",
		"INSERT INTO fencepost.queues VALUES ('a', '-1 day +23:59:59.999')": "queues_keep",

		"INSERT INTO fencepost.queues (name, paused_at) VALUES ('a', 'infinity')":         "queues_paused_at",
		"INSERT INTO fencepost.queues (name, bell) VALUES ('a', 'sometimes')":             "queues_bell",
		"INSERT INTO fencepost.queues (name, quiet_slot) VALUES ('a', -1)":                "queues_quiet_slot",
		"INSERT INTO fencepost.queues (name, quiet_slot) VALUES ('a', 64)":                "queues_quiet_slot",
		"INSERT INTO fencepost.queues (name, quiet_slot) VALUES ('a', 1), ('b', 1)":       "queues_quiet_slot_key",
		"INSERT INTO fencepost.workers (worker_id) VALUES ('')":                           "workers_id",
		"INSERT INTO fencepost.workers (worker_id) VALUES (repeat('x', 129))":             "workers_id",
		"INSERT INTO fencepost.workers (worker_id, lock_key) VALUES ('a', 1)":             "workers_lock",
		"INSERT INTO fencepost.workers (worker_id, server_start) VALUES ('a', now())":     "workers_lock",
		"INSERT INTO fencepost.workers (worker_id, started_at) VALUES ('a', 'infinity')":  "workers_times",
		"INSERT INTO fencepost.workers (worker_id, written_at) VALUES ('a', '-infinity')": "workers_times",
	} {
		if err := runScript(b.ctx, b.conn, sql); constraint(err) != name {
			t.Errorf("%s: got %v, want a violation of %s", sql, err, name)
		}
	}
}

// split turns "a = 1, b = f(2, 3)" into columns and values; what is set twice
// counts as the last one says, and a kind is added.
func split(set string) (columns, values string) {
	byColumn, order := map[string]string{"kind": "'test'"}, []string{"kind"}
	last := ""
	for part := range strings.SplitSeq(set, ", ") {
		column, value, found := strings.Cut(part, " = ")
		if !found { // a comma within a value
			byColumn[last] += ", " + part
			continue
		}
		if _, ok := byColumn[column]; !ok {
			order = append(order, column)
		}
		byColumn[column], last = value, column
	}
	list := make([]string, len(order))
	for i, column := range order {
		list[i] = byColumn[column]
	}
	return strings.Join(order, ", "), strings.Join(list, ", ")
}

// B132: the defaults of a plain INSERT are now, whatever the session's zone,
// and advance within a long transaction and a bulk insert.
func TestDefaultTimes(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	for _, zone := range []string{"UTC", "America/New_York", "Asia/Tokyo", "Asia/Kathmandu"} {
		b.script("TRUNCATE fencepost.jobs; SET timezone = '" + zone + "'")
		b.script(`BEGIN; SELECT now(); SELECT pg_sleep(0.05); INSERT INTO fencepost.jobs (kind) SELECT 'test' FROM generate_series(1, 1000);
			CREATE TABLE IF NOT EXISTS spread (begun timestamptz); TRUNCATE spread; INSERT INTO spread VALUES (now()); COMMIT`)
		expect(b, true, "SELECT bool_and(abs(extract(epoch FROM clock_timestamp() - run_at)) < 60 AND abs(extract(epoch FROM created_at - run_at)) < 1) FROM fencepost.jobs")
		expect(b, true, "SELECT min(run_at) >= (SELECT begun + interval '50 ms' FROM spread) FROM fencepost.jobs")
		expect(b, true, "SELECT count(DISTINCT run_at) > 10 FROM fencepost.jobs")
	}
}

// B113, B114: the ids' sequence is of 64 bits and moves only with rows. Another
// one gives the keys of advisory locks, which are integers: it goes round. The
// slots of queues are given once each, and what is promised for them is not worth
// a log.
func TestSequences(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	b.script("INSERT INTO fencepost.jobs (kind) SELECT 'test' FROM generate_series(1, 1000)")
	expect(b, "claims_id_seq bigint -, jobs_id_seq bigint 1000, quiet_slots smallint -, worker_keys integer cycle -", `SELECT string_agg(concat_ws(' ', sequencename, data_type,
		CASE WHEN cycle THEN 'cycle' END, coalesce(last_value::text, '-')), ', ' ORDER BY sequencename) FROM pg_sequences WHERE schemaname = 'fencepost' AND sequencename !~ 'quiet_[0-9]'`)
	logged := map[bool]string{true: "u", false: "p"}[ask[int](b, "SELECT current_setting('server_version_num')::int") >= 150000]
	expect(b, int64(64), "SELECT count(*) FROM pg_class WHERE relnamespace = 'fencepost'::regnamespace AND relkind = 'S' AND relname ~ '^quiet_[0-9]{2}$' AND relpersistence = $1::\"char\"", logged)
	for slot := range 64 {
		expect(b, int64(slot), "SELECT nextval('fencepost.quiet_slots')")
	}
	if err := runScript(b.ctx, b.conn, "SELECT nextval('fencepost.quiet_slots')"); code(err) != "2200H" {
		t.Errorf("a 65th slot: %v", err)
	}
	expect(b, int64(0), `SELECT count(*) FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
		WHERE c.relnamespace = 'fencepost'::regnamespace AND c.relkind IN ('r', 'v') AND a.attname IN ('id', 'fence') AND a.atttypid <> 'bigint'::regtype`)
	b.script("ALTER TABLE fencepost.jobs ALTER COLUMN id RESTART WITH 2147483646")
	b.script("INSERT INTO fencepost.jobs (kind) VALUES ('last'), ('last'), ('last')")
	expect(b, int64(2147483648), "SELECT max(id) FROM fencepost.jobs")
	// A retried job comes back with its id.
	b.script("INSERT INTO fencepost.jobs (id, kind) VALUES (9007199254740993, 'own id')")
}

// B133: every time is an instant.
func TestNoColumnWithoutAZone(t *testing.T) {
	t.Parallel()
	b := migrated(t)
	expect(b, int64(0), `SELECT count(*) FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
		WHERE c.relnamespace = 'fencepost'::regnamespace AND a.atttypid IN ('timestamp'::regtype, 'date'::regtype, 'time'::regtype)`)
}
