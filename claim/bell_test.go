package claim_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

// dueNow is how a bell for a job that is due begins: with the transaction that
// rings. These tests read 0.
var dueNow = regexp.MustCompile(`^1:\d{1,14}:`)

// ear listens on a channel of its own connection.
type ear struct {
	*bench
	conn    *pgx.Conn
	channel string
}

func (b *bench) listen(channel string) ear {
	b.t.Helper()
	e := ear{b, b.connect(), channel}
	if _, err := e.conn.Exec(b.ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		b.t.Fatal(err)
	}
	return e
}

// heard returns, sorted, all that was rung since the last call. It rings a
// mark and waits for it: notifications come in the order of the commits.
func (e ear) heard() []string {
	e.t.Helper()
	e.exec("SELECT pg_notify($1::text, 'mark')", e.channel)
	var bells []string
	for {
		n, err := e.conn.WaitForNotification(e.ctx)
		if err != nil {
			e.t.Fatal(err)
		}
		if n.Payload == "mark" {
			slices.Sort(bells)
			return bells
		}
		bells = append(bells, dueNow.ReplaceAllString(n.Payload, "1:0:"))
	}
}

// wantBells compares what was rung since the last look.
func (e ear) wantBells(what string, want ...string) {
	e.t.Helper()
	slices.Sort(want)
	if got := e.heard(); !slices.Equal(got, want) {
		e.t.Errorf("%s rang %q, want %q", what, got, want)
	}
}

// Every way back to ready rings, once per queue, in the statement that takes
// it: a job that is due later with its time.
func TestEveryWayBackToReadyRings(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{schema, awkward} {
		t.Run(schema, func(t *testing.T) {
			t.Parallel()
			b := setUpIn(t, schema)
			e := b.listen(schema)
			for _, verb := range verbs {
				b := b.fresh(t)
				b.exec("INSERT INTO {{schema}}.jobs (kind, queue) SELECT 'test', 'q:' || n % 3 FROM generate_series(1, 9) AS n")
				var outcomes []claim.Outcome
				for _, queue := range []string{"q:0", "q:1"} {
					c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 3}, lease, "worker")
					if err != nil {
						t.Fatal(err)
					}
					for i, row := range c.Rows {
						outcomes = append(outcomes, claim.Outcome{Lease: row.Lease(), Verb: verb, Delay: time.Duration(i+1) * time.Hour})
					}
				}
				e.heard() // the INSERT
				if _, err := b.Finish(b.ctx, b.conn, outcomes); err != nil {
					t.Fatal(err)
				}
				want := map[string][]string{"q:0": nil, "q:1": nil}
				for queue := range want {
					switch verb {
					case claim.Retry, claim.Snooze:
						want[queue] = []string{b.earliest(queue)}
					case claim.Release, claim.Return:
						want[queue] = []string{"1:0:" + queue}
					}
				}
				e.wantBells(string(verb), append(want["q:0"], want["q:1"]...)...)
			}
		})
	}
}

// earliest is the bell for the earliest job of a queue, which is due later.
func (b *bench) earliest(queue string) string {
	b.t.Helper()
	at := ask[time.Time](b, "SELECT min(run_at) FROM {{schema}}.jobs WHERE queue = $1::text AND status = 'ready'", queue)
	return fmt.Sprintf("1:%d:%s", at.UnixMicro(), queue)
}

// The tick rings for what it reaped, and for the process itself on a channel
// that nobody else hears. What ended as dead rings nobody.
func TestTickRings(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	all, own := b.listen(schema), b.listen("own")
	b.exec("INSERT INTO {{schema}}.jobs (kind, queue, max_attempts) VALUES ('test', 'a', 5), ('test', 'a', 5), ('test', 'b', 1), ('test', 'c', 5)")
	for queue, lease := range map[string]time.Duration{"a": over, "b": over, "c": lease} {
		if _, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 5}, lease, "worker"); err != nil {
			t.Fatal(err)
		}
	}
	all.heard()
	b.tick() // asks about another queue
	all.wantBells("a tick that reaps", b.earliest("a"))
	own.wantBells("a tick that reaps", "token")
	b.tick()
	all.wantBells("a tick with nothing to do")
	own.wantBells("a tick with nothing to do", "token")
}

// A claim, an extension, progress and clean-up ring nobody, nor does an
// outcome that came too late.
func TestOtherStatementsAreSilent(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(2)
	e := b.listen(schema)
	old := b.takeOne(over)
	b.tick()
	b.makeDue()
	e.heard()
	rows := b.take(2, lease)
	if len(rows) != 2 {
		t.Fatal(rows)
	}
	if _, err := b.Extend(b.ctx, b.conn, []claim.Lease{rows[0].Lease()}, lease); err != nil {
		t.Fatal(err)
	}
	if err := b.Progress(b.ctx, b.conn, rows[0].Lease(), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Prune(b.ctx, b.conn); err != nil {
		t.Fatal(err)
	}
	b.finish(claim.Lost, claim.Outcome{Lease: old.Lease(), Verb: claim.Retry})
	e.wantBells("statements that make no job ready")
}

// A bell that is not asked for in the final SELECT is never rung.
func TestBellsAreRungBecauseTheyAreCounted(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	e := b.listen(schema)
	mutant := b.with(claim.Mutant(t, schema, claim.SQLFinish, "(SELECT count(*) FROM rung)", "0::bigint"))
	b.insert(1)
	e.heard()
	row := b.takeOne(lease)
	mutant.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: claim.Return})
	e.wantBells("a hand-back that does not count its bells")
}

// A bell fits into a notification whatever the queue is called.
func TestLongQueueNamesRing(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	e := b.listen(schema)
	name := strings.Repeat("🙂", 32) // 128 bytes
	b.exec("INSERT INTO {{schema}}.jobs (kind, queue) VALUES ('test', $1::text)", name)
	c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: name, Limit: 1}, lease, "worker")
	if err != nil || len(c.Rows) != 1 {
		t.Fatal(c, err)
	}
	e.wantBells("the INSERT", "1:0:"+name)
	b.finish(claim.Stored, claim.Outcome{Lease: c.Rows[0].Lease(), Verb: claim.Retry, Delay: time.Hour})
	e.wantBells("the retry", b.earliest(name))
}
