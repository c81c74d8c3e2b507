package host

import (
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
)

// The same work writes the same to the log after a checkpoint and without one,
// but for the images, and each commit is counted at once.
func TestWAL(t *testing.T) {
	ctx := t.Context()
	h, err := Start(ctx, 0, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	}()
	dsn, drop, err := h.Fresh(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := drop(); err != nil {
			t.Error(err)
		}
	}()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	run := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(ctx, sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	// Autovacuum keeps away from it, and a change stays on its page.
	run("CREATE TABLE t (id int PRIMARY KEY, n int, pad text) WITH (fillfactor = 10, autovacuum_enabled = off)")
	run("INSERT INTO t SELECT i, 0, repeat('x', 100) FROM generate_series(1, 800) i")
	const commits = 40
	work := func() WAL {
		t.Helper()
		from, err := h.Position(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i := range commits {
			run("UPDATE t SET n = n + 1 WHERE id BETWEEN $1 AND $2", i*20+1, i*20+20)
			run("SELECT count(*) FROM t WHERE id = $1", i) // it changes nothing and counts for nothing
		}
		to, err := h.Position(ctx)
		if err != nil {
			t.Fatal(err)
		}
		w, err := h.WAL(ctx, from, to)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	work() // makes what only the first one makes
	if err := h.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	after, without := work(), work()
	t.Logf("after a checkpoint %+v, plain %d; without %+v, plain %d", after, after.Plain(), without, without.Plain())
	if after.Images < 40_000 || without.Images > after.Images/10 {
		t.Errorf("images: %d after a checkpoint, %d without", after.Images, without.Images)
	}
	// Headers of the pages that the images take up stay, about a third of a
	// percent of them, and so do what a record says of its image.
	if diff := after.Plain() - without.Plain(); diff < -without.Plain()/10 || diff > without.Plain()/10+after.Images/50 {
		t.Errorf("without images: %d after a checkpoint, %d without", after.Plain(), without.Plain())
	}
	// Autovacuum may have committed something elsewhere.
	for _, w := range []WAL{after, without} {
		if w.Commits < commits || w.Commits > commits+5 {
			t.Errorf("%d commits, not %d", w.Commits, commits)
		}
	}
	if w, err := h.WAL(ctx, "0/1000000", "0/1000000"); err != nil || w != (WAL{}) {
		t.Errorf("between a place and itself: %+v, %v", w, err)
	}
}
