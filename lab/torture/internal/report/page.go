package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"about":     About,
	"clock":     clock,
	"left":      func() float64 { return left },
	"less":      func(a, b int) int { return a - b },
	"minus":     func(a, b float64) float64 { return a - b },
	"notJudged": notJudged,
	"number":    number,
	"numbers":   numbers,
	"outcome":   Fault.outcome,
	"plural":    plural,
	"plus":      func(a, b float64) float64 { return a + b },
	"px":        func(x float64) string { return fmt.Sprint(round(x, 1)) },
	"took":      took,
	"whole":     func(x float64) string { return number(int(x + 0.5)) },
	"whose":     func(by string) string { return whose[by] },
	"orNone": func(x *float64, say string) string {
		return orNone(x, map[string]func(float64) string{"took": took, "percent": percent, "dip": dip}[say])
	},
}).Parse(pageText))

// page is what the template shows.
type page struct {
	Run
	Place    []string
	Tiles    []tile
	Examples []timeline
	Strips   []strip
	Targets  string
	Noticed  string
	Facts    []fact
	Glossary []word
}

// tile is one figure that matters most.
type tile struct {
	Value, Text string
	Bad         bool
}

type fact struct{ Name, Value string }

// timeline is a counterexample, with a column for each process.
type timeline struct {
	Invariant  int
	Name, Says string
	Who        []string
	Rows       []timelineRow
}

type timelineRow struct {
	At    string
	Cells []string
}

// writePage writes the page of a run that has its verdict.
func writePage(w io.Writer, run Run) error {
	p := page{
		Run: run, Place: run.place(), Tiles: run.tiles(), Strips: strips(run.Figures), Targets: targets, Noticed: run.noticed(),
		Facts: run.facts(), Glossary: glossary,
	}
	for _, e := range shortest(run.Findings) {
		p.Examples = append(p.Examples, e.timeline())
	}
	return pageTemplate.Execute(w, p)
}

// timeline gives each process a column, in the order in which they appear.
func (e example) timeline() timeline {
	t := timeline{Invariant: e.Invariant, Name: e.Name, Says: e.Says}
	for _, s := range e.Steps {
		if !slices.Contains(t.Who, s.Who) {
			t.Who = append(t.Who, s.Who)
		}
	}
	for _, s := range e.Steps {
		row := timelineRow{At: fmt.Sprintf("%.3f", s.At.Seconds()), Cells: make([]string, len(t.Who))}
		row.Cells[slices.Index(t.Who, s.Who)] = s.What
		t.Rows = append(t.Rows, row)
	}
	return t
}

// tiles are the figures on top.
func (r Run) tiles() []tile {
	l := r.Figures.Load
	tiles := []tile{{Value: number(l.Acknowledged), Text: "jobs enqueued, confirmed to their producers"}}
	violations, checked := 0, 0
	for _, f := range r.Findings {
		violations, checked = violations+f.Violations, checked+f.Checked
		if f.Invariant == 1 {
			tiles = append(tiles, tile{number(f.Violations), "of them lost", f.Violations > 0})
		}
	}
	tiles = append(tiles, tile{number(violations), fmt.Sprintf("violations in %s cases that were checked", number(checked)), violations > 0})
	accepted := 0
	for _, s := range r.Figures.Stale {
		accepted += s.Accepted
	}
	tiles = append(tiles, tile{number(accepted), fmt.Sprintf("stale writes accepted, of %s attempted", number(r.Figures.attempted(""))), accepted > 0})
	if n := len(r.Figures.Faults); n > 0 {
		held := 0
		for _, f := range r.Figures.Faults {
			if f.OK() {
				held++
			}
		}
		tiles = append(tiles, tile{fmt.Sprintf("%d of %d", held, n), "faults without a target missed", held < n})
	}
	if n := len(r.Controls); n > 0 {
		caught := 0
		for _, c := range r.Controls {
			if c.OK() {
				caught++
			}
		}
		tiles = append(tiles, tile{fmt.Sprintf("%d of %d", caught, n), "controls caught: runs without a guard", caught < n})
	}
	if l.CalmP50 != nil {
		tiles = append(tiles, tile{Value: took(*l.CalmP50), Text: "from due to start outside of faults, for half of the jobs; " + took(*l.CalmP99) + " for 99 of 100"})
	}
	return tiles
}

// facts are where and with what the run was.
func (r Run) facts() []fact {
	var facts []fact
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, fact{name, value})
		}
	}
	s, v, m, l := r.Settings, r.Versions, r.Machine, r.Figures.Load
	add("Fencepost", v.Fencepost)
	add("PostgreSQL", v.PostgreSQL)
	add("Go", v.Go)
	add("PgBouncer", v.PgBouncer)
	add("River", v.River)
	machine := []string{m.OS}
	if m.Cores > 0 {
		machine = append(machine, plural(m.Cores, "core", "cores"))
	}
	if m.CPU != "" {
		machine = append(machine, m.CPU)
	}
	if m.Memory > 0 {
		machine = append(machine, fmt.Sprintf("%.1f GiB of memory", float64(m.Memory)/(1<<30)))
	}
	add("machine", strings.Join(machine, ", "))
	if s.Workers > 0 {
		var slots []string
		for _, queue := range slices.Sorted(maps.Keys(s.Slots)) {
			slots = append(slots, fmt.Sprintf("%s %d", queue, s.Slots[queue]))
		}
		add("workers", fmt.Sprintf("%d, each with these slots: %s", s.Workers, strings.Join(slots, ", ")))
	}
	add("lease, poll interval", took(s.Lease)+", "+took(s.Poll))
	add("load", fmt.Sprintf("%g jobs a second, offered for %s min whatever happened; some transactions roll back as planned", round(s.Rate, 1), clock(l.Seconds)))
	add("enqueued", fmt.Sprintf("%s offered by producers: %s confirmed, %s not committed, %s not known, %s not begun; %s more by handlers",
		number(l.Offered), number(l.Acknowledged), number(l.NotCommitted), number(l.Unknown), number(l.Missed), number(l.Children)))
	add("completed", fmt.Sprintf("%s jobs, in %s handlers", number(l.Completed), number(l.Started)))
	add("drain", fmt.Sprintf("%s after the end of the load; %s left", took(r.Drain), plural(r.Left, "job", "jobs")))
	add("durability", fmt.Sprintf("fsync %s, synchronous_commit %s", s.Fsync, s.SynchronousCommit))
	var server []string
	for _, name := range slices.Sorted(maps.Keys(s.Server)) {
		server = append(server, name+" = "+s.Server[name])
	}
	add("other settings of the server", strings.Join(server, ", "))
	return facts
}
