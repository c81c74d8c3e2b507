package claim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

func (b *bench) pause(queue string) {
	b.t.Helper()
	if err := b.Pause(b.ctx, b.conn, queue); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) resume(queue string) {
	b.t.Helper()
	if err := b.Resume(b.ctx, b.conn, queue); err != nil {
		b.t.Fatal(err)
	}
}

// While a queue is paused nobody claims from it and nothing is said to be due
// in it, whoever asks. What runs goes on, others are not concerned, and the
// end of the pause rings.
func TestPause(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		template, edit, cut string
	}{
		"as it is":      {claim.SQLClaim, "", ""},
		"claims":        {claim.SQLClaim, "(SELECT q.paused_at FROM {{schema}}.queues AS q WHERE q.name = $1::text) IS NULL", "true"},
		"next":          {claim.SQLNext, "(SELECT q.paused_at FROM {{schema}}.queues AS q WHERE q.name = $1::text) IS NULL", "true"},
		"tick":          {claim.SQLTick, "(SELECT s.paused_at FROM {{schema}}.queues AS s WHERE s.name = q.name) IS NULL", "true"},
		"resume silent": {claim.SQLResume, "SELECT {{schema}}.ring(r.name) FROM resumed AS r", "SELECT 1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t)
			if test.edit != "" {
				b = b.with(claim.Mutant(t, schema, test.template, test.edit, test.cut))
			}
			var broken []string
			want := func(what string, holds bool) {
				if !holds {
					broken = append(broken, what)
				}
			}
			e := b.listen(schema)
			b.insert(3)
			b.exec("INSERT INTO {{schema}}.jobs (kind, queue) VALUES ('test', 'other')")
			running := b.takeOne(over)
			ending := b.takeOne(lease)
			b.pause(queue)
			since := ask[time.Time](b, "SELECT paused_at FROM {{schema}}.queues")
			b.pause(queue) // changes nothing
			expect(b, since, "SELECT paused_at FROM {{schema}}.queues")

			other := b.connect()
			c, err := b.Claim(b.ctx, other, claim.Request{Queue: queue, Limit: 5}, lease, "other")
			if err != nil {
				t.Fatal(err)
			}
			want("claims", len(c.Rows) == 0)
			want("next", !c.HasNext)
			b.finish(claim.Stored, claim.Outcome{Lease: ending.Lease(), Verb: claim.Retry}) // waits now
			ticked, err := b.Tick(b.ctx, b.conn, claim.TickRequest{Queues: []string{queue, "other"}, Reap: true, Own: "own", Token: "token", Worker: "worker"})
			if err != nil || ticked.Reaped != 1 {
				t.Fatal(ticked, err)
			}
			_, due := ticked.Next[queue]
			want("tick", !due)
			if _, due := ticked.Next["other"]; !due {
				t.Error("another queue has nothing due")
			}
			if c, err := b.Claim(b.ctx, other, claim.Request{Queue: "other", Limit: 5}, lease, "other"); err != nil || len(c.Rows) != 1 {
				t.Error("another queue is paused too", c, err)
			}
			expect(b, "ready", "SELECT status FROM {{schema}}.jobs WHERE id = $1::bigint", running.ID)

			e.heard()
			b.resume(queue)
			rang := e.heard()
			want("resume silent", len(rang) == 1 && rang[0] == "1:0:"+queue)
			b.makeDue()
			if rows := b.take(5, lease); test.edit == "" && len(rows) != 3 {
				t.Errorf("claimed %d jobs after the pause, want 3", len(rows))
			}
			b.resume(queue)
			if rang := e.heard(); len(rang) > 0 {
				t.Errorf("a second resume rang %q", rang)
			}
			if got := strings.Join(broken, ","); got != strings.TrimPrefix(name, "as it is") {
				t.Errorf("broken: %s", got)
			}
		})
	}
}

// Any queue can be paused, before it has a job or a setting, and keeps its
// other settings.
func TestPauseOfAnyQueue(t *testing.T) {
	t.Parallel()
	b := setUpIn(t, awkward)
	for i, name := range []string{"new", `"';`, strings.Repeat("🙂", 32)} {
		b.pause(name)
		b.exec("INSERT INTO {{schema}}.jobs (kind, queue) VALUES ('test', $1::text)", name)
		if err := b.SetKeep(b.ctx, b.conn, name, time.Duration(i)*time.Hour); err != nil {
			t.Fatal(err)
		}
		c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: name, Limit: 1}, lease, "worker")
		if err != nil || len(c.Rows) != 0 {
			t.Errorf("%s: claimed %v, %v", name, c, err)
		}
		b.resume(name)
		c, err = b.Claim(b.ctx, b.conn, claim.Request{Queue: name, Limit: 1}, lease, "worker")
		if err != nil || len(c.Rows) != 1 {
			t.Errorf("%s: claimed %v, %v", name, c, err)
		}
		expect(b, int64(1), "SELECT count(*) FROM {{schema}}.queues WHERE name = $1::text AND keep = $2::int * interval '1 hour'", name, i)
	}
	b.resume("unknown")
	expect(b, int64(0), "SELECT count(*) FROM {{schema}}.queues WHERE name = 'unknown'")
}

