package report

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/fencepost-go/fencepost/lab/bench/internal/book"
	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/suite"
)

// page is all that was found, as Markdown.
func page(runs []run, drawn []chart) string {
	var b strings.Builder
	b.WriteString("# Last figures\n\n<!-- Written by `go run ./bench report`; not edited by hand. -->\n\n")
	b.WriteString(wrap(opening(runs)))
	b.WriteString("\n[Targets](#targets) · [Where another queue is ahead](#where-another-queue-is-ahead) · [Charts](#charts) ·\n" +
		"[Machine and versions](#machine-and-versions) · [All figures](#all-figures)\n")
	targets(&b, runs)
	aheads(&b, runs)
	pictures(&b, drawn)
	machine(&b, runs)
	b.WriteString("\n## All figures\n\nMedian (lowest to highest round). A dash: not measured.\n")
	for _, r := range runs {
		r.section(&b)
	}
	return b.String()
}

const minute = "2006-01-02 15:04"

// opening says what kind of run it was.
func opening(runs []run) string {
	first := slices.MinFunc(runs, func(a, b run) int { return a.began.Compare(b.began) }).began
	last := slices.MaxFunc(runs, func(a, b run) int { return a.ended.Compare(b.ended) }).ended
	commits := distinct(runs, func(r run) string { return r.commit })
	words := fmt.Sprintf("Measured from %s to %s UTC at commit %s. How, and what it does not show: [benchmarks](../benchmarks.md).\n",
		first.Format(minute), last.Format(minute), commits)
	if slices.ContainsFunc(runs, func(r run) bool { return r.conditions.Small }) {
		words += "\n**A look, no measurement:** sizes are a tenth, and there was one round.\n"
	}
	if slices.ContainsFunc(runs, func(r run) bool { return book.Changed(r.commit) }) {
		words += "\n**Not reproducible:** the code was not that of the commit.\n"
	}
	return words
}

// targets tells of each whether it was met, and what there is no word of.
func targets(b *strings.Builder, runs []run) {
	t := columns("Target", "Value", "Limit", "Met", "Range", "Rounds", "Against")
	met, all := 0, 0
	var missed []string
	for _, r := range runs {
		for _, l := range r.lines {
			all++
			verdict := "yes"
			if l.Met {
				met++
			} else {
				verdict = "**no**"
				missed = append(missed, l.Target)
			}
			t.AppendRow(table.Row{l.Target, unit(number(l.Value), l), limit(l), verdict, number(l.Low) + " to " + number(l.High), l.N, l.Against})
		}
	}
	fmt.Fprintf(b, "\n## Targets\n\n")
	words := fmt.Sprintf("%d of %d met.", met, all)
	if len(missed) > 0 {
		words += " Missed: " + strings.Join(missed, ", ") + "."
	}
	var absent []string
	for _, s := range suite.All {
		if !slices.ContainsFunc(runs, func(r run) bool { return r.suite == s.Name }) {
			absent = append(absent, s.Name)
		}
	}
	if len(absent) > 0 {
		words += " Suites that have not been played to their end: " + strings.Join(absent, ", ") + "."
	}
	b.WriteString(wrap(words) + "\n" + t.RenderMarkdown() + "\n")
}

func unit(value string, l figures.Line) string { return strings.TrimSpace(value + " " + l.Unit) }

func limit(l figures.Line) string {
	sign := "≤ "
	if l.AtLeast {
		sign = "≥ "
	}
	return sign + number(l.Limit)
}

func aheads(b *strings.Builder, runs []run) {
	b.WriteString("\n## Where another queue is ahead\n\n")
	b.WriteString(wrap("By the medians, and against Fencepost at its best or at its defaults as the other is; where there is no such row, " +
		"against each. Hand-written SQL bounds what a queue can do, and is none: how near Fencepost comes to it, the targets say."))
	b.WriteString("\n")
	var words []string
	for _, s := range subjects(runs) {
		words = append(words, s.ahead()...)
	}
	if len(words) == 0 {
		b.WriteString("- Nowhere in this run.\n")
	}
	for _, w := range words {
		b.WriteString(bullet(w))
	}
}

func pictures(b *strings.Builder, drawn []chart) {
	b.WriteString("\n## Charts\n\n")
	if len(drawn) == 0 {
		b.WriteString("None: no suite that has one was played to its end.\n")
		return
	}
	b.WriteString("Medians, with the range of the rounds. Blue: Fencepost; orange: other queues; grey: hand-written SQL.\n")
	for _, c := range drawn {
		fmt.Fprintf(b, "\n![%s](%s)\n", c.title, c.file)
	}
}

