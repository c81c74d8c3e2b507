package doctor

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestExpiredLeases(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.fill()
	w.want("leases", OK)
	w.script(`INSERT INTO {{schema}}.jobs (kind, status, worker_id, attempts, lease_until) VALUES ('test', 'running', 'w', 1, clock_timestamp() - interval '1 second')`)
	w.claim()
	w.want("leases", Warn, "not taken by anybody: 1, the oldest for")
	w.script(`INSERT INTO {{schema}}.jobs (kind, status, worker_id, attempts, lease_until) VALUES ('test', 'running', 'w', 1, clock_timestamp() - interval '2 minutes')`)
	w.claim()
	w.want("leases", Fail, "not taken by anybody: 2, the oldest for 2m", "start a worker")
	// As a tick leaves it that could not take them.
	w.script("UPDATE {{schema}}.claims SET look_at = clock_timestamp() + interval '1 second'")
	w.want("leases", Fail, "not taken by anybody: 2, the oldest for 2m", "start a worker")
}

func TestJobsThatFailAgainAndAgain(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.script("INSERT INTO {{schema}}.jobs (id, kind, attempts) VALUES (1, 'test', 2)")
	w.want("attempts", OK, "no live job is")
	w.script("INSERT INTO {{schema}}.jobs (id, kind, attempts) VALUES (2, 'test', 3), (9007199254740993, 'test', 7)")
	f := w.want("attempts", Warn, "in the third attempt or later: 2, such as 9007199254740993, 2", "fencepost show 9007199254740993")
	if ids := f.Figures["ids"].([]string); len(ids) != 2 {
		t.Errorf("ids: %v", ids)
	}
	w.script("INSERT INTO {{schema}}.jobs (id, kind) SELECT -n, 'test' FROM generate_series(1, 10000) AS n")
	w.want("attempts", OK, "no live job (of the 10000 oldest) is")
}

func TestDeadJobs(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.want("dead-jobs", OK, "none died")
	bury := func(status, ended string) {
		w.script(`INSERT INTO {{schema}}.finished (id, fence, run_at, created_at, finished_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload)
			VALUES (1, 1, now(), now(), ` + ended + `, ` + ended + ` + interval '30 days', 1, 1, 0, 0, '` + status + `', 'default', 'test', '{}')`)
	}
	bury("dead", "clock_timestamp() - interval '25 hours'")
	bury("done", "clock_timestamp()")
	w.want("dead-jobs", OK, "none died")
	bury("dead", "clock_timestamp()")
	bury("dead", "clock_timestamp() - interval '23 hours'")
	w.want("dead-jobs", OK, "2 died in the last day", "--status dead")
}

// No statement reads the whole of a table that may be large.
func TestPlansReadNoWholeTable(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.script(`
		INSERT INTO {{schema}}.jobs (kind, queue, priority, run_at)
		    SELECT 'test', 'q' || n % 3, n % 5 - 2, clock_timestamp() - interval '1 minute' FROM generate_series(1, 60000) AS n;
		INSERT INTO {{schema}}.jobs (kind, status, worker_id, attempts, lease_until)
		    SELECT 'test', 'running', 'w', 1, clock_timestamp() + n * interval '1 second' FROM generate_series(-5000, 15000) AS n;
		INSERT INTO {{schema}}.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload)
		    SELECT n, n, now(), now(), now() + n * interval '30 seconds', 1, 1, 0, 0, 'done', 'default', 'test', '{}' FROM generate_series(1, 90000) AS n;
		ANALYZE {{schema}}.jobs, {{schema}}.finished`)
	w.claim()
	whole := regexp.MustCompile(`Seq Scan on (jobs|finished)\b|Sort Key: [a-z]\.(id|lease_until|keep_until|finished_at|queue|run_at)\b`)
	for name, sql := range map[string]string{
		"fences": sqlNewestFence, "workers": sqlWorkers, "demand": sqlDemand, "strangers": sqlStrangers, "expired": sqlExpired,
		"attempts": strings.ReplaceAll(sqlAttempts, "$1::bigint", "10000"), "dead jobs": strings.ReplaceAll(sqlDeadJobs, "$1::bigint", "10000"),
	} {
		rows, err := w.conn.Query(w.ctx, filled("EXPLAIN "+sql))
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if plan := strings.Join(lines, "\n"); whole.MatchString(plan) {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
	if list, err := w.examine(); err != nil || len(list) == 0 {
		t.Error(err)
	}
}
