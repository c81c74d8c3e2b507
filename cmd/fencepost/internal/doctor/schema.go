package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/migrations"
)

// schema compares the tables' version with this program's.
func schema(ctx context.Context, e *exam) ([]Finding, error) {
	var states []migrations.State
	err := e.look(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return migrations.Check(ctx, tx, e.Schema)
	})
	if errors.Is(err, migrations.ErrSchema) {
		e.unfit = err
		message, remedy := strings.TrimPrefix(err.Error(), migrations.ErrSchema.Error()+": "), ""
		if i := strings.LastIndex(message, "; "); i >= 0 {
			message, remedy = message[:i], message[i+2:]
		}
		return []Finding{but(Fail, nil, message, remedy)}, nil
	}
	if err == nil {
		err = e.look(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
			states, err = migrations.Status(ctx, tx, e.Schema)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	version := 0
	var changed []string
	for _, s := range states {
		if !s.AppliedAt.IsZero() {
			version = max(version, s.Version)
		}
		if s.Changed {
			changed = append(changed, fmt.Sprint(s.Version, " ", s.Name))
		}
	}
	f := figures{"version": version, "program": migrations.Latest}
	if len(changed) > 0 {
		return []Finding{but(Warn, f, fmt.Sprintf("what was applied as migration %s is not what this program has under that number", strings.Join(changed, ", ")),
			"find out which program migrated this schema, and use that one")}, nil
	}
	return []Finding{ok(f, "version %d; this program has %d", version, migrations.Latest)}, nil
}

// made is what the migrations make, without what comes with something else: a
// primary key's index is its constraint.
var made = map[string][]string{
	"table":    {"claims", "finished", "jobs", "queues", "schema_migrations", "workers"},
	"view":     {"all_jobs"},
	"index":    {"finished_id", "finished_keep_until", "jobs_order"},
	"sequence": slices.Concat([]string{"claims_id_seq", "jobs_id_seq"}, promises(), []string{"quiet_slots", "worker_keys"}),
	"constraint": {
		"claims_pkey", "finished_status", "jobs_attempts", "jobs_created_at", "jobs_fence", "jobs_kind", "jobs_last_error",
		"jobs_lease_until", "jobs_payload", "jobs_pkey", "jobs_priority", "jobs_progress", "jobs_queue", "jobs_run_at",
		"jobs_snoozes", "jobs_status", "jobs_worker_id", "queues_bell", "queues_keep", "queues_name", "queues_paused_at", "queues_pkey",
		"queues_quiet_slot", "queues_quiet_slot_key", "schema_migrations_pkey", "workers_id", "workers_lock", "workers_pkey", "workers_times",
	},
	"function": {"bell", "enqueue", "hush", "promise", "promised", "recall", "ring"},
}

// promises are the sequences of the slots that queues may have.
func promises() (names []string) {
	for slot := range 64 {
		names = append(names, fmt.Sprintf("quiet_%02d", slot))
	}
	return names
}

// sqlThere lists what of our kinds a schema has. NOT NULL is a constraint with
// a name from PostgreSQL 18 on, and none before.
const sqlThere = `
WITH n AS (SELECT oid FROM pg_namespace WHERE nspname = $1::text)
SELECT CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'table' WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE 'index' END, c.relname::text
FROM n JOIN pg_class AS c ON c.relnamespace = n.oid
WHERE c.relkind IN ('r', 'p', 'v', 'S', 'i', 'I')
  AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conindid = c.oid AND k.conname = c.relname)
UNION ALL
SELECT 'constraint', k.conname::text FROM n JOIN pg_constraint AS k ON k.connamespace = n.oid WHERE k.contype <> 'n'
UNION ALL
SELECT 'function', p.proname::text FROM n JOIN pg_proc AS p ON p.pronamespace = n.oid
ORDER BY 1, 2`

type object struct{ Kind, Name string }

// objects looks for what somebody has dropped by hand.
func objects(ctx context.Context, e *exam) ([]Finding, error) {
	rows, err := ask[object](ctx, e, sqlThere, e.Schema)
	if err != nil {
		return nil, err
	}
	there := make(map[object]bool)
	for _, r := range rows {
		there[r] = true
	}
	var list []Finding
	for _, kind := range []string{"table", "view", "sequence", "index", "constraint", "function"} {
		for _, name := range made[kind] {
			if !there[object{kind, name}] {
				list = append(list, but(Fail, figures{"kind": kind, "name": name}, fmt.Sprintf("%s %s is missing", kind, name),
					"make it again as fencepost migrate print shows it"))
			}
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	return []Finding{ok(nil, "every table, index, constraint and function is there")}, nil
}

// sqlHindrances names the indexes of jobs that mention a column which a claim or
// an extension changes: as a column of their own, or in an expression or a
// condition. Each of them makes every claim write into all indexes. One of a kind
// that keeps a summary of pages does not, from PostgreSQL 16 on.
const sqlHindrances = `
SELECT c.relname::text, string_agg(DISTINCT a.attname::text, ', ' ORDER BY a.attname::text)
FROM pg_namespace AS n
JOIN pg_class AS t ON t.relnamespace = n.oid AND t.relname = 'jobs'
JOIN pg_index AS i ON i.indrelid = t.oid
JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_am AS m ON m.oid = c.relam
JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attname IN ('status', 'attempts', 'lease_until', 'fence', 'worker_id')
WHERE n.nspname = $1::text
  AND (m.amname <> 'brin' OR current_setting('server_version_num')::integer < 160000)
  AND (a.attnum = ANY (i.indkey)
       OR EXISTS (SELECT FROM pg_depend AS d
                  WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
                    AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid AND d.refobjsubid = a.attnum))
GROUP BY c.relname
ORDER BY 1`

// indexes that are not valid cost every write, and serve no reader; and there are
// some that make claims slow.
func indexes(ctx context.Context, e *exam) ([]Finding, error) {
	rows, err := ask[struct {
		Name, Table string
		Building    bool
	}](ctx, e, `
		SELECT c.relname::text, t.relname::text,
		       EXISTS (SELECT FROM pg_stat_progress_create_index AS b WHERE b.index_relid = c.oid)
		FROM pg_namespace AS n
		JOIN pg_class AS t ON t.relnamespace = n.oid
		JOIN pg_index AS i ON i.indrelid = t.oid
		JOIN pg_class AS c ON c.oid = i.indexrelid
		WHERE n.nspname = $1::text AND NOT (i.indisvalid AND i.indisready AND i.indislive)
		ORDER BY 2, 1`, e.Schema)
	if err != nil {
		return nil, err
	}
	var list []Finding
	for _, r := range rows {
		f := figures{"index": r.Name, "table": r.Table, "building": r.Building}
		qualified := pgx.Identifier{e.Schema, r.Name}.Sanitize()
		switch {
		case r.Building:
			list = append(list, ok(f, "index %s of %s is being built", r.Name, r.Table))
		case slices.Contains(made["index"], r.Name) || slices.Contains(made["constraint"], r.Name):
			list = append(list, but(Fail, f, fmt.Sprintf("index %s of %s is invalid: claims do not use it", r.Name, r.Table),
				"REINDEX INDEX CONCURRENTLY "+qualified))
		default:
			list = append(list, but(Warn, f, fmt.Sprintf("index %s of %s is invalid: each write pays for it, and no query uses it", r.Name, r.Table),
				"DROP INDEX CONCURRENTLY "+qualified+", and build it again"))
		}
	}
	hindrances, err := ask[struct{ Name, Columns string }](ctx, e, sqlHindrances, e.Schema)
	if err != nil {
		return nil, err
	}
	for _, h := range hindrances {
		list = append(list, but(Warn, figures{"index": h.Name, "columns": h.Columns},
			fmt.Sprintf("index %s of jobs mentions what every claim changes (%s): claims write into all indexes because of it, and are slower", h.Name, h.Columns),
			"DROP INDEX CONCURRENTLY "+pgx.Identifier{e.Schema, h.Name}.Sanitize()+", or build it without "+h.Columns))
	}
	if len(list) == 0 {
		list = append(list, ok(nil, "all are valid, and none makes claims slow"))
	}
	return list, nil
}

// bell is the trigger without which an INSERT wakes nobody.
func bell(ctx context.Context, e *exam) ([]Finding, error) {
	rows, err := ask[struct {
		Enabled string
		Definer bool
	}](ctx, e, `
		SELECT g.tgenabled::text, p.prosecdef
		FROM pg_namespace AS n
		JOIN pg_class AS t ON t.relnamespace = n.oid AND t.relname = 'jobs'
		JOIN pg_trigger AS g ON g.tgrelid = t.oid AND g.tgname = 'bell' AND NOT g.tgisinternal
		JOIN pg_proc AS p ON p.oid = g.tgfoid
		WHERE n.nspname = $1::text`, e.Schema)
	if err != nil {
		return nil, err
	}
	again := "ALTER TABLE " + pgx.Identifier{e.Schema, "jobs"}.Sanitize() + " ENABLE ALWAYS TRIGGER bell"
	const poll = "new jobs ring no bell and wait for polling"
	switch {
	case len(rows) == 0:
		return []Finding{but(Fail, figures{"trigger": "missing"}, "the trigger bell of jobs is missing: "+poll,
			"make it again as fencepost migrate print shows it")}, nil
	case rows[0].Enabled == "D" || rows[0].Enabled == "R":
		return []Finding{but(Fail, figures{"trigger": "disabled"}, "the trigger bell of jobs is disabled: "+poll, again)}, nil
	case rows[0].Enabled != "A":
		return []Finding{but(Warn, figures{"trigger": "origin"}, "the trigger bell of jobs is not enabled ALWAYS: jobs from sessions whose session_replication_role is replica ring no bell", again)}, nil
	case !rows[0].Definer:
		return []Finding{but(Warn, figures{"trigger": "invoker"}, "the function bell is not SECURITY DEFINER: producers need rights that they should not have",
			"ALTER FUNCTION "+pgx.Identifier{e.Schema, "bell"}.Sanitize()+"() SECURITY DEFINER")}, nil
	default:
		return []Finding{ok(figures{"trigger": "always"}, "the trigger is there, and enabled ALWAYS")}, nil
	}
}
