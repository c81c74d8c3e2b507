package crew

import (
	"fmt"
	"testing"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// A producer that cannot send goes by its schedule all the same: what is due
// while too many are open is missed, and the rest goes on.
func TestALoadDoesNotWait(t *testing.T) {
	dsn, dir := database(t), t.TempDir()
	conn := pgtest.Conn(t, dsn)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE shop.orders, fencepost.jobs`); err != nil {
		t.Fatal(err)
	}
	a := producerOf(dsn, dir)
	a.Rate = 300
	p := act(t, a)
	events := until(t, dir, shown("missed", func(e history.Event) bool { return e.Op == history.Missed && e.Asked > 0 }))
	open := 0
	for _, e := range events {
		switch {
		case e.Op == history.Enqueue && e.Phase == history.Call:
			open++
		case e.Op == history.Enqueue:
			open--
		}
	}
	if open < mostOpen {
		t.Errorf("missed with %d open", open)
	}
	unlocked := history.Now()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, dir, shown("a transaction that began later", func(e history.Event) bool {
		return e.Op == history.Enqueue && e.Phase == history.Call && e.At > unlocked
	}))
	p.end(t)
	events, err = history.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	callsEnd(t, events)
	rowsAre(t, dsn, events)
}

// What was due long before the process was there is not made up for, nor
// missed: a former life may have done it.
func TestALateProducerDoesNotCatchUp(t *testing.T) {
	dsn, dir := database(t), t.TempDir()
	a := producerOf(dsn, dir)
	a.Start = history.Now() - int64(100*stale)
	p := act(t, a)
	events := until(t, dir, shown("enqueue", func(e history.Event) bool { return e.Op == history.Enqueue && e.Phase == history.OK }))
	p.end(t)
	missed, before := 0, 100*int(a.Rate) // the jobs of 100 s
	for _, e := range events {
		if e.Op == history.Missed { // on a machine that is busy
			missed += e.Asked
		}
		if e.Op == history.Enqueue && e.Phase == history.Call {
			var n int
			if _, err := fmt.Sscanf(e.Refs[0].Token, a.Name+"-%d", &n); err != nil || n < before/2 {
				t.Errorf("order %s was due long ago", e.Refs[0].Token)
			}
		}
	}
	if missed > before/2 {
		t.Errorf("%d jobs are missed", missed)
	}
}
