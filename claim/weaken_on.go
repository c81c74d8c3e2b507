//go:build torture

package claim

import (
	"strings"

	"github.com/fencepost-go/fencepost/internal/torture"
)

// weakened is what becomes of the statements without a guard: each text is
// replaced wherever it is found.
var weakened = map[torture.Guard][]struct{ from, to string }{
	torture.FinishFence: {{
		"WHERE j.id = o.id AND j.fence = o.fence AND o.verb IN",
		"WHERE j.id = o.id AND o.verb IN",
	}, {
		"WHERE j.id = o.id AND j.fence = o.fence\n        FOR UPDATE SKIP LOCKED",
		"WHERE j.id = o.id\n        FOR UPDATE SKIP LOCKED",
	}},
	torture.ExtendFence: {{
		"WHERE j.id = o.id AND j.fence = o.fence\n        FOR NO KEY UPDATE SKIP LOCKED",
		"WHERE j.id = o.id\n        FOR NO KEY UPDATE SKIP LOCKED",
	}, {
		"WHERE m.id = o.id AND m.fence = o.fence)",
		"WHERE m.id = o.id)",
	}},
	torture.CompleteFence: {{
		"WHERE j.id = $1::bigint AND j.fence = $2::bigint FOR UPDATE",
		"WHERE j.id = $1::bigint FOR UPDATE",
	}},
	// What was found to be over is taken two seconds later, by its id, by each who
	// has found it.
	torture.ReapLock: {{
		"LIMIT 500\n    FOR UPDATE SKIP LOCKED",
		"LIMIT 500",
	}, {
		"OFFSET $7::bigint\n    FOR UPDATE SKIP LOCKED",
		"OFFSET $7::bigint",
	}, {
		"SELECT l.id FROM l WHERE l.attempts < l.max_attempts",
		"SELECT l.id FROM l WHERE l.attempts < l.max_attempts AND (l.id > (SELECT min(f.id) FROM l AS f) OR pg_sleep(2) IS NOT NULL)",
	}},
	torture.ClaimLock: {{
		"FOR NO KEY UPDATE SKIP LOCKED\n        ) AS c",
		") AS c",
	}, {
		"AND j.status = 'ready'\nRETURNING",
		"RETURNING",
	}},
	torture.ClaimCounts: {{
		"attempts = j.attempts + 1,\n",
		"attempts = greatest(j.attempts, 1),\n",
	}, {
		"THEN greatest(j.attempts - 1, 0) ELSE j.attempts END",
		"THEN greatest(j.attempts - 1, 0) WHEN d.verb = 'retry' THEN least(j.attempts + 1, j.max_attempts - 1) ELSE j.attempts END",
	}},
	torture.ClaimRow: {{
		"FROM chosen AS h WHERE cardinality(h.ids) > 0",
		"FROM chosen AS h WHERE cardinality(h.ids) > 0 AND false",
	}, {
		"(SELECT w.id FROM written AS w)",
		"coalesce((SELECT w.id FROM written AS w), 0)",
	}},
	torture.ClockFence: {{
		"fence = greatest(j.fence + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),",
		"fence = j.fence + 1,",
	}},
}

// weaken takes out of a statement the guards that this program is to do
// without.
func weaken(statement string) string {
	for guard := range weakened {
		if torture.Removed(guard) {
			statement = without(guard, statement)
		}
	}
	return statement
}

// looksBelow says that claims look below their marks from time to time, which
// is the guard LookBelow.
func looksBelow() bool { return !torture.Removed(torture.LookBelow) }

func without(guard torture.Guard, statement string) string {
	for _, edit := range weakened[guard] {
		statement = strings.ReplaceAll(statement, edit.from, edit.to)
	}
	return statement
}