// What an operator sees of queues: those that have a setting, a live job or a
// worker.
func TestQueues(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	if queues, err := b.Queues(b.ctx, b.conn); err != nil || len(queues) != 0 {
		t.Errorf("%v, %v", queues, err)
	}
	b.pause("c paused")
	if err := b.SetKeep(b.ctx, b.conn, "b kept", 36*time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := b.SetKeep(b.ctx, b.conn, "a jobs", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Register(b.ctx, b.conn, claim.Worker{ID: "w", Queues: map[string]int{"d worked": 10, "a jobs": 1}}, false); err != nil {
		t.Fatal(err)
	}
	b.exec(`INSERT INTO {{schema}}.workers (worker_id, queues) VALUES ('by hand', '["x"]')`)
	b.exec(`INSERT INTO {{schema}}.jobs (kind, queue, run_at) SELECT 'test', 'a jobs', now() + n * interval '1 hour' FROM generate_series(-4, 2) AS n WHERE n <> 0`)
	if c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: "a jobs", Limit: 1}, lease, "w"); err != nil || len(c.Rows) != 1 {
		t.Fatal(c, err)
	}
	queues, err := b.Queues(b.ctx, b.conn)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, q := range queues {
		age := "-"
		if !q.OldestReady.IsZero() {
			age = ask[time.Time](b, "SELECT now()").Sub(q.OldestReady).Round(time.Hour).String()
		}
		got = append(got, fmt.Sprint(q.Name, " ", !q.PausedAt.IsZero(), " ", q.Keep, " ", q.Ready, " ", q.Scheduled, " ", q.Running, " ", age))
	}
	want := []string{
		"a jobs false 0s 3 2 1 3h0m0s",
		"b kept false 36h0m0s 0 0 0 -",
		"c paused true 24h0m0s 0 0 0 -",
		"d worked false 24h0m0s 0 0 0 -",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What an operator sees of workers, those of older programs and those that are
// gone included.
func TestWorkers(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	dies := b.connect()
	for _, w := range []struct {
		id    string
		db    claim.DB
		locks bool
	}{{"live", b.conn, true}, {"silent", dies, true}, {"unknown", b.conn, false}} {
		if _, err := b.Register(b.ctx, w.db, claim.Worker{ID: w.id, Version: "v2", Queues: map[string]int{"q": 3}, Kinds: []string{"k"}, Age: time.Hour}, w.locks); err != nil {
			t.Fatal(err)
		}
	}
	if err := dies.Close(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.exec(`INSERT INTO {{schema}}.workers (worker_id, queues, started_at) VALUES ('by hand', '{"x": "y"}', now())`)
	b.exec("INSERT INTO {{schema}}.jobs (kind, queue) SELECT 'test', 'q' FROM generate_series(1, 5)")
	for worker, n := range map[string]int{"live": 2, "version 1": 3} {
		if _, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: "q", Limit: n}, lease, worker); err != nil {
			t.Fatal(err)
		}
	}
	var got map[string]claim.WorkerInfo
	for got == nil || got["silent"].State == claim.WorkerLive { // until the server has noticed
		workers, err := b.Workers(b.ctx, b.connect())
		if err != nil || len(workers) != 5 {
			t.Fatal(workers, err)
		}
		got = make(map[string]claim.WorkerInfo)
		for _, w := range workers {
			got[w.ID] = w
		}
	}
	for id, want := range map[string]struct {
		state   string
		running int64
	}{
		"live": {claim.WorkerLive, 2}, "silent": {claim.WorkerSilent, 0}, "unknown": {claim.WorkerUnknown, 0},
		"by hand": {claim.WorkerUnknown, 0}, "version 1": {claim.WorkerUnknown, 3},
	} {
		w := got[id]
		if w.State != want.state || w.Running != want.running {
			t.Errorf("%s: %+v, want %+v", id, w, want)
		}
		registered := id == "live" || id == "silent" || id == "unknown"
		if registered && (w.Version != "v2" || w.Queues["q"] != 3 || len(w.Kinds) != 1 || time.Since(w.StartedAt) < 59*time.Minute) ||
			!registered && (w.Kinds != nil || w.StartedAt.IsZero() != (id == "version 1")) {
			t.Errorf("%s: %+v", id, w)
		}
	}
}
