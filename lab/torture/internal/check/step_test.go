package check

import (
	"encoding/json"
	"testing"
	"time"
)

// Steps are told from the begin of the load, as faults are, and in seconds.
func TestStepsCountFromTheLoad(t *testing.T) {
	w := newWorld()
	w.crew()
	in := w.input()
	in.Begin = in.Events[0].At + int64(2*time.Second)
	ix := newIndex(in)
	got, err := json.Marshal(ix.event(&in.Events[0]))
	if want := `{"at":-2,"who":"harness","what":"hello"}`; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

// A lone step says what and not why, so that it is shown last.
func TestCounterexampleWithACause(t *testing.T) {
	step := func(at time.Duration) Step { return Step{At: at} }
	var f finding
	f.violated("stored", step(1))
	f.violated("stored", step(2), step(3), step(4))
	f.violated("stored", step(5), step(6))
	f.violated("stored", step(7))
	f.violated("lone", step(8))
	f.violated("long", step(9), step(10), step(11))
	if n := len(f.Examples); n != 3 || len(f.Examples[0].Steps) != 2 || f.Examples[1].Says != "long" || f.Examples[2].Says != "lone" {
		t.Errorf("%+v", f.Examples)
	}
}
