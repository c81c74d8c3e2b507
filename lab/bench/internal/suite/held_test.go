package suite

import (
	"io"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// Jobs of all kinds of the suite, to the last.
func TestDrainUnderASnapshot(t *testing.T) {
	t.Parallel()
	d, err := open(t).drain(t.Context(), drain{
		peer: "fencepost", o: wire.Options{Keep: true, Slots: 50},
		p:       wire.Produce{N: 190, Bytes: 200, Way: "copy", Batch: 100},
		late:    wire.Produce{N: 10, First: 190, Bytes: 200, Way: "copy", Batch: 100, DelayTo: time.Second},
		arrange: "UPDATE fencepost.jobs SET run_at = now() WHERE run_at < now()",
		w:       wire.Work{FailEvery: 10, RetryAfter: 10 * time.Millisecond, Window: 20},
		held:    true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if d.jobs != 200 || d.handled != 200 || len(d.windows) != heldWindows || lastWindow(d.windows) <= 0 {
		t.Errorf("jobs %d, handled %d, windows %v", d.jobs, d.handled, d.windows)
	}
}

func TestLastWindow(t *testing.T) {
	t.Parallel()
	nine := []float64{9, 9, 9, 9, 9, 9, 9, 9, 9}
	if got := lastWindow(append(nine, 4)); got != 4 {
		t.Errorf("the last of ten: %v", got)
	}
	if got := lastWindow(nine); got != 0 {
		t.Errorf("not reached: %v", got)
	}
}

// Those without a snapshot are another subject, and who does not come to the
// last tenth gets nothing done there.
func TestRecordHeld(t *testing.T) {
	t.Parallel()
	last := make(map[string]float64)
	b := &Bench{Log: io.Discard, Record: func(s figures.Sample) {
		if s.Figure == heldFigure {
			last[s.Subject] = s.Value
		}
	}}
	river := entrant{name: "river", peer: "river"}
	b.recordHeld("held_snapshot", heldRun{river, false}, 0, drained{windows: []float64{9, 9, 9, 9, 9, 9, 9, 9, 9, 4}})
	b.recordHeld("held_snapshot", heldRun{river, true}, 0, drained{windows: []float64{9}})
	if want := map[string]float64{"held_snapshot, no snapshot": 4, "held_snapshot": 0}; !maps.Equal(last, want) {
		t.Errorf("%v, not %v", last, want)
	}
}

// Vacuum removes nothing while a snapshot is held, and a snapshot that was lost
// meanwhile is an error.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	b := open(t)
	dsn, drop, err := b.Host.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Error(err)
		}
	})
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	size := func() (bytes int) {
		t.Helper()
		exec("DELETE FROM kept")
		exec("VACUUM kept")
		if err := conn.QueryRow(t.Context(), "SELECT pg_relation_size('kept')").Scan(&bytes); err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	exec("CREATE TABLE kept AS SELECT FROM generate_series(1, 1000)")
	held, err := holdSnapshot(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	if size() == 0 {
		t.Error("rows were removed that the snapshot sees")
	}
	if err := held.release(); err != nil {
		t.Error(err)
	}
	if n := size(); n != 0 {
		t.Errorf("%d bytes are left without a snapshot", n)
	}

	if held, err = holdSnapshot(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	exec("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'")
	if held.release() == nil {
		t.Error("it was lost, and nobody was told")
	}
}
