package claim_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// operators are the verbs of an operator.
var operators = map[string]struct {
	template string
	call     func(b *bench, db claim.DB, ids ...int64) ([]claim.Did, error)
}{
	"cancel": {claim.SQLCancel, func(b *bench, db claim.DB, ids ...int64) ([]claim.Did, error) {
		return b.Cancel(b.ctx, db, ids)
	}},
	"release": {claim.SQLRelease, func(b *bench, db claim.DB, ids ...int64) ([]claim.Did, error) {
		return b.Release(b.ctx, db, ids)
	}},
	"retry": {claim.SQLRetry, func(b *bench, db claim.DB, ids ...int64) ([]claim.Did, error) {
		return b.Retry(b.ctx, db, ids)
	}},
	"delete": {claim.SQLDelete, func(b *bench, db claim.DB, ids ...int64) ([]claim.Did, error) {
		return b.Delete(b.ctx, db, ids)
	}},
}

// operate calls a verb for one job and wants the given answer: done, busy,
// left or nothing, and the status the job had.
func (b *bench) operate(verb string, id int64, want, status string) {
	b.t.Helper()
	did, err := operators[verb].call(b, b.conn, id)
	if err != nil {
		b.t.Fatal(err)
	}
	if got := said(did[0]); got != want+" "+status {
		b.t.Errorf("%s of job %d: %s, want %s %s", verb, id, got, want, status)
	}
}

func said(d claim.Did) string {
	what := "left"
	switch {
	case d.Refused != nil:
		what = "refused"
	case d.Done && !d.Busy:
		what = "done"
	case d.Busy && !d.Done:
		what = "busy"
	case d.Done:
		what = "done and busy"
	}
	return what + " " + d.Status
}

// inState makes a job that is in the given state under an id of the test's.
func (b *bench) inState(id int64, state string) {
	b.t.Helper()
	insert := func(columns, values string) {
		b.insertOne("id, "+columns, fmt.Sprint(id)+", "+values)
	}
	switch state {
	case "":
	case "ready":
		insert("attempts", "0")
	case "scheduled":
		insert("run_at", "clock_timestamp() + interval '1 hour'")
	case "retrying":
		insert("run_at, attempts, last_error", "clock_timestamp() + interval '1 hour', 3, 'it broke'")
	default:
		insert("queue, attempts, max_attempts, last_error, progress", `'`+state+`', 4, 5, 'it broke', '{"n": 1}'`)
		c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: state, Limit: 1}, lease, "worker")
		if err != nil || len(c.Rows) != 1 {
			b.t.Fatal(c, err)
		}
		if state != "running" {
			b.finish(claim.Stored, claim.Outcome{Lease: c.Rows[0].Lease(), Verb: claim.Verb(state), Error: "over"})
		}
	}
}

