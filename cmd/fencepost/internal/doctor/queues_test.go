package doctor

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// hire registers a worker whose lock somebody holds, as a live process does,
// until fire is called.
func (w *ward) hire(id, queues, kinds string, key int) (fire func()) {
	w.Helper()
	w.script(fmt.Sprintf("INSERT INTO {{schema}}.workers (worker_id, lock_key, server_start, queues, kinds) VALUES ('%s', %d, pg_postmaster_start_time(), '%s', %s)", id, key, queues, kinds))
	process := pgtest.Conn(w.T, w.dsn)
	run(w, process, fmt.Sprintf("SELECT pg_advisory_lock(tableoid::int4, lock_key) FROM {{schema}}.workers WHERE worker_id = '%s'", id))
	return func() {
		w.Helper()
		pid := int64(process.PgConn().PID())
		_ = process.Close(context.Background())
		w.until("SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = $1::bigint)", pid)
	}
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.want("workers", OK, "0 live")
	fire := w.hire("a", `{"default": 10}`, "NULL", 1)
	w.script(`INSERT INTO {{schema}}.jobs (kind, status, worker_id, attempts, lease_until) VALUES ('test', 'running', 'a', 1, clock_timestamp() + interval '1 hour')`)
	w.claim()
	w.want("workers", OK, "1 live")
	w.script("INSERT INTO {{schema}}.workers (worker_id) VALUES ('behind a pooler')")
	w.want("workers", OK, "1 live", "of 1 it cannot be told")
	fire()
	w.want("workers", Warn, "worker a is silent", "running jobs in its name: 1")
	// Looking leaves no lock behind.
	if value[bool](w, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))") {
		t.Error("a lock is left")
	}
}

