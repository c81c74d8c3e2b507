package claim_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// B59: a claim that its holder ends while it is being reaped has one outcome,
// whichever commits first, and the loser is told.
func TestReapAgainstFinish(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	request := claim.TickRequest{Queues: []string{queue}, Reap: true, Worker: "watcher", Own: "own", Token: "token"}
	for _, verb := range verbs {
		t.Run("finish first, "+string(verb), func(t *testing.T) {
			b := b.fresh(t)
			b.insert(1)
			row := b.takeOne(over)
			tx := b.open()
			results, err := b.Finish(b.ctx, tx, []claim.Outcome{{Lease: row.Lease(), Verb: verb}})
			if err != nil || results[0] != claim.Stored {
				t.Fatal(results, err)
			}
			if reaped := b.tick().Reaped; reaped != 0 {
				t.Error("reaped although its holder was ending it")
			}
			b.commit(tx)
			after := b.dump()
			if reaped := b.tick().Reaped; reaped != 0 || b.dump() != after {
				t.Error("reaped after its holder had ended it")
			}
		})
		t.Run("reap first, "+string(verb), func(t *testing.T) {
			b := b.fresh(t)
			b.insert(1)
			row := b.takeOne(over)
			tx := b.open()
			if ticked, err := b.Tick(b.ctx, tx, request); err != nil || ticked.Reaped != 1 {
				t.Fatal(ticked, err)
			}
			b.finish(claim.Busy, claim.Outcome{Lease: row.Lease(), Verb: verb})
			b.commit(tx)
			after := b.dump()
			b.finish(claim.Lost, claim.Outcome{Lease: row.Lease(), Verb: verb})
			if b.dump() != after {
				t.Error("the late outcome changed the job")
			}
		})
	}
}

// The last attempt is reaped as dead under another fence than the dead
// worker's, or its late outcome would be taken for the stored one.
func TestLateOutcomeOfAReapedLastAttemptIsLost(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		want  claim.Result
	}{
		"as it is":          {nil, claim.Lost},
		"dead worker's own": {[]string{"j.fence + 1 AS fence", "j.fence"}, claim.Stored},
	} {
		t.Run(name, func(t *testing.T) {
			b := b.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			b.insertOne("max_attempts", "1")
			row := b.takeOne(over)
			b.tick()
			expect(b, "dead", "SELECT status FROM {{schema}}.finished")
			b.finish(test.want, claim.Outcome{Lease: row.Lease(), Verb: claim.Done})
		})
	}
}