// Each verb in each state: what it is for is done, the rest is left alone, and
// the answer says which and what the job was.
func TestOperatorsVerbs(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	states := []string{"", "ready", "scheduled", "retrying", "running", "done", "dead", "cancelled"}
	does := map[string]struct{ states, becomes string }{
		"cancel":  {"ready scheduled retrying running", "cancelled"},
		"release": {"running", "ready"},
		"retry":   {"done dead cancelled", "ready"},
		"delete":  {"ready scheduled retrying running done dead cancelled", ""},
	}
	for verb, does := range does {
		for _, state := range states {
			t.Run(verb+" "+state, func(t *testing.T) {
				b := b.fresh(t)
				b.inState(7, state)
				b.inState(8, "ready") // beside it
				before := b.dump()
				if state == "" || !slices.Contains(strings.Fields(does.states), state) {
					b.operate(verb, 7, "left", state)
					if after := b.dump(); after != before {
						t.Errorf("changed the jobs from\n%s\nto\n%s", before, after)
					}
					return
				}
				old, err := b.Get(b.ctx, b.conn, 7)
				if err != nil {
					t.Fatal(err)
				}
				b.operate(verb, 7, "done", state)
				expect(b, int64(1), "SELECT count(*) FROM {{schema}}.all_jobs WHERE id = 8 AND status = 'ready'")
				if does.becomes == "" {
					expect(b, int64(0), "SELECT count(*) FROM {{schema}}.all_jobs WHERE id = 7")
					b.operate(verb, 7, "left", "")
					return
				}
				now, err := b.Get(b.ctx, b.conn, 7)
				if err != nil {
					t.Fatal(err)
				}
				expect(b, int64(1), "SELECT count(*) FROM {{schema}}.all_jobs WHERE id = 7")
				if now.Status != does.becomes || now.Fence <= old.Fence || !now.CreatedAt.Equal(old.CreatedAt) ||
					now.Attempts != old.Attempts || now.Snoozes != old.Snoozes || now.Priority != old.Priority ||
					now.Queue != old.Queue || now.Kind != old.Kind || string(now.Payload) != string(old.Payload) || string(now.Progress) != string(old.Progress) {
					t.Errorf("became %+v, was %+v", now, old)
				}
				switch verb {
				case "cancel":
					if now.LastError != "cancelled by an operator" || now.FinishedAt.IsZero() || now.WorkerID != old.WorkerID {
						t.Errorf("became %+v", now)
					}
					b.operate(verb, 7, "left", "cancelled")
				default: // ready
					if now.LastError != old.LastError || now.WorkerID != "" || now.MaxAttempts != max(old.MaxAttempts, old.Attempts+1) || now.RunAt.After(time.Now().Add(time.Minute)) {
						t.Errorf("became %+v, was %+v", now, old)
					}
					b.operate(verb, 7, "left", "ready")
					c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: old.Queue, Limit: 1}, lease, "next")
					if err != nil || len(c.Rows) != 1 || c.Rows[0].Attempt != old.Attempts+1 || c.Rows[0].Fence <= now.Fence {
						t.Errorf("claimed %+v, %v", c, err)
					}
				}
			})
		}
	}
}

// The answers come in the order of the ids, whatever the server's.
func TestOperatorsAnswersAreInOrder(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(4)
	for verb, operator := range operators {
		ids := []int64{firstID + 2, 99, firstID, firstID + 3, firstID + 1}
		did, err := operator.call(b, b.conn, ids...)
		if err != nil || len(did) != len(ids) {
			t.Fatal(verb, did, err)
		}
		for i, d := range did {
			if d.ID != ids[i] {
				t.Errorf("%s: answer %d is of job %d, want %d", verb, i, d.ID, ids[i])
			}
		}
		if did, err := operator.call(b, b.conn); err != nil || len(did) != 0 {
			t.Errorf("%s of nothing: %v, %v", verb, did, err)
		}
	}
}

// A job gets one attempt more, but only if it has none left, also at the end of
// the type's range. The table refuses to have it otherwise.
func TestOperatorsGrantAnAttempt(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		verb, edit, cut string
	}{
		"release":       {verb: "release"},
		"retry":         {verb: "retry"},
		"release as is": {"release", "greatest(j.max_attempts, least(j.attempts, 2147483646) + 1)", "j.max_attempts"},
		"retry as is":   {"retry", "greatest(d.max_attempts, least(d.attempts, 2147483646) + 1)", "d.max_attempts"},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t)
			if test.edit != "" {
				b = b.with(claim.Mutant(t, schema, operators[test.verb].template, test.edit, test.cut))
			}
			for _, attempts := range []struct{ had, may, granted int64 }{
				{1, 5, 5}, {5, 5, 6}, {2147483647, 2147483647, 2147483647},
			} {
				b := b.fresh(t)
				b.insertOne("id, attempts, max_attempts", fmt.Sprintf("7, %d, %d", attempts.had-1, attempts.may))
				row := b.takeOne(lease)
				status := "running"
				if test.verb == "retry" {
					status = "dead"
					b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: claim.Dead})
				}
				if test.edit != "" && attempts.had == 5 {
					b.operate(test.verb, 7, "refused", status)
					continue
				}
				b.operate(test.verb, 7, "done", status)
				expect(b, attempts.granted, "SELECT max_attempts::bigint FROM {{schema}}.jobs")
				expect(b, min(attempts.had, 2147483646), "SELECT attempts::bigint FROM {{schema}}.jobs")
			}
		})
	}
}

