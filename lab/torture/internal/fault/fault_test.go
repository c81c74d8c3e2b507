package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// What a fault may leave in the database, and must not.
const sqlTraces = `
SELECT array_agg(what ORDER BY what) FROM (
    SELECT 'tablespace ' || spcname FROM pg_tablespace WHERE spcname LIKE 'torture%'
    UNION ALL SELECT 'role ' || rolname FROM pg_roles WHERE rolname = 'torture_idler'
    UNION ALL SELECT 'table ' || c.oid::regclass::text FROM pg_class AS c WHERE relname LIKE 'torture%'
    UNION ALL SELECT 'column ' || attname FROM pg_attribute WHERE attrelid = 'fencepost.jobs'::regclass AND attname = 'torture'
    UNION ALL SELECT 'constraint ' || conname FROM pg_constraint WHERE conname = 'torture'
    UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE proname = 'torture'
    UNION ALL SELECT 'setting ' || name FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf' AND applied AND name NOT IN ('primary_conninfo', 'max_notify_queue_pages')
    UNION ALL SELECT 'session ' || query FROM pg_stat_activity WHERE application_name = 'torture fault'
) AS t (what)`

// traces are what is left; a session needs a moment to be gone.
func (w *world) traces() (all []string) {
	w.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err := w.Admin().QueryRow(w.t.Context(), sqlTraces).Scan(&all); err != nil {
			w.t.Fatal(err)
		}
		if len(all) == 0 || time.Now().After(deadline) {
			return all
		}
	}
}

// mounted are the small disks that the primary's data directory has. Other runs
// may go on beside this one.
func (w *world) mounted() (all []string) {
	w.t.Helper()
	if !stage.CanMount() {
		return nil
	}
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, " "+w.Data()+"/") {
			all = append(all, line)
		}
	}
	return all
}

// length is how long faults last here.
const length = time.Second

// major of the server, if this suite has to run on one.
func major() (n int) {
	_, _ = fmt.Sscan(os.Getenv("FENCEPOST_TEST_MAJOR"), &n)
	return n
}

// Every fault, one after the other on one stage, mends what it broke: all
// processes come back to the database, none is frozen, and nothing is left.
func TestEveryFaultMends(t *testing.T) {
	w := open(t, stage.Options{Standby: true, Pooler: true, Wrong: os.Args[0], Major: major()}, 3)
	w.well(0)
	for i, f := range All {
		ok := t.Run(f.Name, func(t *testing.T) {
			if lack := f.Needs.Lack(w.Stage); lack != "" {
				// What needs a newer server has a test of its own.
				if os.Getenv("FENCEPOST_NEED_ALL") != "" && f.Needs.Major == 0 {
					t.Error(lack)
				}
				t.Log(lack)
				return
			}
			begin := history.Now()
			if err := f.play(t.Context(), w.Stage, rand.New(rand.NewPCG(uint64(i), 1)), length); err != nil {
				t.Fatal(err)
			}
			over := history.Now()
			w.well(over)
			if took := time.Duration(over - begin); took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
			if all := w.traces(); len(all) > 0 {
				t.Errorf("left behind: %q", all)
			}
			if all := w.mounted(); len(all) > 0 {
				t.Errorf("left mounted: %q", all)
			}
			recorded(t, w.events(), f.Name, begin)
			effect(t, w, f.Name, begin)
		})
		if !ok {
			t.Fatalf("after %s nothing can be said", f.Name)
		}
	}
}

// effect looks whether some faults, which could easily be none, have done
// anything.
func effect(t *testing.T, w *world, name string, begin int64) {
	t.Helper()
	ready := 0
	for _, e := range w.events() {
		if e.At > begin && e.Op == history.Ready {
			ready++
		}
	}
	switch name {
	case "failover":
		if lost, err := w.Lost(t.Context()); err != nil || len(lost) == 0 {
			t.Errorf("it lost %d lines, %v", len(lost), err)
		}
	case "disk-full-wal":
		said, err := os.ReadFile(filepath.Join(filepath.Dir(w.Data()), "log"))
		if err != nil || !strings.Contains(string(said), "PANIC") || ready != 2 {
			t.Errorf("no PANIC in the log, %v, or ready %d times", err, ready)
		}
	case "crash-restart", "fast-restart", "kill-backend":
		if ready != 1 {
			t.Errorf("the server was ready %d times again", ready)
		}
	case "migration":
		var changed bool // a column that was dropped leaves a trace
		err := w.Admin().QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_attribute WHERE attrelid = 'fencepost.jobs'::regclass AND attisdropped").Scan(&changed)
		if err != nil || !changed {
			t.Errorf("the schema has not changed, or %v", err)
		}
	case "several":
		var all []history.Event // begins and ends of those inside
		for _, e := range w.events() {
			if e.At > begin && e.Op == history.Fault && strings.HasPrefix(e.Verb, "several/") {
				all = append(all, e)
			}
		}
		if len(all) != 6 || all[0].Phase != history.Call || all[5].N != all[0].N {
			t.Errorf("the first to begin is not the last to end, of three: %+v", all)
		}
	case "bells-lost", "bells-late", "bells-doubled", "bells-deaf":
		sum := 0
		for _, p := range w.Processes("") {
			sum += p.Net().Withheld()
		}
		if sum <= w.withheld {
			t.Errorf("%d notifications did not simply pass, before it %d", sum, w.withheld)
		}
		w.withheld = sum
	}
}

