package fault

import (
	"slices"
	"testing"
	"time"
)

func names(steps []Step) (all []string) {
	for _, s := range steps {
		all = append(all, s.Fault.Name)
	}
	return all
}

// One seed, one schedule; another seed, another one; each fault once before any
// comes twice; within the time.
var pauses = Pauses{Calm: 5 * time.Second, Recovery: 15 * time.Second}

func TestSchedule(t *testing.T) {
	once := Schedule(7, All, pauses, 0)
	if len(once) != len(All) {
		t.Errorf("%d steps for %d faults", len(once), len(All))
	}
	again, other := Schedule(7, All, pauses, 0), Schedule(8, All, pauses, 0)
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
