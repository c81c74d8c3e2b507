package claim_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

var teller = claim.Teller{Kinds: 0xabc, Worker: 0x123}

// told is a notification that nothing is left, taken apart.
type told struct {
	snapshot, kinds, worker, next, queue string
}

// told returns what was told since the last call; nil: nothing.
func (e ear) told() (news []told) {
	e.t.Helper()
	for _, payload := range e.heard() {
		if rest, ok := strings.CutPrefix(payload, "drained:"); ok {
			f := strings.SplitN(rest, ":", 7)
			news = append(news, told{strings.Join(f[:3], ":"), f[3], f[4], f[5], f[6]})
		}
	}
	return news
}

// request asks for up to n jobs and would tell.
func request(n int) claim.Request { return claim.Request{Queue: queue, Limit: n, Teller: teller} }

func (b *bench) claim(db claim.DB, r claim.Request) []claim.Row {
	b.t.Helper()
	c, err := b.Claim(b.ctx, db, r, lease, "worker")
	if err != nil {
		b.t.Fatal(err)
	}
	return c.Rows
}

// When a claim tells that nothing is left, and when it does not.
func TestAClaimTellsThatNothingIsLeft(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	due := claim.Mutant(t, schema, claim.SQLDrained, "coalesce(n.run_at > clock_timestamp(), true)", "true")
	idle := claim.Mutant(t, schema, claim.SQLDrained, "AND pg_current_xact_id_if_assigned() IS NOT NULL\n", "\n")
	small := claim.Mutant(t, schema, claim.SQLDrained, "octet_length(s.seen) <= 4000", "octet_length(s.seen) <= 4")
	for name, test := range map[string]struct {
		do     func(b *bench)
		tells  bool
		mutant *claim.Table // does otherwise
	}{
		"the only job": {do: func(b *bench) {
			b.insert(1)
			b.claim(b.conn, request(10))
		}, tells: true, mutant: small},
		"as many as it asked for": {do: func(b *bench) {
			b.insert(2)
			b.claim(b.conn, request(2))
		}, tells: true},
		"more are due": {do: func(b *bench) {
			b.insert(2)
			b.claim(b.conn, request(1))
		}, mutant: due},
		"one of another priority is due": {do: func(b *bench) {
			b.insert(1)
			b.insertOne("priority", "2")
			b.claim(b.conn, request(1))
		}, mutant: due},
		"somebody holds a job": {do: func(b *bench) {
			id := b.insertOne("priority", "1")
			b.insert(1)
			tx := b.open()
			if _, err := tx.Exec(b.ctx, named("SELECT FROM {{schema}}.jobs WHERE id = $1 FOR UPDATE", b.schema), id); err != nil {
				b.t.Fatal(err)
			}
			b.claim(b.conn, request(10))
			b.rollback(tx)
		}, mutant: due},
		"one of another kind is left": {do: func(b *bench) {
			b.insert(1)
			b.exec("INSERT INTO {{schema}}.jobs (kind) VALUES ('other')")
			r := request(10)
			r.Kinds = []string{"test"}
			b.claim(b.conn, r)
		}, tells: true},
		"one of its kinds is left": {do: func(b *bench) {
			b.insert(1)
			b.exec("INSERT INTO {{schema}}.jobs (kind) VALUES ('other')")
			r := request(1)
			r.Kinds = []string{"test", "other"}
			b.claim(b.conn, r)
		}, mutant: due},
		"one of another queue is left": {do: func(b *bench) {
			b.insert(1)
			b.insertOne("queue", "'other'")
			b.claim(b.conn, request(10))
		}, tells: true},
		"there was nothing": {do: func(b *bench) {
			b.claim(b.conn, request(10))
		}, mutant: idle},
		"there was nothing, but outcomes are stored": {do: func(b *bench) {
			b.insert(1)
			row := b.takeOne(lease)
			b.trip([]claim.Outcome{{Lease: row.Lease(), Verb: claim.Done}}, request(10))
		}, tells: true},
		"an outcome makes a job due": {do: func(b *bench) {
			b.insert(1)
			row := b.takeOne(lease)
			b.trip([]claim.Outcome{{Lease: row.Lease(), Verb: claim.Release}}, request(10))
		}, tells: true}, // which it takes
		"the queue is paused": {do: func(b *bench) {
			b.insert(1)
			row := b.takeOne(lease)
			b.insert(1)
			b.exec("INSERT INTO {{schema}}.queues (name, paused_at) VALUES ('default', now())")
			b.trip([]claim.Outcome{{Lease: row.Lease(), Verb: claim.Done}}, request(10))
		}, mutant: due},
		"nobody is to be told": {do: func(b *bench) {
			b.insert(1)
			b.claim(b.conn, claim.Request{Queue: queue, Limit: 10})
		}},
		"it looked from a mark": {do: func(b *bench) {
			b.insert(1)
			m := claim.NewMarks()
			makeExpensive(m, time.Now())
			m.Learn(claim.Request{Queue: queue, Limit: 1}, time.Now(), claim.Claimed{Walk: expensive, Rows: []claim.Row{{RunAt: epoch, ID: 1}}})
			r := request(10)
			if r.Look = m.Look(queue, time.Now()); r.Look == (claim.Look{}) {
				b.t.Fatal("it looks at all jobs")
			}
			b.claim(b.conn, r)
		}},
		"it was rolled back": {do: func(b *bench) {
			b.insert(1)
			tx := b.open()
			b.claim(tx, request(10))
			b.rollback(tx)
		}},
	} {
		for _, variant := range []string{"", "mutant: "} {
			t.Run(variant+name, func(t *testing.T) {
				b, tells := b.fresh(t), test.tells
				if variant != "" {
					if test.mutant == nil {
						return
					}
					b, tells = b.with(test.mutant), !tells
				}
				e := b.listen(schema)
				test.do(b)
				news := e.told()
				if len(news) > 0 != tells || len(news) > 1 {
					t.Errorf("told %q, want anything: %v", news, tells)
				}
				for _, n := range news {
					if n.queue != queue || n.kinds != "0000000000000abc" || n.worker != "0000000000000123" || n.next != "0" && variant == "" {
						t.Errorf("told %+v", n)
					}
				}
			})
		}
	}
}

