package suite

import (
	"testing"
	"time"
)

// Only ready jobs of the kind that is asked for are claimed, and there are as
// many after it as before.
func TestBacklogIsKeptUp(t *testing.T) {
	t.Parallel()
	b := open(t)
	for _, q := range []*backlogged{
		{name: "future", ready: 150, beside: beside{n: 200, kind: backlogKind, due: 24 * time.Hour}},
		{name: "lower", ready: 150, beside: beside{n: 200, kind: backlogKind, due: -2 * time.Hour, priority: 1}},
		{name: "foreign", ready: 150, beside: beside{n: 200, kind: backlogOther, due: -2 * time.Hour}},
	} {
		undo, err := q.open(t.Context(), b)
		if err != nil {
			t.Fatal(q.name, err)
		}
		for range 3 {
			if err := q.claim(t.Context()); err != nil {
				t.Error(q.name, err)
			}
		}
		var jobs int
		if err := q.conn.QueryRow(t.Context(), "SELECT count(*) FROM fencepost.jobs").Scan(&jobs); err != nil || jobs != 350 {
			t.Error(q.name, jobs, err)
		}
		if len(q.took) != 3 || q.mean() <= 0 {
			t.Error(q.name, q.took)
		}
		if err := undo(); err != nil {
			t.Error(q.name, err)
		}
	}
}

// A disk that is too small is told before anything is written.
func TestBacklogNeedsRoom(t *testing.T) {
	t.Parallel()
	b := open(t)
	if err := b.hasRoom(t.Context(), []*backlogged{{ready: 1000}}); err != nil {
		t.Error(err)
	}
	if err := b.hasRoom(t.Context(), []*backlogged{{ready: 1e12}}); err == nil {
		t.Error("there is room for a petabyte")
	}
}
