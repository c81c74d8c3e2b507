package report

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
)

func TestPlainTable(t *testing.T) {
	var out bytes.Buffer
	Print(&out, smallSample())
	golden(t, "held.txt", out.Bytes())
	out.Reset()
	Print(&out, failingSample())
	golden(t, "failed.txt", out.Bytes())
	if strings.ContainsAny(out.String(), "\x1b│─") {
		t.Error("colours or lines, though this is no terminal")
	}
}

func TestAFileIsNoTerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	Print(f, smallSample())
	got, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "held.txt", got)
}

func TestTerminal(t *testing.T) {
	run := judged(failingSample())
	for _, width := range []int{80, 100, 160} {
		var out bytes.Buffer
		printer{&out, look{terminal: true, width: width, colour: true}}.print(run)
		tables := 0
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "│") {
				tables++
				if n := text.StringWidthWithoutEscSequences(strings.TrimRight(line, "\n")); n > width {
					t.Errorf("%d wide, of %d: %s", n, width, line)
				}
			}
		}
		// The last columns are what matters most.
		for _, whole := range []string{"Outcome", "crash-restart", "Violated", "linearizable", "Accepted", "missed", "Doubled"} {
			if !strings.Contains(out.String(), whole) {
				t.Errorf("%d: no %s", width, whole)
			}
		}
		if tables == 0 || !strings.Contains(out.String(), "\x1b[31m") {
			t.Error("no tables, or no colours")
		}
	}
}
