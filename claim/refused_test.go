package claim_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

// A job that the database does not let end, because of a foreign key or a
// trigger of somebody's, keeps no other from being finished or reaped.
func TestAJobThatCannotEndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for name, ddl := range map[string]string{
		"foreign key": `CREATE TABLE mine (job bigint REFERENCES {{schema}}.jobs);
			INSERT INTO mine SELECT id FROM {{schema}}.jobs WHERE kind = 'kept'`,
		"trigger": `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF OLD.kind = 'kept' THEN RAISE 'no'; END IF; RETURN OLD;
			END $$;
			CREATE TRIGGER no BEFORE DELETE ON {{schema}}.jobs FOR EACH ROW EXECUTE FUNCTION no()`,
	} {
		t.Run(name, func(t *testing.T) {
			b := b.fresh(t)
			b.exec("INSERT INTO {{schema}}.jobs (kind, max_attempts) SELECT CASE WHEN n IN (1, 4) THEN 'kept' ELSE 'test' END, 1 + n % 2 FROM generate_series(1, 8) AS n")
			b.exec("UPDATE {{schema}}.jobs SET max_attempts = 1 WHERE kind = 'kept'")
			if _, err := b.conn.PgConn().Exec(b.ctx, named(ddl, schema)).ReadAll(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if _, err := b.conn.PgConn().Exec(b.ctx, named("DROP TABLE IF EXISTS mine; DROP FUNCTION IF EXISTS no() CASCADE", schema)).ReadAll(); err != nil {
					t.Fatal(err)
				}
			}()
			var outcomes []claim.Outcome
			for _, row := range b.take(4, over) {
				outcomes = append(outcomes, claim.Outcome{Lease: row.Lease(), Verb: claim.Done})
			}
			results, err := b.Finish(b.ctx, b.conn, outcomes)
			if want := []claim.Result{claim.Busy, claim.Stored, claim.Stored, claim.Busy}; !errors.Is(err, claim.ErrRejected) || !slices.Equal(results, want) {
				t.Errorf("finished %v, %v; want %v", results, err, want)
			}
			b.take(4, over)
			if ticked := b.tick(); ticked.Reaped != 4 || ticked.Refused == nil {
				t.Errorf("tick says %+v; want 4 reaped and why not the others", ticked)
			}
			expect(b, "kept", "SELECT string_agg(DISTINCT kind, ',') FROM {{schema}}.jobs WHERE status = 'running'")
			if ticked := b.tick(); ticked.Reaped != 0 || ticked.Refused != nil || !ticked.HasLease || ticked.Lease > time.Second {
				t.Errorf("the next tick says %+v; it is to leave them alone for a second", ticked)
			}
			b.wait()
			if ticked := b.tick(); ticked.Reaped != 0 || ticked.Refused == nil {
				t.Errorf("the tick after that says %+v", ticked)
			}
		})
	}
}

// counting counts the statements that a tick makes.
type counting struct {
	*pgx.Conn
	queries int
}

func (c *counting) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.queries++
	return c.Conn.Query(ctx, sql, args...)
}

// A job that cannot be reaped is found among many by halves, not one by one:
// each try looks at all that runs.
func TestARefusedJobIsFoundByHalves(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec("CREATE TABLE public.mine (job bigint REFERENCES {{schema}}.jobs)")
	b.exec("INSERT INTO {{schema}}.jobs (kind, max_attempts) SELECT 'test', 1 FROM generate_series(1, $1::int)", claim.ReapBatch)
	rows := b.take(claim.ReapBatch, over)
	kept := []int64{rows[77].ID, rows[78].ID, rows[402].ID}
	b.exec("INSERT INTO public.mine SELECT unnest($1::bigint[])", kept)
	db := &counting{Conn: b.conn}
	ticked, err := b.Tick(b.ctx, db, claim.TickRequest{Queues: []string{queue}, Reap: true, Own: "own", Token: "token"})
	if err != nil || ticked.Reaped != claim.ReapBatch-len(kept) || ticked.Refused == nil {
		t.Errorf("%+v, %v; want all but %d reaped", ticked, err, len(kept))
	}
	// Two searches of 9 halves, one job beside the first one, and the way back
	// to large batches after each.
	if t.Logf("%d statements", db.queries); db.queries > 50 {
		t.Errorf("%d statements to pass over %d of %d jobs", db.queries, len(kept), claim.ReapBatch)
	}
	expect(b, int64(len(kept)), "SELECT count(*) FROM {{schema}}.jobs WHERE status = 'running' AND id = ANY ($1::bigint[])", kept)
	expect(b, int64(len(kept)), "SELECT count(*) FROM {{schema}}.jobs")
	b.exec("DROP TABLE public.mine")
}
