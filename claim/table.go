package claim

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// DB is what a pool, a connection and a transaction have in common.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Table holds the statements for the tables of one schema. It has no state of
// its own and may be used by any number of goroutines at once, each with a
// connection of its own.
type Table struct {
	sql func(template string) string // a statement, with the schema's name in it
}

// In returns the statements for the given schema.
func In(schema string) *Table {
	names := names(schema)
	filled := make(map[string]string, len(statements))
	for _, template := range statements {
		filled[template] = names.Replace(weaken(template))
	}
	return &Table{sql: func(template string) string { return filled[template] }}
}

// names fills in the schema's name where it qualifies another, and, as text
// literals, the channel of the bells, which has that name, and names that are given
// to functions.
func names(schema string) *strings.Replacer {
	text := func(name string) string { return "'" + strings.ReplaceAll(name, "'", "''") + "'" }
	relation := func(name string) string { return text(pgx.Identifier{schema, name}.Sanitize()) }
	return strings.NewReplacer(
		"{{schema}}", pgx.Identifier{schema}.Sanitize(),
		"{{channel}}", text(schema),
		"{{jobs}}", relation("jobs"),
		"{{finished}}", relation("finished"),
		"{{worker_keys}}", relation("worker_keys"),
		"{{quiet_slots}}", relation("quiet_slots"),
	)
}

// statements lists every statement of the room, for In and for the test that
// prepares each of them on every supported server.
var statements = []string{
	sqlSettings, sqlClaim, sqlNext, sqlDrained, sqlFinish, sqlClose, sqlComplete, sqlExtend, sqlCheck, sqlProgress,
	sqlTick, sqlTickByLeases, sqlAdopt, sqlPrune,
	sqlCancel, sqlRelease, sqlRetry, sqlDelete,
	sqlSetKeep, sqlSetBell, sqlPause, sqlResume, sqlQueues,
	sqlHasty, sqlSeatRow, sqlSeat, sqlPromise, sqlRevoke, sqlAlone, sqlRingNext, sqlRing, sqlYield, sqlPromises,
	sqlRegister, sqlUnregister, sqlSweep, sqlWorkers,
	sqlGet, sqlList, sqlIDs, sqlCount,
}

// sqlSettings opens the transaction of every statement that moves a job, but
// for the tick.
//
// Claims and outcomes commit durably, even where the role's default is not to
// wait for the disk: an asynchronous claim that is lost in a crash would let
// its fence be given a second time. A stronger setting is left as it is.
//
// JIT compilation costs these short statements more than it can save. Of plans
// either none is kept ($1 is force_custom_plan), or one for all parameters
// (force_generic_plan), which is tested for each of them: see plans. Then jobs are
// looked up by their keys, however few there were when the server planned: the other
// ways of joining read the whole table. And no row lock is worth waiting for longer
// than a second: nothing here waits for one that is held long, except inside a
// transaction of the caller.
//
// The settings are local to the transaction, so they are safe behind a pooler.
const sqlSettings = `SELECT
    set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
                                          THEN 'on' ELSE current_setting('synchronous_commit') END, true),
    set_config('jit', 'off', true),
    set_config('plan_cache_mode', $1::text, true),
    set_config('lock_timeout', '1s', true),
    CASE WHEN $1::text = 'force_generic_plan' THEN set_config('enable_hashjoin', 'off', true) END,
    CASE WHEN $1::text = 'force_generic_plan' THEN set_config('enable_mergejoin', 'off', true) END,
    CASE WHEN $1::text = 'force_generic_plan' THEN pg_relation_size({{jobs}}::regclass) END,
    CASE WHEN $1::text = 'force_generic_plan' THEN pg_relation_size({{finished}}::regclass) END`

// inOneGo queues the statement behind the settings: one round trip, and, since
// a batch is one implicit transaction, one commit.
func inOneGo(t *Table) *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue(t.sql(sqlSettings), "force_custom_plan")
	return b
}
