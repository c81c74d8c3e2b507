package check

import (
	"testing"
	"time"

	statements "github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// What a real server has in its tables is understood.
func TestASampleOfARealServer(t *testing.T) {
	ctx := t.Context()
	conn := furnished(t)
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(ctx, sql)
		must(t, err)
	}
	want := func(running, unnamed int) {
		t.Helper()
		s, err := Look(ctx, conn)
		must(t, err)
		if s.Running != running || len(s.Unnamed) != unnamed {
			t.Errorf("%+v; want %d jobs that run, %d of them unnamed", s, running, unnamed)
		}
	}
	exec("INSERT INTO fencepost.jobs (kind, queue) SELECT 'short', 'main' FROM generate_series(1, 3)")
	want(0, 0)
	claimed, err := statements.In("fencepost").Claim(ctx, conn, statements.Request{Queue: script.Main, Limit: 2}, time.Hour, "somebody")
	must(t, err)
	if len(claimed.Rows) != 2 {
		t.Fatalf("%+v", claimed)
	}
	want(2, 0)
	exec("UPDATE fencepost.claims SET look_at = look_at + interval '1 second'")
	want(2, 2)
	exec("UPDATE fencepost.jobs SET lease_until = clock_timestamp() - interval '1 minute' WHERE status = 'running'; UPDATE fencepost.claims SET look_at = clock_timestamp() + interval '1 second'")
	want(2, 0)
	exec("UPDATE fencepost.claims SET ids = ids[1:1]")
	want(2, 1)
	exec("DELETE FROM fencepost.claims")
	want(2, 2)
}