func TestQueuesWithJobs(t *testing.T) {
	t.Parallel()
	const old = "INSERT INTO {{schema}}.jobs (queue, kind, run_at) VALUES ('a:b', 'mail', clock_timestamp() - interval '2 minutes');"
	const young = "INSERT INTO {{schema}}.jobs (queue, kind) VALUES ('a:b', 'mail');"
	for name, test := range map[string]struct {
		sql    string
		hire   []string // queues and kinds of live workers
		want   Verdict
		words  []string
		unsaid string
	}{
		"none":                     {"", nil, OK, []string{"no job is due"}, ""},
		"scheduled":                {"INSERT INTO {{schema}}.jobs (kind, run_at) VALUES ('mail', clock_timestamp() + interval '1 hour')", nil, Warn, []string{"queue default: the next job is due in 1h", "no live worker serves it", "--queue default,"}, ""},
		"scheduled, somebody":      {"INSERT INTO {{schema}}.jobs (queue, kind, run_at) VALUES ('a:b', 'mail', clock_timestamp() + interval '1 hour')", []string{`{"a:b": 1}`, "NULL"}, OK, []string{"no job is due"}, ""},
		"scheduled, paused":        {"INSERT INTO {{schema}}.jobs (kind, run_at) VALUES ('mail', clock_timestamp() + interval '1 hour'); INSERT INTO {{schema}}.queues (name, paused_at) VALUES ('default', now())", nil, OK, []string{"no job is due"}, ""},
		"young, nobody":            {young, nil, Warn, []string{"queue a:b: 1 due", "no live worker serves it", "fencepost work --exec COMMAND --queue a:b,"}, ""},
		"old, nobody":              {old, nil, Fail, []string{"queue a:b: 1 due, the oldest for 2m", "no live worker serves it"}, ""},
		"old, others":              {old, []string{`{"default": 1}`, "NULL"}, Fail, []string{"no live worker serves it"}, ""},
		"young, somebody":          {young, []string{`{"a:b": 1}`, "NULL"}, OK, []string{"with due jobs: 1"}, ""},
		"old, somebody":            {old, []string{`{"a:b": 1}`, "NULL"}, Warn, []string{"live workers: 1", "more slots"}, ""},
		"old, a kind of nobody":    {old + strings.ReplaceAll(old, "mail", "report"), []string{`{"a:b": 1}`, "'{report}'"}, Fail, []string{"2 due", "no live worker has a handler for kind mail"}, "report"},
		"young, a kind":            {young, []string{`{"a:b": 1}`, "'{mail}'"}, OK, nil, ""},
		"old, silent":              {old + "INSERT INTO {{schema}}.workers (worker_id, lock_key, server_start, queues) VALUES ('dead', 99, now(), '{\"a:b\": 1}')", nil, Fail, []string{"no live worker"}, ""},
		"old, of unknown life":     {old + "INSERT INTO {{schema}}.workers (worker_id, queues) VALUES ('pooled', '{\"a:b\": 1}')", nil, Warn, []string{"of which it cannot be told for 1"}, ""},
		"old, an unregistered one": {old + "INSERT INTO {{schema}}.jobs (queue, kind, status, worker_id, attempts, lease_until) VALUES ('a:b', 'x', 'running', 'v1', 1, clock_timestamp() + interval '1 minute')", nil, Warn, []string{"live workers: 0"}, ""},
		"paused":                   {old + "INSERT INTO {{schema}}.queues (name, paused_at) VALUES ('a:b', clock_timestamp() - interval '3 hours')", nil, Warn, []string{"paused for 3h0m", "fencepost queue resume a:b"}, ""},
		"paused, nothing due":      {"INSERT INTO {{schema}}.queues (name, paused_at) VALUES ('a:b', now())", nil, OK, nil, ""},
		"bad queues of a worker":   {old, []string{`[1]`, "NULL"}, Fail, []string{"no live worker"}, ""},
		"spent": {`INSERT INTO {{schema}}.jobs (id, queue, kind, fence) VALUES (7, 'a:b', 'mail', 4611686018427387901),
			(8, 'a:b', 'mail', 4611686018427387902), (9, 'a:b', 'mail', 4611686018427387903)`, []string{`{"a:b": 1}`, "NULL"}, Fail, []string{"queue a:b: no worker takes job 8, 9", "fencepost cancel 8 9,"}, ""},
		"many": {"INSERT INTO {{schema}}.jobs (queue, kind, run_at) SELECT 'a:b', 'mail', clock_timestamp() - interval '2 minutes' FROM generate_series(1, 300)", nil, Fail, []string{"at least 100 due"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setUp(t)
			if test.hire != nil {
				w.hire("a", test.hire[0], test.hire[1], 1)
			}
			w.script(test.sql)
			f := w.want("queues", test.want, test.words...)
			if test.unsaid != "" && strings.Contains(f.Message, test.unsaid) {
				t.Errorf("%q says %q", f.Message, test.unsaid)
			}
		})
	}
}

// A remedy is made to be pasted, and a name is whatever a producer has chosen.
func TestNamesInRemediesAreWordsOfAShell(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a:b", "", "two words", "$(touch x)", "it's; rm -rf /", "--all", "a\nb"} {
		for _, d := range []demand{{Queue: name, Jobs: 1}, {Queue: name, Jobs: 1, Age: 90}, {Queue: name, Jobs: 1, Paused: new(float64)}, {Queue: name, Next: new(float64)}} {
			remedy := d.judge(nil, d.Age > 0).Remedy
			_, command, _ := strings.Cut(remedy, "fencepost ")
			command, _, _ = strings.Cut(command, ", or a service")
			out, err := exec.CommandContext(t.Context(), "sh", "-c", "for w in "+command+"; do last=$w; done; printf %s \"$last\"").Output()
			if err != nil || string(out) != name {
				t.Errorf("of %q a shell takes %q, %v; want %q", command, out, err, name)
			}
		}
	}
}

// Each queue is a line, failures first, and of very many only some.
func TestManyQueues(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.script(`INSERT INTO {{schema}}.jobs (queue, kind, priority) SELECT 'young ' || n, 'test', n % 5 - 2 FROM generate_series(1, 1200) AS n;
		INSERT INTO {{schema}}.jobs (queue, kind, run_at) VALUES ('old', 'test', clock_timestamp() - interval '1 hour')`)
	list := w.find("queues")
	if len(list) != 20 || list[0].Figures["queue"] != "old" || list[0].Verdict != Fail || list[1].Verdict != Warn {
		t.Errorf("%d lines, first %+v", len(list), list[0])
	}
}
