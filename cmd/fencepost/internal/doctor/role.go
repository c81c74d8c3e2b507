package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// settings are those that sessions of this role begin with in this database.
func settings(ctx context.Context, e *exam) ([]Finding, error) {
	rows, err := ask[struct{ Name, Value string }](ctx, e, `
		SELECT name, coalesce(reset_val, '') FROM pg_settings WHERE name IN
		    ('default_transaction_isolation', 'synchronous_commit', 'statement_timeout', 'transaction_timeout',
		     'idle_in_transaction_session_timeout', 'idle_session_timeout')`)
	if err != nil {
		return nil, err
	}
	value := make(map[string]string)
	for _, r := range rows {
		value[r.Name] = r.Value
	}
	var list []Finding
	if level := value["default_transaction_isolation"]; level != "read committed" {
		list = append(list, but(Warn, figures{"setting": "default_transaction_isolation", "value": level},
			"default_transaction_isolation is "+level+": statements that meet are repeated, so workers are slower",
			"ALTER ROLE … SET default_transaction_isolation = 'read committed' for the role of the workers"))
	}
	// The longest that a statement of a worker is allowed to take is 5 s.
	for _, t := range []struct{ name, what string }{
		{"statement_timeout", "claims and ticks may take 5 s"},
		{"transaction_timeout", "claims and ticks may take 5 s, a handler's own transaction as long as it likes"},
		{"idle_in_transaction_session_timeout", "a handler's own transaction waits while the handler works"},
	} {
		// The unit of all of them is ms; 0 is none.
		if ms, err := strconv.Atoi(value[t.name]); err == nil && ms > 0 && ms < 5000 {
			list = append(list, but(Warn, figures{"setting": t.name, "value_ms": ms},
				fmt.Sprintf("%s is %d ms, and %s", t.name, ms, t.what),
				fmt.Sprintf("ALTER ROLE … SET %s = '30s' for the role of the workers, or 0", t.name)))
		}
	}
	if ms, err := strconv.Atoi(value["idle_session_timeout"]); err == nil && ms > 0 {
		list = append(list, but(Warn, figures{"setting": "idle_session_timeout", "value_ms": ms},
			fmt.Sprintf("idle_session_timeout is %d ms: the connection that listens is idle by design, and is cut each time", ms),
			"ALTER ROLE … SET idle_session_timeout = 0 for the role of the workers"))
	}
	if len(list) > 0 {
		return list, nil
	}
	commit := value["synchronous_commit"]
	message := "isolation, timeouts and synchronous_commit suit workers"
	if commit == "off" || commit == "local" {
		message = "synchronous_commit is " + commit + ": claims and outcomes set it to on for themselves; what this role enqueues may be lost in a crash"
	}
	return []Finding{ok(figures{"synchronous_commit": commit}, "%s", message)}, nil
}