// Whatever the holder of a claim writes after an operator's verb changes
// nothing, and it is told; without the step of the fence it would not be.
func TestOperatorsMoveTheFence(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	situations := map[string]func(b *bench, old claim.Row){
		"cancelled": func(b *bench, old claim.Row) { b.operate("cancel", old.ID, "done", "running") },
		"released":  func(b *bench, old claim.Row) { b.operate("release", old.ID, "done", "running") },
		"deleted":   func(b *bench, old claim.Row) { b.operate("delete", old.ID, "done", "running") },
		"released and claimed": func(b *bench, old claim.Row) {
			b.operate("release", old.ID, "done", "running")
			b.takeOne(lease)
		},
		"released and cancelled": func(b *bench, old claim.Row) {
			b.operate("release", old.ID, "done", "running")
			b.operate("cancel", old.ID, "done", "ready")
		},
		"cancelled and retried": func(b *bench, old claim.Row) {
			b.operate("cancel", old.ID, "done", "running")
			b.operate("retry", old.ID, "done", "cancelled")
		},
		"cancelled, retried, and done": func(b *bench, old claim.Row) {
			b.operate("cancel", old.ID, "done", "running")
			b.operate("retry", old.ID, "done", "cancelled")
			b.finish(claim.Stored, claim.Outcome{Lease: b.takeOne(lease).Lease(), Verb: claim.Done})
		},
		"deleted, and another under its id": func(b *bench, old claim.Row) {
			b.operate("delete", old.ID, "done", "running")
			b.insertOne("id", fmt.Sprint(old.ID))
			b.takeOne(lease)
		},
	}
	for _, verb := range []claim.Verb{claim.Done, claim.Dead, claim.Cancelled} {
		situations[string(verb)+" and retried"] = func(b *bench, old claim.Row) {
			b.finish(claim.Stored, claim.Outcome{Lease: old.Lease(), Verb: verb})
			b.operate("retry", old.ID, "done", string(verb))
		}
	}
	for name, situation := range situations {
		t.Run(name, func(t *testing.T) {
			b := b.fresh(t)
			b.insert(1)
			old := b.takeOne(lease)
			situation(b, old)
			before := b.dump()
			for name, write := range lateWrites() {
				if err := write(b, old.Lease()); !isLost(err) {
					t.Errorf("%s: got %v, want ErrLeaseLost", name, err)
				}
				if after := b.dump(); after != before {
					t.Fatalf("%s changed the job from\n%s\nto\n%s", name, before, after)
				}
			}
		})
	}
	for name, test := range map[string]struct {
		situation string
		template  string
		edits     []string
	}{
		"cancel":  {"cancelled", claim.SQLCancel, []string{"j.fence + 1 AS fence", "j.fence"}},
		"release": {"released", claim.SQLRelease, []string{"fence = j.fence + 1", "fence = j.fence"}},
		"retry":   {"done and retried", claim.SQLRetry, []string{"d.fence + 1", "d.fence"}},
	} {
		t.Run(name+" without it", func(t *testing.T) {
			b := b.fresh(t).with(claim.Mutant(t, schema, test.template, test.edits...))
			b.insert(1)
			old := b.takeOne(lease)
			situations[test.situation](b, old)
			results, err := b.Finish(b.ctx, b.conn, []claim.Outcome{{Lease: old.Lease(), Verb: claim.Done}})
			if err != nil || results[0] != claim.Stored {
				t.Errorf("the test does not see what the step of the fence is for: %v, %v", results, err)
			}
		})
	}
}

