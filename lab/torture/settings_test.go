package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost/lab/torture/internal/fault"
	"github.com/fencepost-go/fencepost/lab/torture/internal/run"
)

// refused is what the command says to these words.
func refused(t *testing.T, words ...string) string {
	t.Helper()
	cmd := root()
	cmd.SetArgs(append(words, "--out", t.TempDir()))
	err := cmd.ExecuteContext(t.Context())
	if err == nil {
		t.Fatalf("%q was not refused", words)
	}
	return err.Error()
}

func TestImpossibleSettingsAreRefused(t *testing.T) {
	for words, want := range map[string][]string{
		"--lease 1s --poll 500ms --workers 0 --rate -1 --minutes 0 --fault nonsense": {
			"--lease: fencepost config: Lease is 1s; must be between 2s and 24h", "--poll: fencepost config: PollInterval is 500ms; must be between 1s and 24h",
			"--workers 0: must be at least 1", "--rate -1: must be more than 0", "--minutes 0: must be more than 0", `no fault "nonsense"`,
		},
		"--lease 0s --poll 0s":      {"--lease 0s: must be more than 0", "--poll 0s: must be more than 0"},
		"--lease 25h":               {"24h"},
		"--rate NaN --minutes Inf":  {"--rate NaN", "--minutes +Inf"},
		"--major 13":                {"--major 13: must be 14 or newer"},
		"short --major 13":          {"--major 13: must be 14 or newer"},
		"--break nothing":           {`no guard "nothing"`},
		"--break poll --rate 5":     {"leave out --rate"},
		"--break poll --fault kill": {"leave out --fault"},
		"--break poll --lease 3s --minutes 1 --workers 2 --poll 2s": {"leave out --minutes, --workers, --lease, --poll"},
	} {
		got := refused(t, strings.Fields(words)...)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q, want %q", words, got, w)
			}
		}
	}
}

// A second run does not touch what the first one has.
func TestFolderIsOneRuns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	record := filepath.Join(dir, "record")
	if err := occupy(dir, true); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := occupy(dir, true); err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("a second run: %v", err)
	}
	if _, err := os.Stat(record); err != nil {
		t.Error(err)
	}
}

func TestFolderIsEmptied(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := occupy(dir, true); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

func TestAgain(t *testing.T) {
	for words, want := range map[string]string{
		"--fault kill,stall --rate 1.5":        "cd lab && go run ./torture --fault kill,stall --rate 1.5 --seed 7",
		"--minutes 0.5 --workers 2 --lease 3s": "cd lab && go run ./torture --minutes 0.5 --workers 2 --lease 3s --rate 1.5 --seed 7",
		"--break poll --out there":             "cd lab && go run ./torture --break poll --out there --seed 7",
		"--out it's --major 17":                `cd lab && go run ./torture --major 17 --rate 1.5 --out 'it'\''s' --seed 7`,
		"short":                                "cd lab && go run ./torture short --seed 7",
	} {
		r := root()
		cmd, rest, err := r.Find(strings.Fields(words))
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Fatal(err)
		}
		f := &flags{seed: 7, out: cmd.Flag("out").Value.String(), named: cmd.Flag("out").Changed}
		if got := f.again(cmd, 1.5); got != want {
			t.Errorf("%s:\n%s, want\n%s", words, got, want)
		}
	}
}

// What cannot be made is left out, and named; what was asked for is refused.
func TestFaultsThatCannotBeMade(t *testing.T) {
	var said bytes.Buffer
	at := run.Place{Major: 16, Wrong: "crew-wrong", Log: &said}
	s := settings{plan: run.Standard(0)}
	p, err := s.planFor(at, 7)
	if err != nil || p.Seed != 7 || slices.ContainsFunc(p.Faults, func(f fault.Fault) bool { return f.Name == "notify-full" }) {
		t.Errorf("%v, %v", p.Faults, err)
	}
	if got := said.String(); !strings.Contains(got, "notify-full (it takes PostgreSQL 17)") || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
	s.faults = []string{"kill", "notify-full"}
	if _, err := s.planFor(at, 7); err == nil || !strings.Contains(err.Error(), "--fault notify-full: it takes PostgreSQL 17") {
		t.Error(err)
	}
}
