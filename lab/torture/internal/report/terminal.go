package report

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/sys/unix"

	"github.com/fencepost-go/fencepost/lab/torture/internal/check"
)

// Print writes the run as tables: in colour, with lines and as wide as it is on
// a terminal, plain elsewhere. NO_COLOR is heeded.
func Print(w io.Writer, run Run) {
	l := look{}
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil { // only terminals have one
			l.terminal, l.width = true, int(size.Col)
			l.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		}
	}
	p := printer{w, l}
	p.print(judged(run))
}

// look is how to print.
type look struct {
	terminal bool
	width    int // 0: without bound
	colour   bool
}

type printer struct {
	io.Writer
	look
}

func (p printer) print(run Run) {
	p.head(run)
	p.faults(run.Figures.Faults)
	p.invariants(run.Findings)
	p.stale(run.Figures.Stale)
	p.controls(run.Controls)
	p.rivals(run)
	p.end(run)
}

func (p printer) head(run Run) {
	l := run.Figures.Load
	p.say("Torture of Fencepost: %s, seed %d", run.Name, run.Seed)
	if run.Without != "" {
		p.say("%s", p.control(run))
	}
	p.say("%s", strings.Join(run.place(), ", "))
	p.say("%s jobs enqueued in %s, %s outside of faults, started after %s (p50), %s (p99); %s completed",
		number(l.Acknowledged), clock(l.Seconds), rate(l.Calm), orNone(l.CalmP50, took), orNone(l.CalmP99, took), number(l.Completed))
	p.say("%s came while a worker promised to look without bells", plural(l.Silent, "job", "jobs"))
	r := run.Figures.Restarts
	p.say("workers restarted: %d as planned, %d by jobs that end their process, %d otherwise", r.Planned, r.ByJob, len(r.Unplanned))
	p.say("")
}

func (p printer) faults(faults []Fault) {
	if len(faults) == 0 {
		return
	}
	t := grid{head: table.Row{"", "Fault", "At", "Lasted", "Dip to", "Normal after", "Backlog", "Back after", "Completed", "Outcome"}, wrap: 10, right: []int{1, 3, 4, 5, 6, 7, 8, 9}, drop: []int{3, 7, 8, 4, 5}}
	for _, f := range faults {
		mark := p.good("held")
		if !f.OK() {
			mark = p.bad(f.outcome())
		} else if f.NotJudged != "" {
			mark = f.outcome()
		}
		t.rows = append(t.rows, table.Row{
			f.N, f.Name, clock(f.Begin), took(f.End - f.Begin), orNone(f.Dip, dip), orNone(f.Normal, took),
			fmt.Sprintf("%.0f", f.Peak), orNone(f.BacklogBack, took), orNone(f.Share, percent), mark,
		})
	}
	p.table(t)
	if notes := notJudged(faults); len(notes) > 0 {
		p.say("%s\n", strings.Join(notes, "\n"))
	}
}

func (p printer) invariants(findings []check.Finding) {
	t := grid{head: table.Row{"", "Invariant", "Checked", "Violated"}, wrap: 2, right: []int{1, 3, 4}}
	for _, f := range findings {
		violated := p.good("0")
		if f.Violations > 0 {
			violated = p.bad(number(f.Violations))
		}
		t.rows = append(t.rows, table.Row{f.Invariant, f.Name, number(f.Checked), violated})
	}
	p.table(t)
}

func (p printer) stale(all []StaleWrites) {
	t := grid{head: table.Row{"Stale writes", "Attempted", "Refused", "Said again", "Unknown", "Accepted"}, right: []int{2, 3, 4, 5, 6}}
	for _, s := range all {
		accepted := p.good("0")
		if s.Accepted > 0 {
			accepted = p.bad(number(s.Accepted))
		}
		t.rows = append(t.rows, table.Row{s.By, number(s.Attempted), number(s.Refused), number(s.Repeated), number(s.Unknown), accepted})
	}
	p.table(t)
}

func (p printer) controls(controls []Control) {
	t := grid{head: table.Row{"Control", "Guard removed", "Expected", "Caught by", "Took", "Outcome"}, wrap: 2, right: []int{5}}
	for _, c := range controls {
		outcome := p.good("caught")
		if c.Error != "" {
			outcome = p.bad(c.Error)
		} else if !c.OK() {
			outcome = p.bad("missed")
		}
		t.rows = append(t.rows, table.Row{c.Name, c.Guard, numbers(c.Expected), numbers(c.Caught), took(c.Seconds), outcome})
	}
	p.table(t)
}