// A verb that leaves alone what is not for it: without the condition it would
// move the fence of a job that waits.
func TestReleaseLeavesReadyJobsAlone(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, edits := range map[string][]string{
		"as it is":  nil,
		"unchecked": {"AND j.status = 'running'\n    ORDER", "ORDER"},
	} {
		b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLRelease, edits...))
		b.inState(7, "scheduled")
		before := b.dump()
		if _, err := b.Release(b.ctx, b.conn, []int64{7}); err != nil {
			t.Fatal(err)
		}
		if left := b.dump() == before; left != (edits == nil) {
			t.Errorf("%s: left alone: %v", name, left)
		}
	}
}

// An id of a producer's own choice may be there twice: the live job is the one
// that verbs are about; deletion takes all.
func TestOperatorsOnAnIDThatIsThereTwice(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	both := func(t *testing.T, state string) *bench {
		b := b.fresh(t)
		b.inState(7, "dead")
		b.inState(7, "done")
		b.inState(7, state)
		return b
	}
	t.Run("cancel", func(t *testing.T) {
		b := both(t, "running")
		b.operate("cancel", 7, "done", "running")
		expect(b, int64(3), "SELECT count(*) FROM {{schema}}.finished WHERE id = 7")
		b.operate("retry", 7, "done", "cancelled")
		b.operate("retry", 7, "left", "ready")
		expect(b, "dead,done", "SELECT string_agg(status, ',' ORDER BY status) FROM {{schema}}.finished WHERE id = 7")
	})
	t.Run("retry", func(t *testing.T) {
		b := both(t, "")
		b.operate("retry", 7, "done", "done")
		expect(b, "dead", "SELECT status FROM {{schema}}.finished WHERE id = 7")
	})
	t.Run("delete", func(t *testing.T) {
		b := both(t, "ready")
		b.operate("delete", 7, "done", "ready")
		expect(b, int64(0), "SELECT count(*) FROM {{schema}}.all_jobs")
	})
	t.Run("delete, one of them held", func(t *testing.T) {
		b := both(t, "ready")
		holder := b.open()
		if _, err := holder.Exec(b.ctx, "SELECT FROM fencepost.finished WHERE status = 'dead' FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		before := b.dump()
		b.operate("delete", 7, "busy", "ready")
		if b.dump() != before {
			t.Error("deleted a part")
		}
		b.rollback(holder)
		b.operate("delete", 7, "done", "ready")
	})
}

// A job that the database does not let go keeps no other from being dealt with.
func TestOperatorsGoAroundARefusal(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, verb := range []string{"cancel", "delete"} {
		b := b.fresh(t)
		b.exec("CREATE TABLE mine (job bigint REFERENCES {{schema}}.jobs)")
		b.insert(5)
		b.exec("INSERT INTO mine SELECT max(id) - 2 FROM {{schema}}.jobs")
		ids := ask[[]int64](b, "SELECT array_agg(id ORDER BY id) FROM {{schema}}.jobs")
		did, err := operators[verb].call(b, b.conn, ids...)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range did {
			want := "done ready"
			if i == 2 {
				want = "refused ready"
			}
			if d.ID != ids[i] || said(d) != want {
				t.Errorf("%s of job %d: %s, want %s", verb, i, said(d), want)
			}
		}
		expect(b, ids[2], "SELECT id FROM {{schema}}.jobs")
		b.exec("DROP TABLE mine")
	}
}

// Who is told what: retries and releases ring for the queue, and the worker of
// each running job that was taken is recalled, once.
func TestOperatorsRingAndRecall(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{schema, awkward} {
		t.Run(schema, func(t *testing.T) {
			t.Parallel()
			healthy := setUpIn(t, schema)
			e := healthy.listen(schema)
			for name, test := range map[string]struct {
				verb  string
				edits []string
				want  []string
			}{
				"cancel":            {"cancel", nil, []string{"recall:a:1", "recall:b:2"}},
				"release":           {"release", nil, []string{"1:0:q:1", "1:0:q:2", "recall:a:1", "recall:b:2"}},
				"delete":            {"delete", nil, []string{"recall:a:1", "recall:b:2"}},
				"retry":             {"retry", nil, []string{"1:0:ended"}},
				"uncounted recalls": {"cancel", []string{"(SELECT count(*) FROM recalled)", "0::bigint"}, nil},
			} {
				b := healthy.fresh(t).with(claim.Mutant(t, schema, operators[test.verb].template, test.edits...))
				b.exec(`INSERT INTO {{schema}}.jobs (kind, queue) SELECT 'test', 'q:' || (1 + n % 2) FROM generate_series(1, 10) AS n`)
				for worker, queue := range map[string]string{"a:1": "q:1", "b:2": "q:2", "c:3": "q:3"} {
					if _, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 3}, lease, worker); err != nil {
						t.Fatal(err)
					}
				}
				b.exec("INSERT INTO {{schema}}.jobs (kind, queue) SELECT 'test', 'ended' FROM generate_series(1, 3) AS n")
				c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: "ended", Limit: 3}, lease, "d:4")
				if err != nil {
					t.Fatal(err)
				}
				for _, row := range c.Rows {
					b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: claim.Dead})
				}
				ids := ask[[]int64](b, "SELECT array_agg(id) FROM {{schema}}.all_jobs")
				e.heard()
				if _, err := operators[test.verb].call(b, b.conn, ids...); err != nil {
					t.Fatal(err)
				}
				e.wantBells(name, test.want...)
				if _, err := operators[test.verb].call(b, b.conn, 1, 2, 3); err != nil {
					t.Fatal(err)
				}
				e.wantBells(name + " of nothing")
			}
		})
	}
}