// recorded looks at what the history says of a fault that is over: it begins,
// it ends, and each network and each frozen process is well.
func recorded(t *testing.T, events []history.Event, name string, begin int64) {
	t.Helper()
	open := make(map[string]int)
	phases := 0
	for _, e := range events {
		if e.Proc != "harness" || e.At < begin {
			continue
		}
		switch e.Op {
		case history.Fault:
			if e.Verb == name {
				phases++
			}
		case history.Cut:
			open["cut "+e.Target]++
		case history.Mend:
			open["cut "+e.Target] = 0
		case history.Pause:
			open["pause "+e.Target]++
		case history.Resume:
			open["pause "+e.Target]--
		case history.Exit:
			delete(open, "pause "+e.Target)
			delete(open, "cut "+e.Target)
		}
	}
	if phases != 2 {
		t.Errorf("the fault has %d events, want its begin and its end", phases)
	}
	for what, n := range open {
		if n > 0 {
			t.Errorf("%d of %s have no end", n, what)
		}
	}
}

// A fault whose context ends, at once or in the middle, mends all the same.
func TestFaultsThatAreCutShortMend(t *testing.T) {
	w := open(t, stage.Options{Standby: true, Pooler: true, Wrong: os.Args[0], Major: major()}, 2)
	w.well(0)
	for i, f := range All {
		if f.Needs.Lack(w.Stage) != "" || slices.Contains([]string{"failover", "disk-full-wal"}, f.Name) {
			continue // these take their time in any case
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		begin := time.Now()
		err := f.play(ctx, w.Stage, rand.New(rand.NewPCG(uint64(i), 2)), 20*time.Second)
		cancel()
		t.Logf("%s: %v after %s", f.Name, err, time.Since(begin))
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("%s went on for %s", f.Name, took)
		}
		w.well(history.Now())
		if all := append(w.traces(), w.mounted()...); len(all) > 0 {
			t.Fatalf("%s has left %q", f.Name, all)
		}
	}
}

// The queue of notifications is full: who notifies is refused, and who enqueues
// is not.
func TestNotifyFull(t *testing.T) {
	version := major()
	if version < 17 {
		version = 18
	}
	w := open(t, stage.Options{Major: version}, 1)
	w.well(0)
	refused, stopped := 0, make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(stopped)
		for wait(ctx, 5*time.Millisecond) {
			if _, err := w.Admin().Exec(t.Context(), "SELECT fencepost.enqueue('control')"); err != nil {
				t.Errorf("enqueue: %v", err)
			}
			if _, err := w.Admin().Exec(t.Context(), "NOTIFY control"); isCode(err, "54000") {
				refused++
			}
		}
	}()
	f, _ := Named("notify-full")
	err := f.play(t.Context(), w.Stage, rand.New(rand.NewPCG(1, 1)), length)
	stop()
	<-stopped
	if err != nil {
		t.Error(err)
	}
	if refused == 0 {
		t.Error("no notification was refused")
	}
	w.well(history.Now())
}

// Without workers, too, every fault does no harm: as in the beginning of a run.
func TestFaultsWithoutWorkers(t *testing.T) {
	w := open(t, stage.Options{Major: major()}, 0)
	for i, f := range All {
		if f.Needs.Lack(w.Stage) != "" || f.Needs.Mount {
			continue
		}
		if err := f.play(t.Context(), w.Stage, rand.New(rand.NewPCG(uint64(i), 3)), 100*time.Millisecond); err != nil {
			t.Error(err)
		}
	}
	w.well(0)
}

// What a fault needs and the stage has not is said, and nothing is done.
func TestNeeds(t *testing.T) {
	w := open(t, stage.Options{Major: major()}, 0)
	for _, name := range []string{"failover", "role-swap", "pooler", "clock"} {
		f, ok := Named(name)
		if !ok {
			t.Fatalf("there is no fault %s", name)
		}
		if err := f.Run(t.Context(), w.Stage, rand.New(rand.NewPCG(1, 1))); err == nil || !strings.Contains(err.Error(), "no ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if (Needs{Major: 99}).Lack(w.Stage) == "" {
		t.Error("version 99 is taken for granted")
	}
	if len(w.events()) != 0 {
		t.Errorf("it is in the history: %v", w.events())
	}
}
