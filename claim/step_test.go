package claim_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

// A clock that has stepped forward ends no lease: what a caller knows that the
// clock cannot show yet is left alone, and what was over before is reaped.
func TestALeaseIsNotOverBeforeTheLatestTime(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		want  int
	}{
		"as it is":   {nil, 1},
		"unbelieved": {[]string{"least(clock_timestamp(), $6::timestamptz)", "coalesce(clock_timestamp(), $6::timestamptz)"}, 2},
	} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			b := b.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			b.insert(2)
			b.take(1, -time.Hour)
			b.take(1, over)
			config := b.conn.Config()
			config.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(b.ctx, config)
			if err != nil {
				t.Fatal(err)
			}
			ticked, err := b.Tick(b.ctx, conn, claim.TickRequest{
				Queues: []string{queue}, Worker: "watcher", Own: "own", Token: "token",
				Reap: true, Latest: ask[time.Time](b, "SELECT clock_timestamp() - interval '1 minute'"),
			})
			if err != nil || ticked.Reaped != test.want {
				t.Errorf("%s, %v: reaped %d, %v; want %d", name, mode, ticked.Reaped, err, test.want)
			}
			if err := conn.Close(b.ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}