// A row that somebody holds is busy, and holds nobody up. Without SKIP LOCKED
// the verb would wait for it.
func TestOperatorsSkipWhatIsHeld(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for verb, operator := range operators {
		locks := strings.Count(operator.template, " SKIP LOCKED")
		for cut := 0; cut <= locks; cut++ {
			t.Run(fmt.Sprintf("%s, cut %d", verb, cut), func(t *testing.T) {
				b := healthy.fresh(t)
				state, other := "running", int64(8)
				if verb == "retry" || cut == 2 { // the second lock of delete
					state = "dead"
				}
				b.inState(7, state)
				b.inState(8, state)
				holder := b.open()
				if state == "running" {
					held, err := b.Get(b.ctx, b.conn, 7)
					if err != nil {
						t.Fatal(err)
					}
					if err := b.CompleteTx(b.ctx, holder, claim.Lease{ID: 7, Fence: held.Fence}); err != nil {
						t.Fatal(err)
					}
				} else if _, err := b.Delete(b.ctx, holder, []int64{7}); err != nil {
					t.Fatal(err)
				}
				if cut > 0 {
					parts := strings.SplitN(operator.template, " SKIP LOCKED", cut+1)
					before := parts[cut-1][strings.LastIndex(parts[cut-1], "ORDER BY"):]
					b = b.with(claim.Mutant(t, schema, operator.template, before+" SKIP LOCKED", before))
				}
				conn := b.connect()
				answer := answerOrWait(b, conn, func() ([]claim.Did, error) { return operator.call(b, conn, 7, other) })
				if waits := len(answer) == 0; waits != (cut > 0) {
					t.Errorf("waited: %v", waits)
				}
				if cut == 0 {
					if a := <-answer; a.err != nil || said(a.value[0]) != "busy "+state || said(a.value[1]) != "done "+state {
						t.Errorf("got %+v, %v", a.value, a.err)
					}
				}
				b.commit(holder)
			})
		}
	}
}