func (p printer) rivals(run Run) {
	t := grid{head: table.Row{"Queue", "Fault", "Held", "Recovered", "Median", "Longest", "Stale accepted", "Lost", "Doubled"}, wrap: 2, right: []int{3, 4, 5, 6, 7, 8, 9}, drop: []int{3, 4, 5}}
	for _, r := range run.Rivals {
		t.rows = append(t.rows, table.Row{
			r.Queue, r.Scenario, r.Held, r.Recovered, took(r.MedianSeconds), took(r.MaxSeconds), r.StaleAccepted, r.Lost, r.Doubled,
		})
	}
	p.table(t)
}

func (p printer) end(run Run) {
	for _, c := range shortest(run.Findings) {
		title := fmt.Sprintf("Invariant %d, %s. The shortest counterexample: %s", c.Invariant, c.Name, c.Says)
		if run.Without == "" {
			title = p.bad(title)
		}
		p.say("%s", title)
		t := grid{head: table.Row{"At", "Who", "What"}, wrap: 3, right: []int{1}}
		for _, s := range c.Steps {
			t.rows = append(t.rows, table.Row{fmt.Sprintf("%.3f s", s.At.Seconds()), s.Who, s.What})
		}
		p.table(t)
	}
	p.say("Again: %s", run.Command)
	if run.Without != "" {
		if len(run.Verdict.Found) > 0 {
			p.say("The checker has found:")
		}
		for _, found := range run.Verdict.Found {
			p.say("  %s", found)
		}
		p.say("%s", p.control(run))
		if run.Verdict.OK {
			return
		}
	} else if run.Verdict.OK {
		p.say("%s", p.good("The run held."))
		return
	}
	p.say("%s", p.bad(fmt.Sprintf("The run failed, for %s:", plural(len(run.Verdict.Reasons), "reason", "reasons"))))
	for _, reason := range run.Verdict.Reasons {
		p.say("  %s", reason)
	}
}

// control is the verdict of a run without a guard, in colour.
func (p printer) control(run Run) string {
	if run.Verdict.OK {
		return p.good(run.noticed())
	}
	return p.bad(run.noticed())
}

// grid is a table to be printed.
type grid struct {
	head  table.Row
	rows  []table.Row
	wrap  int   // the column that gives way if there is not enough room; 0: none
	right []int // columns of numbers
	drop  []int // columns that are left out, in this order, if there is not enough room even so
}

// least is how wide the column that gives way stays.
const least = 16

func (p printer) table(g grid) {
	if len(g.rows) == 0 {
		return
	}
	t := table.NewWriter()
	t.AppendHeader(g.head)
	t.AppendRows(g.rows)
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	if !p.terminal {
		style.Box = table.BoxStyle{PaddingRight: "  "}
		style.Options = table.OptionsNoBordersAndSeparators
	}
	t.SetStyle(style)
	var columns []table.ColumnConfig
	hidden := g.hidden(p.width)
	for i := range g.head {
		c := table.ColumnConfig{Number: i + 1, Hidden: slices.Contains(hidden, i+1)}
		if slices.Contains(g.right, i+1) {
			c.Align, c.AlignHeader = text.AlignRight, text.AlignRight
		}
		if i+1 == g.wrap && p.width > 0 {
			c.WidthMax, c.WidthMaxEnforcer = max(p.width-g.others(hidden), least), text.WrapSoft
		}
		columns = append(columns, c)
	}
	t.SetColumnConfigs(columns)
	if p.width > 0 {
		t.Style().Size.WidthMax = p.width
	}
	lines := strings.Split(t.Render(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	p.say("%s\n", strings.Join(lines, "\n"))
}

// hidden are the columns for which there is no room.
func (g grid) hidden(width int) []int {
	n := 0
	for width > 0 && n < len(g.drop) && g.others(g.drop[:n])+least > width {
		n++
	}
	return g.drop[:n]
}

// others is how wide all columns are together that are shown, but for the text
// of the one that gives way.
func (g grid) others(hidden []int) int {
	const around = 3 // a line, and a space on each side of the text
	sum := 1
	for i := range g.head {
		if slices.Contains(hidden, i+1) {
			continue
		}
		sum += around
		if i+1 == g.wrap {
			continue
		}
		widest := text.StringWidthWithoutEscSequences(fmt.Sprint(g.head[i]))
		for _, row := range g.rows {
			widest = max(widest, text.StringWidthWithoutEscSequences(fmt.Sprint(row[i])))
		}
		sum += widest
	}
	return sum
}

func (p printer) say(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p printer) good(s string) string { return p.paint(text.FgGreen, s) }

func (p printer) bad(s string) string { return p.paint(text.FgRed, s) }

func (p printer) paint(c text.Color, s string) string {
	if !p.colour {
		return s
	}
	return c.EscapeSeq() + s + text.Reset.EscapeSeq()
}