// B55: between the reaper's look and its write the worker extends its lease,
// or another worker has the job already. The row's lock, and a second look at
// the lease under it, leave such a job alone; the others are reaped.
func TestReaperLeavesAloneWhatHasMoved(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		waits bool // for the row
		harms bool
	}{
		"as it is":  {nil, false, false},
		"waits":     {[]string{"OFFSET $7::bigint\n    FOR UPDATE SKIP LOCKED", "OFFSET $7::bigint\n    FOR UPDATE"}, true, false},
		"by id":     {[]string{"OFFSET $7::bigint\n    FOR UPDATE SKIP LOCKED", "OFFSET $7::bigint"}, true, true},
		"unchecked": {[]string{"AND (j.lease_until < (SELECT e.lease FROM edge AS e) OR j.worker_id", "AND (true OR j.worker_id"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := b.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			b.insert(3)
			rows := b.take(3, over)
			alive, again, dead := rows[0], rows[1], rows[2]
			if name == "unchecked" {
				if _, err := b.Extend(b.ctx, b.conn, []claim.Lease{alive.Lease()}, time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			holder := b.open()
			if _, err := b.Extend(b.ctx, holder, []claim.Lease{alive.Lease()}, time.Hour); err != nil {
				t.Fatal(err)
			}
			// Handed back and claimed again, in one transaction.
			if _, err := b.Finish(b.ctx, holder, []claim.Outcome{{Lease: again.Lease(), Verb: claim.Release}}); err != nil {
				t.Fatal(err)
			}
			if c, err := b.Claim(b.ctx, holder, claim.Request{Queue: queue, Limit: 1}, lease, "successor"); err != nil || len(c.Rows) != 1 {
				t.Fatal(c, err)
			}
			reaper := b.connect()
			reaping := answerOrWait(b, reaper, func() (claim.Ticked, error) {
				return b.Tick(b.ctx, reaper, claim.TickRequest{Queues: []string{queue}, Reap: true, Worker: "watcher", Own: "own", Token: "token"})
			})
			waited := len(reaping) == 0
			b.commit(holder)
			if reaped := <-reaping; reaped.err != nil {
				t.Fatal(reaped.err)
			}
			if waited != test.waits {
				t.Errorf("waited for the row: %v, want %v", waited, test.waits)
			}
			b.wait()
			b.tick()
			harmed := ask[int64](b, "SELECT count(*) FROM {{schema}}.jobs WHERE id <> $1::bigint AND status <> 'running'", dead.ID) > 0
			if harmed != test.harms {
				t.Errorf("took a job from its live worker: %v, want %v", harmed, test.harms)
			}
			expect(b, "ready", "SELECT status FROM {{schema}}.jobs WHERE id = $1::bigint", dead.ID)
		})
	}
}

// An outcome that is sent again, because its answer was lost, is stored once
// and reported as stored both times.
func TestFinishTwice(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, verb := range []claim.Verb{claim.Done, claim.Dead, claim.Cancelled} {
		b.insert(1)
		row := b.takeOne(lease)
		b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: verb})
		after := b.dump()
		b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: verb})
		if b.dump() != after {
			t.Errorf("the second %s changed something", verb)
		}
		// Ended, but not taken away.
		if lost, err := b.Extend(b.ctx, b.conn, []claim.Lease{row.Lease()}, lease); err != nil || len(lost) != 0 {
			t.Errorf("extension after %s: lost %v, %v", verb, lost, err)
		}
	}
}

// A claim of a job that has left no trace is told from one that was taken:
// what it means depends on what the caller knows.
func TestGone(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, edits := range map[string][]string{
		"as it is":           nil,
		"jobs not asked":     {"(SELECT true FROM {{schema}}.jobs AS j WHERE j.id = o.id) IS NULL\n                AND", ""},
		"finished not asked": {"AND (SELECT true FROM {{schema}}.finished AS f WHERE f.id = o.id LIMIT 1) IS NULL", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLFinish, edits...))
			b.exec("INSERT INTO {{schema}}.queues (name, keep) VALUES ('default', '0')")
			b.insert(4)
			rows := b.take(4, lease)
			var done []claim.Outcome
			for _, row := range rows {
				done = append(done, claim.Outcome{Lease: row.Lease(), Verb: claim.Done})
			}
			b.exec("DELETE FROM {{schema}}.jobs WHERE id = $1::bigint", rows[1].ID)
			b.exec("UPDATE {{schema}}.jobs SET fence = fence + 1 WHERE id = $1::bigint", rows[2].ID)
			b.operate("cancel", rows[3].ID, "done", "running")
			for _, want := range []string{"[stored gone lost lost]", "[gone gone lost lost]"} {
				switch name { // the guard cut out
				case "jobs not asked":
					want = strings.Replace(want, "lost lost", "gone lost", 1)
				case "finished not asked":
					want = strings.Replace(want, "lost lost", "lost gone", 1)
				}
				results, err := b.Finish(b.ctx, b.conn, done)
				if got := fmt.Sprint(results); err != nil || got != want {
					t.Errorf("got %s, %v; want %s", got, err, want)
				}
			}
		})
	}
}