// trip stores outcomes and claims in one commit.
func (b *bench) trip(outcomes []claim.Outcome, r claim.Request) {
	b.t.Helper()
	if _, _, err := b.Exchange(b.ctx, b.conn, outcomes, []claim.Request{r}, lease, "worker"); err != nil {
		b.t.Fatal(err)
	}
}

// The news hold for the transactions that were over for the look, and say so:
// what commits later is not among them, though it began before. A look with a
// snapshot that is older than the one that is told would be a promise about jobs
// that it has not seen.
func TestNewsNameTheTransactionsThatWereSeen(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	e := b.listen(schema)
	insert := func(tx pgx.Tx) (xid string) {
		t.Helper()
		if _, err := tx.Exec(b.ctx, "INSERT INTO fencepost.jobs (kind) VALUES ('test')"); err != nil {
			t.Fatal(err)
		}
		// In a transaction within the transaction, too: the bell names the outer.
		nested, err := tx.Begin(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nested.Exec(b.ctx, "INSERT INTO fencepost.jobs (kind) VALUES ('test')"); err != nil {
			t.Fatal(err)
		}
		if err := nested.Commit(b.ctx); err != nil {
			t.Fatal(err)
		}
		if err := tx.QueryRow(b.ctx, "SELECT pg_current_xact_id()::text").Scan(&xid); err != nil {
			t.Fatal(err)
		}
		return xid
	}
	before, during := b.open(), b.open()
	first := insert(during)
	second := insert(before)
	b.commit(before)
	if rows := b.claim(b.conn, request(10)); len(rows) != 2 {
		t.Fatalf("claimed %d jobs", len(rows))
	}
	after := b.open()
	third := insert(after)
	b.commit(during)
	b.commit(after)
	news := e.told()
	if len(news) != 1 {
		t.Fatalf("told %+v", news)
	}
	for xid, want := range map[string]bool{first: false, second: true, third: false} {
		expect(b, want, "SELECT pg_visible_in_snapshot($1::text::xid8, $2::text::pg_snapshot)", xid, news[0].snapshot)
	}
	if rows := b.claim(b.conn, request(10)); len(rows) != 4 {
		t.Fatalf("claimed %d jobs", len(rows))
	}
	for _, n := range e.told() {
		for _, xid := range []string{first, second, third} {
			expect(b, true, "SELECT pg_visible_in_snapshot($1::text::xid8, $2::text::pg_snapshot)", xid, n.snapshot)
		}
	}
}

// Who is spared a claim learns when the next job is due, as the claim would have
// told.
func TestNewsTellWhenTheNextJobIsDue(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{schema, awkward, "it's"} {
		b := setUpIn(t, schema)
		e := b.listen(schema)
		b.exec("INSERT INTO {{schema}}.jobs (kind, queue, run_at) SELECT 'test', 'a:b', now() + n * interval '1 hour' FROM generate_series(0, 2) AS n")
		if rows := b.claim(b.conn, claim.Request{Queue: "a:b", Limit: 10, Teller: teller}); len(rows) != 1 {
			t.Fatalf("claimed %d jobs", len(rows))
		}
		news := e.told()
		want := fmt.Sprint(ask[time.Time](b, "SELECT min(run_at) FROM {{schema}}.jobs WHERE status = 'ready'").UnixMicro())
		if len(news) != 1 || news[0].next != want || news[0].queue != "a:b" {
			t.Errorf("told %+v, want that the next job is due at %s", news, want)
		}
	}
}

// A tick names the workers that can run the same kinds, for each queue, but those
// that are known to be dead.
func TestTickNamesPeers(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for worker, columns := range map[string]string{
		"a":     `NULL, NULL, '{"q": 1, "default": 1}', NULL`,
		"b":     `NULL, NULL, '{"default": 1}', NULL`,
		"some":  `NULL, NULL, '{"q": 1, "default": 1}', '{x}'`,
		"other": `NULL, NULL, '{"other": 1}', NULL`,
		"dead":  `1, now(), '{"q": 1, "default": 1}', NULL`, // nobody holds that lock
	} {
		b.exec("INSERT INTO {{schema}}.workers (worker_id, lock_key, server_start, queues, kinds) VALUES ('" + worker + "', " + columns + ")")
	}
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	for name, test := range map[string]struct {
		worker string
		kinds  []string
		want   string
	}{
		"every kind":            {"a", nil, "map[default:[b] q:[]]"},
		"one that is not there": {"c", nil, "map[default:[a b] q:[a]]"},
		"some kinds":            {"c", []string{"x"}, "map[default:[some] q:[some]]"},
		"more kinds":            {"c", []string{"x", "y"}, "map[default:[] q:[]]"},
		"not registered":        {"", nil, "map[default:[] q:[]]"},
	} {
		ticked, err := b.Tick(ctx, b.conn, claim.TickRequest{Queues: []string{"default", "q"}, Kinds: test.kinds, Worker: test.worker, Own: "own", Token: "token"})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(ticked.Peers); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
