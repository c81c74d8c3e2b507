package claim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

// sqlUnnamed counts the running jobs that no claim names that is looked into in
// time: when the lease is over, or a second from now for what a tick has put off.
const sqlUnnamed = `
	SELECT count(*) FROM {{schema}}.jobs AS j
	WHERE j.status = 'running' AND NOT EXISTS (
		SELECT FROM {{schema}}.claims AS c
		WHERE j.id = ANY (c.ids) AND c.look_at <= greatest(j.lease_until, clock_timestamp() + interval '1 second'))`

// claimAs claims up to n jobs for a worker, and returns them.
func (b *bench) claimAs(worker string, n int, lease time.Duration) []claim.Row {
	b.t.Helper()
	c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: n}, lease, worker)
	if err != nil {
		b.t.Fatal(err)
	}
	return c.Rows
}

// written is a row of claims.
type written struct {
	ID     int64
	LookAt time.Time
	Worker string
	IDs    []int64
}

// claims returns the rows of claims in the order of their ids.
func (b *bench) claims() []written {
	b.t.Helper()
	rows, err := b.conn.Query(b.ctx, named(`SELECT c.id, c.look_at, c.worker_id, ARRAY(SELECT k FROM unnest(c.ids) AS k ORDER BY k)
		FROM {{schema}}.claims AS c ORDER BY c.id`, b.schema))
	if err != nil {
		b.t.Fatal(err)
	}
	claims, err := pgx.CollectRows(rows, pgx.RowToStructByPos[written])
	if err != nil {
		b.t.Fatal(err)
	}
	return claims
}

// idsOf returns the ids of jobs in order.
func idsOf(rows ...claim.Row) []int64 {
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	slices.Sort(ids)
	return ids
}

// A claim is written down with its jobs, in the same commit, and none that is
// empty: by that alone a dead worker's jobs are found when their leases are over.
func TestAClaimIsWrittenDown(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	const some = "WHERE cardinality(h.ids) > 0\n"
	for name, test := range map[string]struct {
		edits  []string
		reaped int
		empty  int
	}{
		"as it is":    {nil, 3, 0},
		"not written": {[]string{some, "WHERE false\n", "(SELECT w.id FROM written AS w)", "0::bigint"}, 0, 0},
		"empty too":   {[]string{some, "\n"}, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLClaim, test.edits...))
			b.take(3, lease)
			if n := len(b.claims()); n != test.empty {
				t.Errorf("a claim of nothing has left %d rows, want %d", n, test.empty)
			}
			b.insert(5)
			jobs := b.claimAs("w", 3, lease)
			if name == "as it is" {
				claims := b.claims()
				if len(claims) != 1 || claims[0].Worker != "w" || !slices.Equal(claims[0].IDs, idsOf(jobs...)) {
					t.Fatalf("claimed %v, written %+v", idsOf(jobs...), claims)
				}
				for _, job := range jobs {
					if job.Claim != claims[0].ID {
						t.Errorf("job %d says claim %d, want %d", job.ID, job.Claim, claims[0].ID)
					}
				}
				expect(b, int64(1), `SELECT count(DISTINCT x.xmin::text) FROM (
					SELECT xmin FROM {{schema}}.claims UNION ALL SELECT xmin FROM {{schema}}.jobs WHERE status = 'running') AS x`)
			}
			if unnamed := ask[int64](b, sqlUnnamed) > 0; unnamed != (test.reaped == 0) {
				t.Errorf("running jobs that no claim names: %v", unnamed)
			}
			b.expire("true")
			if reaped := b.tick().Reaped; reaped != test.reaped {
				t.Errorf("reaped %d, want %d", reaped, test.reaped)
			}
		})
	}
}