// Retry asks for no lock of a live job: an INSERT under its id would wait for
// whoever is about to end it.
func TestRetryWaitsForNoLiveJob(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, edits := range map[string][]string{
		"as it is": nil,
		"does":     {"FROM o WHERE o.live IS NULL", "FROM o"},
	} {
		b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLRetry, edits...))
		b.inState(7, "dead")
		b.insertOne("id", "7")
		row := b.takeOne(lease)
		holder := b.open()
		if err := b.CompleteTx(b.ctx, holder, row.Lease()); err != nil {
			t.Fatal(err)
		}
		conn := b.connect()
		answer := answerOrWait(b, conn, func() ([]claim.Did, error) { return b.Retry(b.ctx, conn, []int64{7}) })
		if waits := len(answer) == 0; waits != (edits != nil) {
			t.Errorf("%s: waited: %v", name, waits)
		}
		b.rollback(holder)
		if a := <-answer; a.err != nil || said(a.value[0]) != "left running" {
			t.Errorf("%s: %+v, %v", name, a.value, a.err)
		}
	}
}

// A producer gives the id of a dead job to a new one while it is retried: the
// new job stays, and so does the dead one.
func TestRetryGivesWayToANewJobOfTheID(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		want  string
	}{
		"as it is":     {nil, "busy dead"},
		"insists":      {[]string{"ON CONFLICT (id) DO NOTHING", ""}, "refused ready"},
		"forgets both": {[]string{"FROM d JOIN back AS b ON b.id = d.id", "FROM d"}, "busy dead"},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLRetry, test.edits...))
			b.inState(7, "dead")
			producer, conn := b.open(), b.connect()
			if _, err := producer.Exec(b.ctx, "INSERT INTO fencepost.jobs (id, kind) VALUES (7, 'new')"); err != nil {
				t.Fatal(err)
			}
			answer := answerOrWait(b, conn, func() ([]claim.Did, error) { return b.Retry(b.ctx, conn, []int64{7}) })
			b.commit(producer)
			if a := <-answer; a.err != nil || said(a.value[0]) != test.want {
				t.Fatalf("got %+v, %v; want %s", a.value, a.err, test.want)
			}
			expect(b, "new", "SELECT kind FROM {{schema}}.jobs")
			stays := ask[int64](b, "SELECT count(*) FROM {{schema}}.finished") == 1
			if stays != (name != "forgets both") {
				t.Errorf("the dead job stays: %v", stays)
			}
			if name == "as it is" {
				b.operate("retry", 7, "left", "ready")
			}
		})
	}
}

// Of two retries at once one finds the job.
func TestTwoRetriesAreOne(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.inState(7, "dead")
	first := b.open()
	did, err := b.Retry(b.ctx, first, []int64{7})
	if err != nil || said(did[0]) != "done dead" {
		t.Fatal(did, err)
	}
	b.operate("retry", 7, "busy", "dead")
	b.commit(first)
	b.operate("retry", 7, "left", "ready")
	expect(b, int64(1), "SELECT count(*) FROM {{schema}}.all_jobs")
}