// sqlRights lists what each role needs and whether this one has it. What the
// role needs only one of, and what of a table that is not there, is not in it.
const sqlRights = `
WITH n AS (SELECT oid FROM pg_namespace WHERE nspname = $1::text)
SELECT r.role, r.privilege || ' on ' || r.object,
       CASE r.kind WHEN 'sequence' THEN has_sequence_privilege(c.oid, r.privilege)
                   ELSE has_table_privilege(c.oid, r.privilege) END
FROM (VALUES
    ('worker', 'table', 'jobs', 'SELECT'), ('worker', 'table', 'jobs', 'UPDATE'), ('worker', 'table', 'jobs', 'DELETE'),
    ('worker', 'table', 'finished', 'SELECT'), ('worker', 'table', 'finished', 'INSERT'),
    ('worker', 'table', 'finished', 'UPDATE'), ('worker', 'table', 'finished', 'DELETE'),
    ('worker', 'table', 'workers', 'SELECT'), ('worker', 'table', 'workers', 'INSERT'),
    ('worker', 'table', 'workers', 'UPDATE'), ('worker', 'table', 'workers', 'DELETE'),
    ('worker', 'table', 'claims', 'SELECT'), ('worker', 'table', 'claims', 'INSERT'),
    ('worker', 'table', 'claims', 'UPDATE'), ('worker', 'table', 'claims', 'DELETE'),
    ('worker', 'table', 'queues', 'SELECT'), ('worker', 'table', 'all_jobs', 'SELECT'),
    ('worker', 'table', 'schema_migrations', 'SELECT'), ('worker', 'sequence', 'worker_keys', 'USAGE'),
    ('monitor', 'table', 'jobs', 'SELECT'), ('monitor', 'table', 'finished', 'SELECT'), ('monitor', 'table', 'queues', 'SELECT'),
    ('monitor', 'table', 'workers', 'SELECT'), ('monitor', 'table', 'claims', 'SELECT'), ('monitor', 'table', 'all_jobs', 'SELECT'),
    ('monitor', 'table', 'schema_migrations', 'SELECT')
) AS r (role, kind, object, privilege)
JOIN n ON true
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = r.object
UNION ALL
SELECT r.role, 'USAGE on the schema', has_schema_privilege(n.oid, 'USAGE')
FROM n, (VALUES ('worker'), ('monitor'), ('producer')) AS r (role)
UNION ALL
SELECT r.role, 'EXECUTE on ' || p.proname, has_function_privilege(p.oid, 'EXECUTE')
FROM n JOIN pg_proc AS p ON p.pronamespace = n.oid,
     (VALUES ('worker', 'ring')) AS r (role, name)
WHERE p.proname = r.name
UNION ALL
-- A producer has one way or the other.
SELECT 'producer', 'INSERT and SELECT (id) on jobs, or EXECUTE on enqueue',
       coalesce(bool_or(has_table_privilege(c.oid, 'INSERT') AND has_column_privilege(c.oid, 'id', 'SELECT')), false)
       OR coalesce((SELECT bool_or(has_function_privilege(p.oid, 'EXECUTE')) FROM pg_proc AS p, n
                    WHERE p.pronamespace = n.oid AND p.proname = 'enqueue'), false)
FROM n JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'jobs'
UNION ALL
SELECT 'owner', 'owner of jobs', pg_has_role(c.relowner, 'USAGE')
FROM n JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'jobs'`

type right struct {
	Role, Name string
	Has        bool
}

// rights says what the role of this connection may do: a role need not be able
// to do everything, but one that can do only half of what a worker does is
// probably meant to be one.
func rights(ctx context.Context, e *exam) ([]Finding, error) {
	role, err := askOne[struct{ Name string }](ctx, e, "SELECT current_user::text")
	if err != nil {
		return nil, err
	}
	rows, err := ask[right](ctx, e, sqlRights, e.Schema)
	if err != nil {
		return nil, err
	}
	has, lacks := make(map[string]int), make(map[string][]string)
	for _, r := range rows {
		if r.Has {
			has[r.Role]++
		} else {
			lacks[r.Role] = append(lacks[r.Role], r.Name)
		}
	}
	roles := []string{} // never null in JSON
	for _, r := range []string{"owner", "worker", "producer", "monitor"} {
		if has[r] > 0 && len(lacks[r]) == 0 {
			roles = append(roles, r)
		}
	}
	f := figures{"role": role.Name, "may_be": roles, "missing_for_worker": append([]string{}, lacks["worker"]...)}
	// A monitor reads all of what a worker reads.
	writes := slices.ContainsFunc(rows, func(r right) bool {
		return r.Role == "worker" && r.Has && strings.HasPrefix(r.Name, "UPDATE")
	})
	may := "may be " + strings.Join(roles, ", ")
	switch {
	case writes && len(lacks["worker"]) > 0:
		return []Finding{but(Warn, f, fmt.Sprintf("role %s cannot work: it lacks %s", role.Name, strings.Join(lacks["worker"], ", ")),
			"grant it; fencepost migrate grants shows what each role needs")}, nil
	case len(roles) == 0:
		return []Finding{but(Warn, f, fmt.Sprintf("role %s may be neither worker nor producer nor monitor", role.Name),
			"grant it what it is for; fencepost migrate grants shows what each role needs")}, nil
	case len(lacks["worker"]) > 0:
		may += "; not worker"
	}
	return []Finding{ok(f, "role %s %s", role.Name, may)}, nil
}