// A claim is looked into no later than its first lease ends, and not much
// earlier, however long its transaction or its statement has taken.
func TestAClaimIsLookedIntoBeforeALeaseEnds(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	// As slow as if each row had been waited for.
	if _, err := healthy.conn.PgConn().Exec(healthy.ctx, named(`
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN NEW; END $$;
		CREATE TRIGGER slow BEFORE UPDATE ON {{schema}}.jobs FOR EACH ROW EXECUTE FUNCTION slow()`, schema)).ReadAll(); err != nil {
		t.Fatal(err)
	}
	const at = "statement_timestamp() + $4"
	for name, test := range map[string]struct {
		edits       []string
		late, early bool
	}{
		"as it is":            {nil, false, false},
		"when it is written":  {[]string{at, "clock_timestamp() + $4"}, true, false},
		"when all this began": {[]string{at, "now() + $4"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLClaim, test.edits...))
			b.insert(3)
			tx := b.open()
			if _, err := tx.Exec(b.ctx, "SELECT pg_sleep(0.3)"); err != nil {
				t.Fatal(err)
			}
			c, err := b.Claim(b.ctx, tx, claim.Request{Queue: queue, Limit: 3}, time.Hour, "worker")
			if err != nil || len(c.Rows) != 3 {
				t.Fatal(c, err)
			}
			var late, early bool
			if err := tx.QueryRow(b.ctx, `SELECT c.look_at > (SELECT min(j.lease_until) FROM fencepost.jobs AS j),
				c.look_at < now() + interval '1 hour 200 milliseconds' FROM fencepost.claims AS c`).Scan(&late, &early); err != nil {
				t.Fatal(err)
			}
			b.commit(tx)
			if late != test.late || early != test.early {
				t.Errorf("looked into too late: %v, too early: %v; want %v, %v", late, early, test.late, test.early)
			}
		})
	}
}

// A tick that looks into a claim deletes it if nothing of it runs, and only then:
// otherwise it looks again when the first lease ends of what still runs, and
// forgets the rest.
func TestATickLooksIntoClaims(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		wrong string
	}{
		"as it is": {nil, ""},
		"all are closed": {[]string{
			"WHERE c.id = o.id AND o.ids IS NOT NULL", "WHERE c.id = o.id AND false",
			"ARRAY(SELECT o.id FROM left_over AS o WHERE o.ids IS NULL)", "ARRAY(SELECT o.id FROM left_over AS o)",
		}, "runs"},
		"none is closed": {[]string{"ARRAY(SELECT o.id FROM left_over AS o WHERE o.ids IS NULL)", "'{}'::bigint[]"}, "over"},
		"whatever runs": {[]string{
			"WHERE j.id = ANY (d.ids) AND j.status = 'running'\n", "WHERE j.id = ANY (d.ids)\n",
			"ELSE o.lease END", "ELSE coalesce(o.lease, c.look_at) END",
		}, "over"},
		"by the last lease": {[]string{"min(j.lease_until) FILTER", "max(j.lease_until) FILTER"}, "time"},
		"all ids are kept":  {[]string{"ids = o.ids,", "ids = c.ids,"}, "ids"},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			end := func(verb claim.Verb, rows ...claim.Row) {
				for _, row := range rows {
					b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: verb, Delay: time.Hour})
				}
			}
			b.insert(9)
			over := b.take(2, lease)
			end(claim.Done, over[0])
			end(claim.Retry, over[1])
			half, runs, later := b.take(3, lease), b.take(2, lease), b.take(2, time.Hour)
			end(claim.Done, half[0])
			if _, err := b.Extend(b.ctx, b.conn, []claim.Lease{half[1].Lease(), runs[0].Lease()}, time.Minute); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Extend(b.ctx, b.conn, []claim.Lease{half[2].Lease(), runs[1].Lease()}, 2*time.Minute); err != nil {
				t.Fatal(err)
			}
			b.exec("UPDATE {{schema}}.claims SET look_at = clock_timestamp() - interval '1 second' WHERE id <> $1::bigint", later[0].Claim)

			ticked := b.tick()
			if ticked.Reaped != 0 {
				t.Errorf("reaped %d", ticked.Reaped)
			}
			wrong := map[string]bool{"over": false, "runs": true, "ids": true, "time": ask[int64](b, sqlUnnamed) > 0}
			for _, c := range b.claims() {
				switch c.ID {
				case over[0].Claim:
					wrong["over"] = true
				case half[0].Claim:
					wrong["ids"] = !slices.Equal(c.IDs, idsOf(half[1:]...))
				case runs[0].Claim:
					wrong["runs"] = !slices.Equal(c.IDs, idsOf(runs...))
				case later[0].Claim:
					if !slices.Equal(c.IDs, idsOf(later...)) {
						t.Errorf("what was not due is %+v", c)
					}
				}
			}
			if test.wrong == "runs" { // and so are the others
				wrong["ids"], wrong["time"] = false, false
			}
			for what, is := range wrong {
				if is != (what == test.wrong) {
					t.Errorf("%s is wrong: %v; %+v", what, is, b.claims())
				}
			}
			if name != "as it is" {
				return
			}
			for i, c := range b.claims()[:2] {
				first := []claim.Row{half[1], runs[0]}[i]
				if end := ask[time.Time](b, "SELECT lease_until FROM {{schema}}.jobs WHERE id = $1::bigint", first.ID); !c.LookAt.Equal(end) {
					t.Errorf("the next look is at %s, want %s", c.LookAt, end)
				}
			}
			if !ticked.HasLease || ticked.Lease < 50*time.Second || ticked.Lease > time.Minute {
				t.Errorf("the next look is in %s (%v), want a minute", ticked.Lease, ticked.HasLease)
			}
		})
	}
}

