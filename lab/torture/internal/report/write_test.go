package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	update = flag.Bool("update", false, "write the golden files anew")
	keep   = flag.String("keep", "", "a folder in which the pages of the samples are kept, to be looked at")
)

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (go test -update writes it anew):\n%s", file, diff)
	}
}

// written writes a report and returns its two files.
func written(t *testing.T, run Run, name string) (asJSON, asPage []byte) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name) // which is not there yet
	if *keep != "" {
		dir = filepath.Join(*keep, name)
	}
	if err := Write(run, dir); err != nil {
		t.Fatal(err)
	}
	for file, to := range map[string]*[]byte{JSONFile: &asJSON, PageFile: &asPage} {
		var err error
		if *to, err = os.ReadFile(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	return asJSON, asPage
}

func TestJSON(t *testing.T) {
	asJSON, _ := written(t, smallSample(), "small")
	golden(t, "report.json", asJSON)
}

// An absent list is not null, whatever the run has not got.
func TestJSONOfNothing(t *testing.T) {
	asJSON, asPage := written(t, Run{}, "nothing")
	golden(t, "nothing.json", asJSON)
	wellFormed(t, asPage)
}

func TestPage(t *testing.T) {
	sections := []string{"verdict", "course", "faults", "invariants", "stale", "restarts", "controls", "rivals", "repeat", "words"}
	run := longSample()
	_, page := written(t, run, "held")
	ids := wellFormed(t, page)
	if !slices.Equal(ids, sections) {
		t.Errorf("sections %v, want %v", ids, sections)
	}
}

func TestPageOfARunThatFailed(t *testing.T) {
	run := failingSample()
	_, page := written(t, run, "failed")
	if ids := wellFormed(t, page); !slices.Contains(ids, "counterexamples") {
		t.Errorf("sections %v", ids)
	}
	said := reading(page)
	_, reasons := run.OK()
	if len(reasons) < 6 {
		t.Fatalf("%q", reasons)
	}
	for _, reason := range reasons {
		if !strings.Contains(said, reason) {
			t.Errorf("the page does not say %q", reason)
		}
	}
	// The shortest comes first; each step is in the column of its process.
	first, second := strings.Index(said, "job 12 started 0.4 s before"), strings.Index(said, "an outcome of worker-2.1")
	if first < 0 || second < first {
		t.Errorf("counterexamples at %d and %d", first, second)
	}
	e := shortest(run.Findings)[1].timeline()
	want := timelineRow{At: "36.300", Cells: []string{"", "", run.Findings[4].Examples[0].Steps[3].What, ""}}
	if diff := cmp.Diff(want, e.Rows[3]); diff != "" {
		t.Error(diff)
	}
	for _, row := range e.Rows {
		for _, cell := range row.Cells {
			if !strings.Contains(said, cell) {
				t.Errorf("the page does not say %q", cell)
			}
		}
	}
}

// wellFormed reads the page strictly, sees that nothing is loaded from
// elsewhere, and returns the ids.
func wellFormed(t *testing.T, page []byte) (ids []string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(page))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return ids
		}
		if err != nil {
			t.Fatalf("line %d: %v", bytes.Count(page[:d.InputOffset()], []byte("\n"))+1, err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if e.Name.Local == "script" || e.Name.Local == "link" || e.Name.Local == "img" {
			t.Errorf("there is a %s", e.Name.Local)
		}
		for _, a := range e.Attr {
			switch a.Name.Local {
			case "id":
				ids = append(ids, a.Value)
			case "src", "href", "onclick":
				t.Errorf("%s has %s %q", e.Name.Local, a.Name.Local, a.Value)
			case "d", "x", "y", "width", "height", "viewBox":
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") || strings.Contains(a.Value, "ZgotmplZ") {
					t.Errorf("%s of %s: %s", a.Name.Local, e.Name.Local, a.Value)
				}
			}
		}
	}
}

// reading is what a reader sees of a page, without its style.
func reading(page []byte) string {
	var b strings.Builder
	d := xml.NewDecoder(bytes.NewReader(page))
	for {
		token, err := d.Token()
		if err != nil {
			return regexp.MustCompile(`\s+`).ReplaceAllString(b.String(), " ")
		}
		if s, ok := token.(xml.CharData); ok {
			b.Write(s)
		}
	}
}
