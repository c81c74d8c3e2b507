package doctor

import (
	"maps"
	"slices"
	"testing"

	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// The list of what there has to be is what the migrations make, no more and no
// less.
func TestTheListIsWhatTheMigrationsMake(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	e := newExam(w.patient)
	defer e.close()
	rows, err := ask[object](w.ctx, e, sqlThere, testSchema)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string][]string)
	for _, r := range rows {
		got[r.Kind] = append(got[r.Kind], r.Name)
	}
	for _, kind := range slices.Sorted(maps.Keys(got)) {
		slices.Sort(got[kind])
		if !slices.Equal(got[kind], made[kind]) {
			t.Errorf("%s: there are %q; the list has %q", kind, got[kind], made[kind])
		}
	}
	if len(got) != len(made) {
		t.Errorf("kinds: there are %d, the list has %d", len(got), len(made))
	}
}

func TestMissingObjects(t *testing.T) {
	t.Parallel()
	for words, sql := range map[string]string{
		"index jobs_order is missing":        "DROP INDEX {{schema}}.jobs_order",
		"constraint jobs_status is missing":  "ALTER TABLE {{schema}}.jobs DROP CONSTRAINT jobs_status",
		"constraint workers_pkey is missing": "ALTER TABLE {{schema}}.workers DROP CONSTRAINT workers_pkey",
		"view all_jobs is missing":           "DROP VIEW {{schema}}.all_jobs",
		"function recall is missing":         "DROP FUNCTION {{schema}}.recall(text)",
		"sequence worker_keys is missing":    "DROP SEQUENCE {{schema}}.worker_keys",
		"table schema_migrations is missing": "ALTER TABLE {{schema}}.schema_migrations RENAME TO x; ALTER TABLE {{schema}}.x ADD CONSTRAINT y CHECK (true)",
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			w := setUp(t)
			w.script(sql)
			w.want("objects", Fail, words, "fencepost migrate print")
		})
	}
}

func TestInvalidIndexes(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.script("INSERT INTO {{schema}}.jobs (kind) VALUES ('same'), ('same')")
	if _, err := w.conn.Exec(w.ctx, filled("CREATE UNIQUE INDEX CONCURRENTLY mine ON {{schema}}.jobs (kind)")); err == nil {
		t.Fatal("the index is there")
	}
	w.want("indexes", Warn, "index mine of jobs is invalid", `DROP INDEX CONCURRENTLY "fence ""post's; $1"."mine"`)
	w.script("DROP INDEX {{schema}}.mine")
	w.want("indexes", OK)

	// One that waits for somebody's transaction is only being built.
	writer := pgtest.Conn(t, w.dsn)
	run(w, writer, "BEGIN; INSERT INTO {{schema}}.jobs (kind) VALUES ('x')")
	builder, built := pgtest.Conn(t, w.dsn), make(chan error, 1)
	go func() {
		_, err := builder.Exec(w.ctx, filled("CREATE INDEX CONCURRENTLY slow ON {{schema}}.jobs (kind)"))
		built <- err
	}()
	w.until("SELECT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting%' AND index_relid <> 0)")
	w.want("indexes", OK, "index slow of jobs is being built")
	run(w, writer, "COMMIT")
	if err := <-built; err != nil {
		t.Fatal(err)
	}

	w.script("UPDATE pg_index SET indisvalid = false WHERE indexrelid = (SELECT c.oid FROM pg_class AS c WHERE c.relname = 'jobs_order')")
	w.want("indexes", Fail, "index jobs_order of jobs is invalid", "REINDEX INDEX CONCURRENTLY")
}

// Whatever way a column that claims change gets into an index.
func TestIndexesThatMakeClaimsSlow(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	for index, columns := range map[string]string{
		"(status)":                                    "status",
		"(kind, worker_id)":                           "worker_id",
		"(kind) INCLUDE (lease_until, fence)":         "fence, lease_until",
		"((attempts + 1))":                            "attempts",
		"((md5(kind || status)))":                     "status",
		"(kind) WHERE status = 'running'":             "status",
		"(run_at) WHERE attempts > 1 AND fence <> id": "attempts, fence",
		"(kind) WHERE (CASE WHEN status = 'ready' THEN queue END) = 'a'": "status",
	} {
		w.script("CREATE INDEX mine ON {{schema}}.jobs " + index)
		w.want("indexes", Warn, "index mine of jobs mentions what every claim changes ("+columns+")", `DROP INDEX CONCURRENTLY "fence ""post's; $1"."mine", or build it without `+columns)
		w.script("DROP INDEX {{schema}}.mine")
	}
	w.script("ALTER TABLE {{schema}}.jobs ADD CONSTRAINT mine UNIQUE (id, fence)")
	w.want("indexes", Warn, "index mine of jobs mentions what every claim changes (fence)")
	w.script(`ALTER TABLE {{schema}}.jobs DROP CONSTRAINT mine;
		CREATE INDEX ON {{schema}}.jobs (kind, created_at) INCLUDE (snoozes) WHERE priority > 0 AND last_error IS NULL;
		CREATE INDEX ON {{schema}}.jobs USING gin (payload); CREATE INDEX ON {{schema}}.finished (status, fence)`)
	w.want("indexes", OK, "none makes claims slow")
}

func TestTheTriggerThatRings(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.want("bell", OK)
	for _, step := range []struct {
		sql   string
		want  Verdict
		words string
	}{
		{"ALTER FUNCTION {{schema}}.bell() SECURITY INVOKER", Warn, "not SECURITY DEFINER"},
		{"ALTER TABLE {{schema}}.jobs ENABLE TRIGGER bell", Warn, "ENABLE ALWAYS TRIGGER bell"},
		{"ALTER TABLE {{schema}}.jobs ENABLE REPLICA TRIGGER bell", Fail, "is disabled"},
		{"ALTER TABLE {{schema}}.jobs DISABLE TRIGGER bell", Fail, "is disabled"},
		{"DROP TRIGGER bell ON {{schema}}.jobs", Fail, "is missing"},
	} {
		w.script(step.sql)
		w.want("bell", step.want, step.words)
	}
}
