package fault

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

func names(steps []Step) (all []string) {
	for _, s := range steps {
		all = append(all, s.Fault.Name)
	}
	return all
}

// flat are steps in the order in which they begin.
func flat(steps []Step) (all []Step) {
	for _, s := range steps {
		all = append(append(all, s), flat(s.Beside)...)
	}
	return all
}

// One seed, one schedule; another seed, another one; each fault once before any
// comes twice; within the time.
var pauses = Pauses{Calm: 5 * time.Second, Recovery: 15 * time.Second}

func TestSchedule(t *testing.T) {
	once := flat(Schedule(7, All, pauses, 0))
	if len(once) != len(All) {
		t.Errorf("%d steps for %d faults", len(once), len(All))
	}
	again, other := flat(Schedule(7, All, pauses, 0)), flat(Schedule(8, All, pauses, 0))
	same := true
	seen := make(map[string]bool)
	for i := range once {
		if once[i].Fault.Name != again[i].Fault.Name || once[i].Seed != again[i].Seed {
			t.Fatalf("step %d of one seed: %s and %s", i, once[i].Fault.Name, again[i].Fault.Name)
		}
		same = same && once[i].Fault.Name == other[i].Fault.Name
		seen[once[i].Fault.Name] = true
	}
	if same {
		t.Error("two seeds have one order")
	}
	if len(seen) != len(All) {
		t.Errorf("%d of %d faults: %v", len(seen), len(All), names(once))
	}

	length := 20 * time.Minute
	var used time.Duration
	count := make(map[string]int)
	for _, s := range Schedule(7, All[:4], pauses, length) {
		used += s.Calm + s.Fault.Length + s.Recovery
		count[s.Fault.Name]++
	}
	if used > length || used < length-2*time.Minute {
		t.Errorf("%s are used of %s", used, length)
	}
	for _, f := range All[:4] {
		if n := count[f.Name]; n < 8 {
			t.Errorf("%s comes %d times: %v", f.Name, n, count)
		}
	}
	if steps := Schedule(7, All[:1], pauses, time.Second); len(steps) != 1 {
		t.Errorf("a time that is too short for one has %v", names(steps))
	}
}

// A snapshot is held for two minutes, while others happen that leave its
// session alone; by itself, or in a hurry, it has none beside it.
func TestCompany(t *testing.T) {
	at := make(map[int]bool)
	for seed := range uint64(20) {
		steps := Schedule(seed, All, pauses, 0)
		i := slices.IndexFunc(steps, func(s Step) bool { return s.Fault.Name == "snapshot" })
		at[i] = true
		var beside time.Duration
		for _, s := range steps[i].Beside {
			beside += s.lasts()
			if s.Fault.touches&(servers|schema) != 0 {
				t.Errorf("%s beside a snapshot", s.Fault.Name)
			}
		}
		if beside < 2*time.Minute || beside > 3*time.Minute {
			t.Errorf("%s beside a snapshot: %v", beside, names(steps[i].Beside))
		}
	}
	if len(at) < 5 {
		t.Errorf("it always comes at the same place: %v", at)
	}
	snapshot, _ := Named("snapshot")
	kill, _ := Named("kill")
	for _, faults := range [][]Fault{{snapshot}, {snapshot.Within(time.Second), kill}} {
		for _, s := range Schedule(1, faults, pauses, 0) {
			if len(s.Beside) > 0 {
				t.Errorf("%v beside %s", names(s.Beside), s.Fault.Name)
			}
		}
	}
}

// The fault and what happens beside it are in the history, one inside of the
// other.
func TestStepsBesideAFault(t *testing.T) {
	w := open(t, stage.Options{Major: major()}, 2)
	w.well(0)
	var all []Fault
	for _, name := range []string{"pause", "terminate-keeper"} {
		f, _ := Named(name)
		all = append(all, f.Within(length))
	}
	snapshot, _ := Named("snapshot")
	all = append(all, snapshot)
	brief := Pauses{Calm: 100 * time.Millisecond, Recovery: 100 * time.Millisecond}
	steps := Schedule(1, all, brief, 0)
	if len(steps) != 1 {
		t.Fatalf("steps: %v", names(steps))
	}
	if err := steps[0].Run(t.Context(), w.Stage); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range w.events() {
		if e.Op == history.Fault {
			got = append(got, e.Verb+" "+string(e.Phase))
		}
	}
	first, second := steps[0].Beside[0].Fault.Name, steps[0].Beside[1].Fault.Name
	want := []string{"snapshot call", first + " call", first + " ok", second + " call", second + " ok", "snapshot ok"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if all := w.traces(); len(all) > 0 {
		t.Errorf("left behind: %q", all)
	}
}

// A name leads to one fault, and every fault says what it is.
func TestNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range All {
		if seen[f.Name] || f.Name == "" || f.About == "" || f.Length <= 0 || f.Run == nil || f.touches == 0 {
			t.Errorf("%+v", f.Name)
		}
		seen[f.Name] = true
		if f.Length > 15*time.Second {
			t.Errorf("%s lasts %s", f.Name, f.Length)
		}
	}
	for _, name := range slices.Concat(lasting, passing) {
		if !seen[name] {
			t.Errorf("there is no fault %s", name)
		}
	}
}