// Why a claim is over: its job was taken, cancelled by an operator under this
// very claim, or is gone. Extend and Check say the same of a batch; Check
// extends nothing.
func TestLosses(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits          []string
		released, dead claim.Reason
	}{
		"as it is":     {nil, claim.ReasonTaken, claim.ReasonTaken},
		"of any claim": {[]string{"f.fence = o.fence + 1 AND f.status = 'cancelled'", "f.status = 'cancelled'"}, claim.ReasonCancelled, claim.ReasonTaken},
		"of any end":   {[]string{" AND f.status = 'cancelled'", ""}, claim.ReasonTaken, claim.ReasonCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLCheck, test.edits...))
			b.insertOne("max_attempts", "1")
			reaped := b.takeOne(over)
			b.tick()
			b.insert(6)
			rows := b.take(6, lease)
			held, done, taken, cancelled, gone, released := rows[0], rows[1], rows[2], rows[3], rows[4], rows[5]
			b.finish(claim.Stored, claim.Outcome{Lease: done.Lease(), Verb: claim.Cancelled})
			b.exec("UPDATE {{schema}}.jobs SET fence = fence + 1 WHERE id = $1::bigint", taken.ID)
			b.operate("cancel", cancelled.ID, "done", "running")
			b.operate("delete", gone.ID, "done", "running")
			b.operate("release", released.ID, "done", "running")
			b.operate("cancel", released.ID, "done", "ready") // not under the claim
			tx := b.open()
			if err := b.CompleteTx(b.ctx, tx, held.Lease()); err != nil {
				t.Fatal(err)
			}
			var leases []claim.Lease
			for _, row := range append(rows, reaped) {
				leases = append(leases, row.Lease())
			}
			want := map[claim.Lease]claim.Reason{
				taken.Lease(): claim.ReasonTaken, cancelled.Lease(): claim.ReasonCancelled, gone.Lease(): claim.ReasonGone,
				released.Lease(): test.released, reaped.Lease(): test.dead,
			}
			before := b.dump()
			losses, err := b.Check(b.ctx, b.conn, leases)
			if err != nil || len(losses) != len(want) {
				t.Errorf("lost %v, %v; want %v", losses, err, want)
			}
			for _, l := range losses {
				if want[l.Lease] != l.Reason {
					t.Errorf("lost %v, want %v", l, want[l.Lease])
				}
			}
			if b.dump() != before {
				t.Error("a check changed something")
			}
			if test.edits == nil {
				extended, err := b.Extend(b.ctx, b.conn, leases, lease)
				if got, want := fmt.Sprint(extended), fmt.Sprint(losses); err != nil || got != want {
					t.Errorf("extend says %s, %v; check %s", got, err, want)
				}
			}
			b.commit(tx)
		})
	}
}

// A job that completes in an open transaction of its handler is not reaped and
// not reported lost, and holds up neither the extension, the outcomes nor the
// reaping of others.
func TestOpenCompleteTx(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, end := range []string{"commit", "rollback"} {
		t.Run(end, func(t *testing.T) {
			b := b.fresh(t)
			b.insert(4)
			rows := b.take(4, over)
			completing, alive, ending := rows[0], rows[1], rows[2]
			tx := b.open()
			if err := b.CompleteTx(b.ctx, tx, completing.Lease()); err != nil {
				t.Fatal(err)
			}
			lost, err := b.Extend(b.ctx, b.conn, []claim.Lease{completing.Lease(), alive.Lease()}, time.Hour)
			if err != nil || len(lost) != 0 {
				t.Errorf("extension: lost %v, %v", lost, err)
			}
			expect(b, true, "SELECT lease_until > clock_timestamp() FROM {{schema}}.jobs WHERE id = $1::bigint", alive.ID)
			results, err := b.Finish(b.ctx, b.conn, []claim.Outcome{
				{Lease: completing.Lease(), Verb: claim.Done}, {Lease: ending.Lease(), Verb: claim.Done},
			})
			if got := fmt.Sprint(results); err != nil || got != "[busy stored]" {
				t.Errorf("outcomes: %s, %v", got, err)
			}
			if reaped := b.tick().Reaped; reaped != 1 {
				t.Errorf("reaped %d jobs, want the one whose lease is over and whose row is free", reaped)
			}
			expect(b, completing.Fence, "SELECT fence FROM {{schema}}.jobs WHERE id = $1::bigint", completing.ID)

			if end == "commit" {
				b.commit(tx)
			} else {
				b.rollback(tx)
			}
			lost, err = b.Extend(b.ctx, b.conn, []claim.Lease{completing.Lease()}, time.Hour)
			if err != nil || len(lost) != 0 {
				t.Errorf("extension after the %s: lost %v, %v", end, lost, err)
			}
			if end == "rollback" {
				expect(b, true, "SELECT lease_until > clock_timestamp() FROM {{schema}}.jobs WHERE id = $1::bigint", completing.ID)
			}
			// A second completion, and the outcome that follows, find it done.
			tx = b.open()
			if err := b.CompleteTx(b.ctx, tx, completing.Lease()); err != nil {
				t.Error(err)
			}
			b.commit(tx)
			b.finish(claim.Stored, claim.Outcome{Lease: completing.Lease(), Verb: claim.Done})
			expect(b, int64(1), "SELECT count(*) FROM {{schema}}.finished WHERE id = $1::bigint", completing.ID)
		})
	}
}

