package history

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func write(t *testing.T, dir, proc, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, proc+suffix), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, "worker-1.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, "worker-1.1"); err == nil {
		t.Error("a second history of one process")
	}
	before := Now()
	n := w.Begin(Event{Op: Claim, Asked: 3})
	w.End(n, OK, Event{Op: Claim, Refs: []Ref{{Job: 7, Fence: 9}}})
	w.Write(Event{Op: Seen, Ref: Ref{Job: 7, Result: "row"}, DB: 5})
	// It is read while it is still written.
	events, err := Read(dir)
	if err != nil || len(events) != 3 {
		t.Fatal(events, err)
	}
	call, back, seen := events[0], events[1], events[2]
	if call.Phase != Call || back.Phase != OK || call.N == 0 || call.N != back.N || call.Asked != 3 {
		t.Errorf("%+v, %+v", call, back)
	}
	if !slices.Equal(back.Refs, []Ref{{Job: 7, Fence: 9}}) || seen.Job != 7 || seen.Result != "row" || seen.DB != 5 || seen.Phase != "" {
		t.Errorf("%+v, %+v", back, seen)
	}
	for _, e := range events {
		if e.Proc != "worker-1.1" || e.At < before || e.At > Now() {
			t.Errorf("%+v", e)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestManyWriteOneHistory(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, "worker-1.1")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				w.End(w.Begin(Event{Op: Finish}), OK, Event{Op: Finish})
			}
		})
	}
	group.Wait()
	events, err := readFile(filepath.Join(dir, "worker-1.1"+suffix)) // as it was written
	if err != nil || len(events) != 1600 {
		t.Fatal(len(events), err)
	}
	calls := make(map[int64]Phase)
	for i, e := range events {
		if i > 0 && e.At < events[i-1].At {
			t.Fatalf("line %d is older than the one before", i+1)
		}
		if e.Phase == Call && calls[e.N] != "" || e.Phase == OK && calls[e.N] != Call {
			t.Errorf("%s of call %d after %q", e.Phase, e.N, calls[e.N])
		}
		calls[e.N] = e.Phase
	}
	if len(calls) != 800 {
		t.Errorf("%d calls", len(calls))
	}
}

// By time, whatever the process; what happened at once stays as its process has
// written it.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b", `{"at":1,"op":"hello"}`+"\n"+`{"at":3,"op":"claim"}`+"\n"+`{"at":3,"op":"start"}`+"\n")
	write(t, dir, "a", `{"at":2,"op":"hello"}`+"\n"+`{"at":4,"op":"bye"}`+"\n")
	write(t, dir, "c", "")
	write(t, dir, "witness", "what the database saw: no history, and left out\n")
	write(t, dir, "a.log", "not a history, by its name\n")
	if err := os.Rename(filepath.Join(dir, "a.log"+suffix), filepath.Join(dir, "a.log")); err != nil {
		t.Fatal(err)
	}
	events, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, e.Proc+" "+string(e.Op))
	}
	if want := []string{"b hello", "a hello", "b claim", "b start", "a bye"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHalfALine(t *testing.T) {
	const whole = `{"at":1,"op":"hello"}` + "\n" + `{"at":2,"op":"claim"}` + "\n"
	for name, c := range map[string]struct {
		text string
		want int    // events
		err  string // ""; none
	}{
		"none":                         {whole, 2, ""},
		"of a process that was killed": {whole + `{"at":3,"op":"fin`, 2, ""},
		"that lacks only its end":      {whole + `{"at":3,"op":"bye"}`, 3, ""},
		"and nothing else":             {`{"at`, 0, ""},
		"in the middle":                {`{"at":1,"op":"hel` + "\n" + whole, 0, "worker-1.1.jsonl:1:"},
		"of two that run together":     {whole + `{"at":3,"op":"fin{"at":4,"op":"bye"}` + "\n" + whole, 0, "worker-1.1.jsonl:3:"},
		"as a whole last one":          {whole + `{"at":3,"op":"fin` + "\n", 0, "worker-1.1.jsonl:3:"},
		"that is empty":                {whole + "\n" + whole, 0, "worker-1.1.jsonl:3:"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "worker-1.1", c.text)
			write(t, dir, "worker-2.1", "")
			events, err := Read(dir)
			if len(events) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%d events, %v", len(events), err)
			}
		})
	}
}

func TestALongLine(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, "worker-1.1")
	if err != nil {
		t.Fatal(err)
	}
	w.Write(Event{Op: Claim, Refs: make([]Ref, 200_000)})
	events, err := Read(dir)
	if err != nil || len(events) != 1 || len(events[0].Refs) != 200_000 {
		t.Error(len(events), err)
	}
}
