package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// written is the page of testdata, and its folder.
func written(t *testing.T) (page, folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := Write("testdata", folder); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, pageFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(text), folder
}

func TestPage(t *testing.T) {
	t.Parallel()
	page, _ := written(t)
	for what, want := range map[string]string{
		"commit":             "at commit 1a2b3c4.",
		"verdict":            "2 of 3 met. Missed: drain_keep. Suites that have not been played to their end: ",
		"missed":             "| drain_keep | 1.4 × | ≥ 2.8 | **no** | 1.3 to 1.5 | 3 | River at its best |",
		"met":                "| wake_p50 | 1.08 × | ≤ 1.15 | yes | 1.05 to 1.12 | 3 | one NOTIFY and one durable claim by hand |",
		"more is better":     "- drain, jobs/s: **Graphile Worker, best** 24,500 (23,500 to 29,500); Fencepost, best, kept 21,000 (20,000 to 22,000); Fencepost, best, deleted 24,000 (23,000 to 25,000), the ranges overlap\n",
		"nobody is beaten":   "River, best | 15,000 (14,000 to 16,000) | 200,000 | 112 (110 to 115) |",
		"a range":            "| Fencepost, best, kept | 21,000 (20,000 to 22,000) | 200,000 | 51 (50 to 52) |",
		"by hand":            "| by hand, claims of 500, deleted | 43,000 (42,000 to 43,500) |",
		"fewer in columns":   "|  | Fencepost, no snapshot | River, no snapshot |",
		"a peer's version":   "| River | v0.51.2 |",
		"machine":            "| Processor | Example CPU, 2 cores |",
		"memory":             "| Memory | 8.0 GiB |",
		"disk":               "| Disk | 2,550 (2,000 to 3,000) durable commits/s",
		"server":             "| PostgreSQL | 18.4; fsync, synchronous_commit and full_page_writes on, shared_buffers 1GB |",
		"settings":           "- River, best: river, best set as it says: a batch of 500; every commit durable\n",
		"what a target asks": "- **drain_keep**, 1.4 × (≥ 2.8, missed): 200000 no-op jobs; done jobs kept; against River at its best\n",
		"chart":              "](drain.svg)",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%s: no %q", what, want)
		}
	}
	for what, unwanted := range map[string]string{
		"a suite that was broken off":                "### idle",
		"what was played again":                      "4,321",
		"probes as if they were somebody's figures":  "\ndisk:\n",
		"a round from before a suite was broken off": "(1 to ",
		"a look":                           "A look",
		"changed code":                     "Not reproducible",
		"our version, which is the commit": "this checkout",
		"River with no snapshot beats nobody with one": "held_snapshot, last tenth",
		"one at its best beats nobody at the defaults": ", CPU, µs/job: **",
		"a floor that is ahead":                        "**by hand",
		"a size that is better than another":           ", jobs: **",
	} {
		if strings.Contains(page, unwanted) {
			t.Errorf("%s: %q", what, unwanted)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

// Each chart is XML and has the bars of everybody who was measured.
func TestCharts(t *testing.T) {
	t.Parallel()
	page, folder := written(t)
	bars := map[string]int{
		"drain.svg": 7, "cpu.svg": 7, "wake.svg": 4, "enqueue-1.svg": 3, "enqueue-16.svg": 3, "enqueue-bulk.svg": 3, "wal.svg": 2, "held.svg": 4,
	}
	for _, c := range charts {
		svg, err := os.ReadFile(filepath.Join(folder, c.file))
		if err != nil {
			t.Fatal(err)
		}
		if got := count(t, svg); got != bars[c.file] {
			t.Errorf("%s has %d bars, not %d", c.file, got, bars[c.file])
		}
		if !strings.Contains(page, "!["+c.title+"]("+c.file+")") {
			t.Errorf("%s is not on the page", c.file)
		}
	}
	drain, err := os.ReadFile(filepath.Join(folder, "drain.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">Graphile Worker, best<", ">24,500<", ">by hand, claims of 500, deleted<"} {
		if !strings.Contains(string(drain), want) {
			t.Errorf("drain.svg: no %s", want)
		}
	}
}

// count counts the bars of a chart: the shapes in a colour of theirs.
func count(t *testing.T, svg []byte) (bars int) {
	t.Helper()
	fills := make(map[string]bool)
	for _, colours := range [][]string{{"#1F6FB4", "#8FBFE6"}, {"#D97A1E", "#F2C08A"}, {"#808080", "#C4C4C4"}} {
		for _, c := range colours {
			fills["fill:"+c] = true
		}
	}
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return bars
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok || e.Name.Local != "path" {
			continue
		}
		for _, a := range e.Attr {
			if a.Name.Local == "style" && fills[a.Value] {
				bars++
			}
		}
	}
}

// A chart of an older run is no chart of this one.
func TestOldChartsGo(t *testing.T) {
	t.Parallel()
	in, out := t.TempDir(), t.TempDir()
	old := filepath.Join(out, "wake.svg")
	if err := os.WriteFile(old, []byte("<svg/>"), 0o644); err != nil {
		t.Fatal(err)
	}
	results := `{"suite":"drain","begin":{}}
{"suite":"drain","sample":{"subject":"drain","who":"fencepost","row":"best, kept","figure":"jobs/s","value":0}}
{"suite":"drain","end":true}
`
	if err := os.WriteFile(filepath.Join(in, "results.jsonl"), []byte(results), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(in, out); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there still: %v", err)
	}
}

func TestNothingToReport(t *testing.T) {
	t.Parallel()
	in, out := t.TempDir(), t.TempDir()
	results := `{"suite":"drain","begin":{}}` + "\n"
	if err := os.WriteFile(filepath.Join(in, "results.jsonl"), []byte(results), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(in, out); err == nil {
		t.Error("a page of nothing")
	}
}

// Somebody at its best is held against our defaults if we have nothing else.
func TestRivals(t *testing.T) {
	t.Parallel()
	s := &subject{name: "wake", figures: []string{"p50 ms", "jobs"}, rows: []*row{
		{who: "fencepost", name: "fencepost", rounds: map[string][]float64{"p50 ms": {2}, "jobs": {1}}},
		{who: "river", name: "river, best", best: true, rounds: map[string][]float64{"p50 ms": {1}, "jobs": {2}}},
		{who: "gue", name: "gue, best", best: true, rounds: map[string][]float64{"p50 ms": {3}}},
		{who: "pgboss", name: "pgboss, best", best: true},
		{who: "floor", name: "by hand", rounds: map[string][]float64{"p50 ms": {1}}},
	}}
	want := []string{"wake, p50 ms: **River, best** 1; Fencepost 2"}
	if got := s.ahead(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	s.rows = append(s.rows, &row{who: "fencepost", name: "fencepost, best", best: true, rounds: map[string][]float64{"p50 ms": {0.5}}})
	if got := s.ahead(); len(got) != 0 {
		t.Errorf("beside one that is as good as it gets: %q", got)
	}
}

// What kind of run it was stands at the top.
func TestOpening(t *testing.T) {
	t.Parallel()
	r := run{commit: "1a2b3c4-changed"}
	r.conditions.Small = true
	if words := opening([]run{r}); !strings.Contains(words, "**A look, no measurement:**") || !strings.Contains(words, "**Not reproducible:**") {
		t.Error(words)
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.00123: "0.00123", 0.0000042: "0.000004", 1.4: "1.4", 12.345: "12.3", 999.4: "999", 999.6: "1,000", 1234567: "1,234,567", -1500: "-1,500",
	} {
		if got := number(v); got != want {
			t.Errorf("%v: %s, not %s", v, got, want)
		}
	}
}