// The guard of the test above: a statement that waits for the row lets
// everybody else's lease run out.
func TestSkippingIsWhatKeepsOthersGoing(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(2)
	rows := b.take(2, over)
	held := rows[0].Lease()
	for template, call := range map[string]func(*bench) error{
		claim.SQLExtend: func(b *bench) error {
			_, err := b.Extend(b.ctx, b.conn, []claim.Lease{held, rows[1].Lease()}, lease)
			return err
		},
		claim.SQLFinish: func(b *bench) error {
			_, err := b.Finish(b.ctx, b.conn, []claim.Outcome{{Lease: held, Verb: claim.Done}})
			return err
		},
		claim.SQLTick: func(b *bench) error {
			_, err := b.Tick(b.ctx, b.conn, claim.TickRequest{Queues: []string{queue}, Reap: true, Worker: "watcher", Own: "own", Token: "token"})
			return err
		},
	} {
		tx := b.open()
		if err := b.CompleteTx(b.ctx, tx, held); err != nil {
			t.Fatal(err)
		}
		guard := " SKIP LOCKED"
		switch template { // they skip elsewhere too
		case claim.SQLTick:
			guard = "OFFSET $7::bigint\n    FOR UPDATE" + guard
		case claim.SQLExtend:
			guard = "FOR NO KEY UPDATE" + guard
		}
		mutant := b.with(claim.Mutant(t, schema, template, guard, strings.TrimSuffix(guard, " SKIP LOCKED")))
		mutant.conn = b.connect()
		waiting := answerOrWait(b, mutant.conn, func() (struct{}, error) { return struct{}{}, call(mutant) })
		if len(waiting) == 0 {
			if err := mutant.conn.PgConn().CancelRequest(b.ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := (<-waiting).err; err == nil { // it neither waited nor gave up waiting
			t.Errorf("the test does not see what SKIP LOCKED is for in%s", template)
		}
		expect(b, true, "SELECT bool_and(lease_until < clock_timestamp()) FROM {{schema}}.jobs")
		b.rollback(tx)
	}
}

// CompleteTx waits for whoever holds the row, and looks at the fence again
// afterwards.
func TestCompleteTxLooksAgainAfterAWait(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for verb, lost := range map[claim.Verb]bool{claim.Retry: true, claim.Dead: true, "": false} {
		t.Run("held by "+string(verb), func(t *testing.T) {
			b := b.fresh(t)
			b.insert(1)
			row := b.takeOne(lease)
			holder, tx := b.open(), b.open()
			var err error
			if verb == "" {
				err = b.Progress(b.ctx, holder, row.Lease(), json.RawMessage(`1`))
			} else {
				_, err = b.Finish(b.ctx, holder, []claim.Outcome{{Lease: row.Lease(), Verb: verb}})
			}
			if err != nil {
				t.Fatal(err)
			}
			completing := answerOrWait(b, tx.Conn(), func() (struct{}, error) {
				return struct{}{}, b.CompleteTx(b.ctx, tx, row.Lease())
			})
			if len(completing) > 0 {
				t.Error("did not wait")
			}
			b.commit(holder)
			if err := (<-completing).err; isLost(err) != lost || err != nil && !lost {
				t.Errorf("got %v", err)
			}
			b.commit(tx)
		})
	}
}