// Each verb against each thing that a worker, or a reaper, does at the same
// time, in either order: one of them has its way and the other is told.
func TestOperatorsAgainstWorkers(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	request := claim.TickRequest{Queues: []string{queue}, Reap: true, Own: "own", Token: "token"}
	type worker struct {
		lease time.Duration // of the claim
		// call returns whether it had its way with the job.
		call func(b *bench, db claim.DB, l claim.Lease) (bool, error)
		// after: what the verbs then say, and what they say of what has ended.
		status string
	}
	workers := map[string]worker{
		"extend": {lease, func(b *bench, db claim.DB, l claim.Lease) (bool, error) {
			var far bool
			_, err := b.Extend(b.ctx, db, []claim.Lease{l}, time.Hour)
			if err == nil {
				err = db.QueryRow(b.ctx, "SELECT coalesce(bool_or(lease_until > clock_timestamp() + interval '50 minutes'), false) FROM fencepost.jobs").Scan(&far)
			}
			return far, err
		}, "running"},
		"progress": {lease, func(b *bench, db claim.DB, l claim.Lease) (bool, error) {
			err := b.Progress(b.ctx, db, l, json.RawMessage("1"))
			if isLost(err) {
				return false, nil
			}
			return err == nil, err
		}, "running"},
		"reap": {over, func(b *bench, db claim.DB, l claim.Lease) (bool, error) {
			ticked, err := b.Tick(b.ctx, db, request)
			return ticked.Reaped > 0, err
		}, "retrying"},
	}
	for _, verb := range verbs {
		status := map[claim.Verb]string{
			claim.Done: "done", claim.Dead: "dead", claim.Cancelled: "cancelled",
			claim.Retry: "retrying", claim.Snooze: "retrying", claim.Release: "ready", claim.Return: "ready",
		}[verb]
		workers["finish as "+string(verb)] = worker{lease, func(b *bench, db claim.DB, l claim.Lease) (bool, error) {
			results, err := b.Finish(b.ctx, db, []claim.Outcome{{Lease: l, Verb: verb, Delay: time.Hour, Error: "e"}})
			return err == nil && results[0] == claim.Stored, err
		}, status}
	}
	ends := map[string]bool{"done": true, "dead": true, "cancelled": true}
	for verb, operator := range operators {
		if verb == "retry" {
			continue // nobody else writes about a job that has ended
		}
		for name, worker := range workers {
			t.Run(verb+" first, then "+name, func(t *testing.T) {
				b := healthy.fresh(t)
				b.insert(1)
				row := b.takeOne(worker.lease)
				tx := b.open()
				did, err := operator.call(b, tx, row.ID)
				if err != nil || said(did[0]) != "done running" {
					t.Fatal(did, err)
				}
				conn := b.connect()
				answer := answerOrWait(b, conn, func() (bool, error) { return worker.call(b, conn, row.Lease()) })
				b.commit(tx)
				after := b.dump()
				for range 2 { // and again, once that is over
					if a := <-answer; a.err != nil || a.value {
						t.Errorf("%s had its way: %v, %v", name, a.value, a.err)
					}
					answer = answerOrWait(b, conn, func() (bool, error) { return worker.call(b, conn, row.Lease()) })
				}
				<-answer
				if b.dump() != after {
					t.Errorf("%s changed the job", name)
				}
			})
			t.Run(name+" first, then "+verb, func(t *testing.T) {
				b := healthy.fresh(t)
				b.insert(1)
				row := b.takeOne(worker.lease)
				tx := b.open()
				if way, err := worker.call(b, tx, row.Lease()); err != nil || !way {
					t.Fatal(way, err)
				}
				before := b.dump()
				b.operate(verb, row.ID, "busy", "running")
				if b.dump() != before {
					t.Errorf("%s changed the job", verb)
				}
				b.commit(tx)
				want := "done"
				if ends[worker.status] && verb != "delete" || verb == "release" && worker.status != "running" {
					want = "left"
				}
				b.operate(verb, row.ID, want, worker.status)
			})
		}
		t.Run("claim first, then "+verb, func(t *testing.T) {
			b := healthy.fresh(t)
			b.inState(firstID, "ready")
			tx := b.open()
			if c, err := b.Claim(b.ctx, tx, claim.Request{Queue: queue, Limit: 1}, lease, "worker"); err != nil || len(c.Rows) != 1 {
				t.Fatal(c, err)
			}
			want := "busy"
			if verb == "release" {
				want = "left" // as far as anybody can see it is not running yet
			}
			b.operate(verb, firstID, want, "ready")
			b.commit(tx)
			b.operate(verb, firstID, "done", "running")
		})
		t.Run(verb+" first, then claim", func(t *testing.T) {
			b := healthy.fresh(t)
			state := "ready"
			if verb == "release" {
				state = "running"
			}
			b.inState(firstID, state)
			tx := b.open()
			if _, err := operator.call(b, tx, firstID); err != nil {
				t.Fatal(err)
			}
			claimable := func() int {
				n := 0
				for _, queue := range []string{queue, "running"} {
					c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 1}, lease, "other")
					if err != nil {
						t.Fatal(err)
					}
					n += len(c.Rows)
				}
				return n
			}
			if claimable() != 0 {
				t.Error("claimed before the commit")
			}
			b.commit(tx)
			if n := claimable(); (n == 1) != (verb == "release") {
				t.Errorf("claimed %d", n)
			}
		})
	}
}
