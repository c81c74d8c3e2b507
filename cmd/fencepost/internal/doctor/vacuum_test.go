package doctor

import "testing"

func TestAutovacuumOfATable(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.want("autovacuum", OK)
	for _, off := range []string{"off", "false", "0"} {
		w.script("ALTER TABLE {{schema}}.jobs SET (autovacuum_enabled = " + off + ")")
		w.want("autovacuum", Warn, "autovacuum is off for jobs", `ALTER TABLE "fence ""post's; $1"."jobs" RESET (autovacuum_enabled)`)
	}
	w.script("ALTER TABLE {{schema}}.jobs SET (autovacuum_enabled = on)")
	w.want("autovacuum", OK)
}

func TestDeadRows(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.want("dead-rows", OK, "jobs 0 dead, 0 live, vacuumed never")
	w.limited(func(l *limits) { l.deadRows = 50 })
	w.script("ALTER TABLE {{schema}}.jobs SET (autovacuum_enabled = off)") // or it might be faster than the test
	w.script("INSERT INTO {{schema}}.jobs (kind) SELECT 'test' FROM generate_series(1, 110); DELETE FROM {{schema}}.jobs WHERE id % 2 = 0")
	stats := "SELECT coalesce((SELECT n_dead_tup >= $1::bigint FROM pg_stat_user_tables WHERE relname = 'jobs' AND schemaname = $2::text), false)"
	w.until(stats, int64(55), testSchema)
	w.want("dead-rows", OK) // as many live ones
	w.script("DELETE FROM {{schema}}.jobs WHERE id > 20")
	w.until(stats, int64(100), testSchema)
	w.want("dead-rows", Warn, "jobs: about 100 dead rows beside 10 live ones, last vacuumed never", "VACUUM")
	w.script("VACUUM {{schema}}.jobs")
	w.until("SELECT n_dead_tup = 0 FROM pg_stat_user_tables WHERE relname = 'jobs' AND schemaname = $1::text", testSchema)
	w.want("dead-rows", OK, "ago")
}

func TestNotificationQueue(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	for usage, want := range map[string]Verdict{"0.1": OK, "0.11": Warn, "0.5": Warn, "0.51": Fail, "1": Fail} {
		w.script("CREATE OR REPLACE FUNCTION pg_catalog.pg_notification_queue_usage() RETURNS double precision LANGUAGE sql AS 'SELECT " + usage + "::float8'")
		w.want("notifications", want, "% full")
	}
}
