package crew

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// haunted is a zombie that is moved by hand, with jobs to remember.
type haunted struct {
	*zombie
	t    *testing.T
	dir  string
	conn *pgx.Conn // of somebody else
}

func newHaunted(t *testing.T) *haunted {
	dsn, dir := database(t), t.TempDir()
	w, err := history.Create(dir, "zombie-1.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return &haunted{
		zombie: &zombie{
			member: member{script.Assignment{Name: "zombie-1.1"}, w},
			table:  claim.In("fencepost"),
			rng:    rand.New(rand.NewPCG(1, 1)),
			conn:   pgtest.Conn(t, dsn),
			known:  make(map[claim.Lease]bool),
		},
		t: t, dir: dir, conn: pgtest.Conn(t, dsn),
	}
}

// claim has somebody claim all that is there.
func (h *haunted) claim() []claim.Row {
	h.t.Helper()
	c, err := h.table.Claim(h.t.Context(), h.conn, claim.Request{Queue: script.Main, Limit: 10}, time.Minute, "somebody")
	if err != nil {
		h.t.Fatal(err)
	}
	return c.Rows
}

func (h *haunted) finish(l claim.Lease, verb claim.Verb) {
	h.t.Helper()
	results, err := h.table.Finish(h.t.Context(), h.conn, []claim.Outcome{{Lease: l, Verb: verb}})
	if err != nil || results[0] != claim.Stored {
		h.t.Fatal(results, err)
	}
}

func (h *haunted) job(token string) claim.Row {
	h.t.Helper()
	_, err := h.conn.Exec(h.t.Context(), `WITH r AS (INSERT INTO shop.orders (token, via) VALUES ($1, 'test'))
INSERT INTO fencepost.jobs (kind, queue, payload) VALUES ('short', 'main', jsonb_build_object('token', $1::text))`, token)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.claim()[0]
}

// round has the zombie look at all that it remembers, and replay what is due.
func (h *haunted) round() {
	h.t.Helper()
	for _, m := range h.memories {
		m.due = time.Time{}
	}
	if err := h.haunt(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// answers are those to replays about the claim, by result.
func (h *haunted) answers(l claim.Lease) map[string]int {
	h.t.Helper()
	events, err := history.Read(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	answers := make(map[string]int)
	for _, e := range events {
		if e.Op == history.Replay && e.Phase != history.Call && e.Job == l.ID && e.Fence == l.Fence {
			answers[e.Result+e.Error]++
		}
	}
	return answers
}

func TestAZombieReplaysWhatIsStaleForGood(t *testing.T) {
	h := newHaunted(t)
	running, over, taken := h.job("running"), h.job("over"), h.job("taken")
	if err := h.sample(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(h.memories) != 3 {
		t.Fatalf("%d claims are remembered, want 3", len(h.memories))
	}
	h.finish(over.Lease(), claim.Done)
	h.finish(taken.Lease(), claim.Return)
	again := h.claim()[0] // the last one, under a new fence
	_, err := h.conn.Exec(t.Context(), `UPDATE shop.orders SET fence = $1 WHERE token = 'taken'`, again.Fence)
	if err != nil {
		t.Fatal(err)
	}
	h.round()
	if got := h.answers(running.Lease()); len(got) > 0 {
		t.Errorf("a claim that is valid was replayed: %v", got)
	}
	if got := h.answers(over.Lease()); len(got) > 0 {
		t.Errorf("a claim that ended under its own fence was replayed: %v", got)
	}
	got := h.answers(taken.Lease())
	if got[lost] != len(finishVerbs)+2 || got[refused] != 3 || len(got) != 2 {
		t.Errorf("a stale claim: %v", got)
	}
	// Every trace that it could have left.
	var fence, row int64
	var status, progress string
	var effect int64
	err = h.conn.QueryRow(t.Context(), `SELECT j.fence, j.status, coalesce(j.progress::text, ''), o.fence, (SELECT count(*) FROM fencepost.finished)
FROM fencepost.jobs AS j, shop.orders AS o WHERE j.id = $1 AND o.token = 'taken'`, again.ID).Scan(&fence, &status, &progress, &row, &effect)
	if err != nil || fence != again.Fence || status != "running" || progress != "" || row != again.Fence || effect != 1 {
		t.Errorf("the job of the newer claim is %v %q %q %v %v, %v", fence, status, progress, row, effect, err)
	}

	h.finish(again.Lease(), claim.Done)
	if _, err := h.conn.Exec(t.Context(), `DELETE FROM fencepost.finished WHERE id = $1`, again.ID); err != nil {
		t.Fatal(err)
	}
	h.round()
	if got := h.answers(taken.Lease())[gone]; got != len(finishVerbs)+2 {
		t.Errorf("after the job has gone: %v", h.answers(taken.Lease()))
	}
}

// What was proved on one server is not true of another, which has taken over
// and never heard of the newer fence.
func TestAnotherServerProvesNothing(t *testing.T) {
	h := newHaunted(t)
	old := h.job("old")
	if err := h.sample(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.finish(old.Lease(), claim.Return)
	if err := h.look(t.Context(), h.memories); err != nil {
		t.Fatal(err)
	}
	if !h.memories[0].stale {
		t.Fatal("a claim that is over is not stale")
	}
	_, err := h.conn.Exec(t.Context(), `UPDATE fencepost.jobs SET fence = $2, status = 'running', attempts = 1,
worker_id = 'somebody', lease_until = clock_timestamp() + '1 minute' WHERE id = $1`, old.ID, old.Fence) // as on the server that took over
	if err != nil {
		t.Fatal(err)
	}
	h.server = time.Time{}
	h.round()
	if got := h.answers(old.Lease()); len(got) > 0 {
		t.Errorf("a claim that is valid again was replayed: %v", got)
	}
}

// A write that is accepted is written down as such: here the claims are valid,
// and the zombie is told otherwise.
func TestAnAcceptedReplayIsSeen(t *testing.T) {
	for verb, want := range map[string]string{
		"finish": accepted, "complete": accepted, "progress": accepted, "effect": accepted, "extend": extended, "check": held,
	} {
		t.Run(verb, func(t *testing.T) {
			h := newHaunted(t)
			valid := h.job("valid")
			if err := h.sample(t.Context()); err != nil {
				t.Fatal(err)
			}
			m := h.memories[0]
			m.stale, m.overwritten = true, true
			err := map[string]func() error{
				"finish":   func() error { return h.zombie.finish(t.Context(), claim.Done, h.memories) },
				"complete": func() error { return h.complete(t.Context(), m) },
				"progress": func() error { return h.progress(t.Context(), m) },
				"effect":   func() error { return h.effect(t.Context(), m) },
				"extend":   func() error { return h.extend(t.Context(), h.memories) },
				"check":    func() error { return h.check(t.Context(), h.memories) },
			}[verb]()
			if got := h.answers(valid.Lease()); err != nil || got[want] != 1 || len(got) != 1 {
				t.Errorf("%v, %v; want one %q", got, err, want)
			}
		})
	}
}

func TestAZombieRemembersNoMoreThanItCan(t *testing.T) {
	h := newHaunted(t)
	for i := range int64(3 * mostMemories) {
		h.remember(&memory{id: i, fence: 1})
		h.remember(&memory{id: i, fence: 1})
	}
	if len(h.memories) != mostMemories || len(h.known) != mostMemories {
		t.Errorf("%d memories, %d known", len(h.memories), len(h.known))
	}
	ended := h.memories[0]
	ended.ended = time.Now().Add(-2 * forget)
	h.round()
	if h.known[ended.lease()] {
		t.Error("what has ended under its own fence is not forgotten")
	}
}
