package doctor

import (
	"testing"
	"time"
)

func TestTwoClocks(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, test := range []struct {
		ahead, doubt time.Duration
		want         Verdict
		words        string
	}{
		{0, time.Millisecond, OK, "within 1.0 ms"},
		{2 * s, 0, OK, ""},
		{3 * s, 0, Warn, "3s ahead of this machine's"},
		{-3 * s, 0, Warn, "3s behind this machine's"},
		{3 * s, 2 * s, OK, ""}, // a slow trip proves nothing
		{-time.Hour, s, Warn, "1h0m behind"},
	} {
		f := judgeClock(test.ahead, test.doubt, 2*s)
		f.Check = "clock"
		if f.Verdict != test.want {
			t.Errorf("%v: %+v; want %s", test.ahead, f, test.want)
		}
		(&ward{T: t}).says(f, test.words)
	}
}

// A server whose clock was set back an hour.
func TestAServerWhoseClockIsBehind(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.fill()
	w.want("clock", OK)
	w.want("fences", OK)
	w.script(`CREATE SCHEMA stepped;
		CREATE FUNCTION stepped.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() - interval ''1 hour''';
		GRANT USAGE ON SCHEMA stepped TO PUBLIC`)
	w.patient.Conn.RuntimeParams["search_path"] = "stepped, pg_catalog"
	w.want("clock", Warn, "behind this machine's")
	w.want("fences", Fail, "the newest fence is 1h0m", "let nothing claim")
}

// Wherever the newest fence is.
func TestTheNewestFenceIsFound(t *testing.T) {
	t.Parallel()
	const soon = "(extract(epoch FROM clock_timestamp() + interval '2 minutes') * 1000000)::bigint"
	for name, sql := range map[string]string{
		"running": `INSERT INTO {{schema}}.jobs (id, kind, status, worker_id, attempts, lease_until, fence)
			VALUES (-100000, 'test', 'running', 'w', 1, clock_timestamp() + interval '1 day', ` + soon + `)`,
		"ready":        "INSERT INTO {{schema}}.jobs (kind, fence) VALUES ('test', " + soon + ")",
		"by id":        "INSERT INTO {{schema}}.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload) VALUES (100000, " + soon + ", now(), now(), now(), 1, 20, 0, 0, 'done', 'default', 'test', '{}')",
		"by keep":      "INSERT INTO {{schema}}.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload) VALUES (-100000, " + soon + ", now(), now(), now() + interval '30 days', 1, 20, 0, 0, 'dead', 'default', 'test', '{}')",
		"made by hand": "INSERT INTO {{schema}}.jobs (kind, fence) VALUES ('test', 4611686018427387901)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setUp(t)
			// Many others, so that each place is looked at for itself.
			w.script(`INSERT INTO {{schema}}.jobs (kind) SELECT 'test' FROM generate_series(1, 1500);
				INSERT INTO {{schema}}.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload)
				SELECT n, 1, now(), now(), now() + interval '1 day', 1, 20, 0, 0, 'done', 'default', 'test', '{}' FROM generate_series(1, 1500) AS n`)
			w.want("fences", OK)
			w.script(sql)
			w.claim()
			w.want("fences", Fail, "set the server's clock")
		})
	}
	w := setUp(t)
	w.script("INSERT INTO {{schema}}.jobs (kind, fence) VALUES ('test', (extract(epoch FROM clock_timestamp() + interval '50 seconds') * 1000000)::bigint)")
	w.want("fences", Warn, "ahead of the server's clock")
}