// What a batch has no room for is not put off: the next tick has it at once.
func TestAFullBatchPutsNothingOff(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		next  int
	}{
		"as it is":       {nil, 10},
		"all is put off": {[]string{"AND NOT (o.late AND $3::bigint > 0 AND (SELECT count(*) FROM l) >= $3::bigint)\n", "\n"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			b.insert(claim.ReapBatch + 10)
			b.take(claim.ReapBatch+10, over)
			if ticked := b.tick(); ticked.Reaped != claim.ReapBatch || !ticked.More {
				t.Errorf("reaped %d of %d, more: %v", ticked.Reaped, claim.ReapBatch, ticked.More)
			}
			if ticked := b.tick(); ticked.Reaped != test.next || ticked.More {
				t.Errorf("then reaped %d, want %d; more: %v", ticked.Reaped, test.next, ticked.More)
			}
		})
	}
}

// More rows than a tick looks into are looked into at once, also if nothing is
// left of the first of them.
func TestManyClaimsThatAreOver(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		more  bool
	}{
		"as it is": {nil, true},
		"no more":  {[]string{" OR (SELECT count(*) FROM dues) >= 500", ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			b.insert(1)
			b.take(1, over)
			b.exec(`INSERT INTO {{schema}}.claims (look_at, worker_id, ids)
				SELECT clock_timestamp() - interval '1 hour', 'w', ARRAY[-n] FROM generate_series(1, 500) AS n`)
			if ticked := b.tick(); ticked.Reaped != 0 || ticked.More != test.more {
				t.Errorf("reaped %d, more: %v", ticked.Reaped, ticked.More)
			}
			if ticked := b.tick(); ticked.Reaped != 1 || ticked.More {
				t.Errorf("then reaped %d, more: %v", ticked.Reaped, ticked.More)
			}
		})
	}
}

// A job of a dead worker is found by its claim, long before that is to be looked
// into. One that another worker has claimed since is named by both claims, and
// belongs to whoever runs it.
func TestAJobIsItsOwnWorkers(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		wrong string
	}{
		"as it is":            {nil, ""},
		"by their time alone": {[]string{"WHERE c.look_at < (SELECT e.lease FROM edge AS e)\n       OR c.worker_id = ANY (ARRAY(SELECT d.worker_id FROM dead AS d))", "WHERE c.look_at < (SELECT e.lease FROM edge AS e)\n       OR false"}, "found"},
		"by its claim": {[]string{
			"OR j.worker_id = ANY (ARRAY(SELECT d.worker_id FROM dead AS d)))\n    ORDER", "OR (SELECT count(*) FROM dead) > 0)\n    ORDER",
		}, "taken"},
		"holds by its claim": {[]string{"AND j.worker_id = c.worker_id\n", "\n"}, "silent"},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			first := b.register("first")
			b.insert(1)
			old := b.claimAs("first", 1, over)[0]
			if reaped := b.tick().Reaped; reaped != 1 {
				t.Fatal("not reaped")
			}
			b.makeDue()
			second := b.register("second")
			job := b.claimAs("second", 1, time.Hour)[0]
			for _, c := range b.claims() {
				if !slices.Equal(c.IDs, idsOf(job)) {
					t.Fatalf("not named by both: %+v", b.claims())
				}
			}
			wrong := make(map[string]bool)
			b.hangUp(first)
			wrong["silent"] = len(b.watch().Silent) > 0
			b.wait()
			ticked := b.watch(b.suspect("first"))
			wrong["taken"] = ticked.Reaped > 0 || ask[string](b, "SELECT coalesce(worker_id, '') FROM {{schema}}.jobs") != "second"
			b.hangUp(second)
			if !wrong["taken"] {
				b.exec("DELETE FROM {{schema}}.claims WHERE id = $1::bigint", old.Claim)
				ticked = b.watch(b.suspect("second"))
				wrong["found"] = !slices.Equal(ticked.Died, []claim.Died{{Worker: "second", Jobs: 1}})
			}
			for what, is := range wrong {
				if is != (what == test.wrong) {
					t.Errorf("%s is wrong: %v", what, is)
				}
			}
		})
	}
}