// machine tells what was measured on, and of which versions. Where suites
// differ, all is told.
func machine(b *strings.Builder, runs []run) {
	of := func(what func(book.Conditions) string) string {
		return distinct(runs, func(r run) string { return what(r.conditions) })
	}
	var probes []float64
	versions := make(map[string][]string)
	for _, r := range runs {
		probes = append(probes, r.disk()...)
		for _, p := range r.peers {
			if names[p.Name] != "" && p.Name != "fencepost" && !slices.Contains(versions[p.Name], p.Version) {
				versions[p.Name] = append(versions[p.Name], p.Version)
			}
		}
	}
	t := columns("", "")
	t.AppendRow(table.Row{"Processor", of(func(c book.Conditions) string {
		return fmt.Sprintf("%s, %d cores", c.Machine.Processor, c.Machine.Cores)
	})})
	t.AppendRow(table.Row{"Memory", of(func(c book.Conditions) string { return fmt.Sprintf("%.1f GiB", float64(c.Machine.Memory)/(1<<30)) })})
	t.AppendRow(table.Row{"Disk", cell(probes) + " durable commits/s of one connection, probed before each round"})
	t.AppendRow(table.Row{"Kernel", of(func(c book.Conditions) string { return c.Machine.Kernel })})
	t.AppendRow(table.Row{"Go", of(func(c book.Conditions) string { return c.Machine.Go })})
	t.AppendRow(table.Row{"PostgreSQL", of(func(c book.Conditions) string {
		settings := []string{"fsync, synchronous_commit and full_page_writes on"}
		for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
			settings = append(settings, name+" "+c.Settings[name])
		}
		return c.Server + "; " + strings.Join(settings, ", ")
	})})
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		t.AppendRow(table.Row{names[name], strings.Join(versions[name], " / ")})
	}
	b.WriteString("\n## Machine and versions\n\n" + t.RenderMarkdown() + "\n")
}

// section is all of one suite.
func (r run) section(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n\n", r.suite)
	words := fmt.Sprintf("%s. Rounds: %d; %s to %s UTC", about(r.suite), r.conditions.Rounds, r.began.Format(minute), r.ended.Format("15:04"))
	if probes := r.disk(); len(probes) > 0 {
		words += fmt.Sprintf("; the disk: %s commits/s", cell(probes))
	}
	b.WriteString(wrap(words + "."))
	if len(r.lines) > 0 {
		b.WriteString("\n")
	}
	for _, l := range r.lines {
		verdict := "met"
		if !l.Met {
			verdict = "missed"
		}
		b.WriteString(bullet(fmt.Sprintf("**%s**, %s (%s, %s): %s; against %s", l.Target, unit(number(l.Value), l), limit(l), verdict, l.What, l.Against)))
	}
	for _, s := range r.subjects() {
		fmt.Fprintf(b, "\n%s:\n\n%s\n", s.name, s.table())
	}
	b.WriteString(r.settings())
}

func about(name string) string {
	for _, s := range suite.All {
		if s.Name == name {
			return strings.ToUpper(s.About[:1]) + s.About[1:]
		}
	}
	return "A suite that is no more"
}

// table has the fewer of rows and figures in its columns.
func (s *subject) table() string {
	var heads []any
	if len(s.rows) >= len(s.figures) {
		for _, figure := range s.figures {
			heads = append(heads, figure)
		}
		t := columns(slices.Concat([]any{""}, heads)...)
		for _, r := range s.rows {
			line := table.Row{r.String()}
			for _, figure := range s.figures {
				line = append(line, cell(r.rounds[figure]))
			}
			t.AppendRow(line)
		}
		return t.RenderMarkdown()
	}
	for _, r := range s.rows {
		heads = append(heads, r.String())
	}
	t := columns(slices.Concat([]any{""}, heads)...)
	for _, figure := range s.figures {
		line := table.Row{figure}
		for _, r := range s.rows {
			line = append(line, cell(r.rounds[figure]))
		}
		t.AppendRow(line)
	}
	return t.RenderMarkdown()
}

// settings are those of the rows, each told once.
func (r run) settings() string {
	var lines []string
	for _, s := range r.subjects() {
		for _, row := range s.rows {
			if line := bullet(row.String() + ": " + row.settings); row.settings != "" && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "\nSettings:\n\n" + strings.Join(lines, "")
}

func columns(heads ...any) table.Writer {
	t := table.NewWriter()
	t.AppendHeader(heads)
	t.Style().Format.Header = text.FormatDefault
	return t
}

// distinct are the different words of the runs.
func distinct(runs []run, of func(run) string) string {
	var words []string
	for _, r := range runs {
		if w := of(r); !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	return strings.Join(words, " / ")
}

const lineWidth = 130

// padding is what WrapSoft fills lines up with.
var padding = regexp.MustCompile(`(?m) +$`)

// wrap breaks paragraphs into lines.
func wrap(words string) string {
	paragraphs := strings.Split(strings.TrimRight(words, "\n"), "\n")
	for i, p := range paragraphs {
		paragraphs[i] = padding.ReplaceAllString(text.WrapSoft(p, lineWidth), "")
	}
	return strings.Join(paragraphs, "\n") + "\n"
}

func bullet(words string) string { return "- " + words + "\n" }
