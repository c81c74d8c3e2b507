package book

import (
	"testing"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
)

// write makes a book in which one suite has ended and another has not.
func write(t *testing.T, folder, flags string, resume bool) {
	t.Helper()
	b, err := Open(folder, flags, resume)
	if err != nil {
		t.Fatal(err)
	}
	b.Begin("drain", Conditions{Rounds: 3})
	b.Peer("drain", "river", "v1")
	b.Peer("drain", "river", "v1")
	b.Sample("drain", figures.Sample{Subject: "drain", Value: 7})
	b.Line("drain", figures.Line{Target: "drain_keep"})
	if err := b.Done("drain"); err != nil {
		t.Fatal(err)
	}
	b.Begin("wake", Conditions{Rounds: 5})
	b.Peer("wake", "river", "v1")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write(t, folder, "", false)
	write(t, folder, "", false) // in place of the first
	entries, err := Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 7 {
		t.Fatalf("%d entries: %+v", len(entries), entries)
	}
	if e := entries[0]; e.Begin == nil || e.Begin.Rounds != 3 || e.At.IsZero() || e.Commit == "" {
		t.Errorf("begin: %+v", e)
	}
	if e := entries[1]; e.Peer == nil || *e.Peer != (Peer{"river", "v1"}) {
		t.Errorf("peer: %+v", e)
	}
	if e := entries[2]; e.Sample == nil || e.Sample.Value != 7 {
		t.Errorf("sample: %+v", e)
	}
	if e := entries[3]; e.Line == nil || e.Line.Target != "drain_keep" {
		t.Errorf("line: %+v", e)
	}
	if e := entries[6]; e.Suite != "wake" || e.Peer == nil {
		t.Errorf("a peer of another suite: %+v", e)
	}
}

// A run goes on with what the same code with the same flags has not ended.
func TestResume(t *testing.T) {
	t.Parallel()
	const code, flags = "1a2b3c4", "full=true"
	for what, c := range map[string]struct {
		entry  Entry
		commit string
		ended  bool
	}{
		"ended":        {Entry{Commit: code, End: true, Flags: flags}, code, true},
		"not ended":    {Entry{Commit: code, Begin: &Conditions{}}, code, false},
		"other flags":  {Entry{Commit: code, End: true, Flags: "full=false"}, code, false},
		"other code":   {Entry{Commit: "5d6e7f8", End: true, Flags: flags}, code, false},
		"changed code": {Entry{Commit: code + changed, End: true, Flags: flags}, code + changed, false},
	} {
		if got := len(endedBefore([]Entry{c.entry}, c.commit, flags)) == 1; got != c.ended {
			t.Errorf("%s: %t", what, got)
		}
	}
}
