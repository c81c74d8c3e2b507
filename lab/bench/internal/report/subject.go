package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
)

// subject is what figures of several rows can be compared in.
type subject struct {
	name    string
	rows    []*row
	figures []string // in the order in which they were recorded
}

// row is a queue with the settings with which it took part.
type row struct {
	who, name, settings string
	best                bool
	rounds              map[string][]float64 // by figure
}

// disk is the subject of the probes, which are nobody's figures.
const disk = "disk"

func subjects(runs []run) (all []*subject) {
	for _, r := range runs {
		all = append(all, r.subjects()...)
	}
	return all
}

func (r run) subjects() (all []*subject) {
	for _, s := range r.samples {
		if s.Subject == disk {
			continue
		}
		i := slices.IndexFunc(all, func(known *subject) bool { return known.name == s.Subject })
		if i < 0 {
			i = len(all)
			all = append(all, &subject{name: s.Subject})
		}
		all[i].add(s)
	}
	return all
}

func (s *subject) add(sample figures.Sample) {
	i := slices.IndexFunc(s.rows, func(r *row) bool { return r.who == sample.Who && r.name == sample.Row })
	if i < 0 {
		i = len(s.rows)
		s.rows = append(s.rows, &row{
			who: sample.Who, name: sample.Row, settings: sample.Settings, best: sample.Best, rounds: make(map[string][]float64),
		})
	}
	if !slices.Contains(s.figures, sample.Figure) {
		s.figures = append(s.figures, sample.Figure)
	}
	r := s.rows[i]
	r.rounds[sample.Figure] = append(r.rounds[sample.Figure], sample.Value)
}

// disk is the commit rate of the disk, before each round.
func (r run) disk() (rounds []float64) {
	for _, s := range r.samples {
		if s.Subject == disk {
			rounds = append(rounds, s.Value)
		}
	}
	return rounds
}

// names are those that people know the queues by.
var names = map[string]string{
	"fencepost": "Fencepost", "river": "River", "graphile": "Graphile Worker", "pgboss": "pg-boss", "gue": "gue",
}

// queue says whether it is one: what was written by hand bounds what a queue
// can do, and is none.
func (r *row) queue() bool { return names[r.who] != "" }

func (r *row) own() bool { return r.who == "fencepost" }

func (r *row) String() string {
	name, known := names[r.who]
	rest, prefixed := strings.CutPrefix(r.name, r.who)
	switch {
	case !known:
		return r.name
	case prefixed:
		return name + rest
	}
	return name + ", " + r.name
}

// cell is a figure in a table: the median, and the range if there is one.
func cell(rounds []float64) string {
	if len(rounds) == 0 {
		return "–"
	}
	median := number(figures.Median(rounds))
	if slices.Min(rounds) == slices.Max(rounds) {
		return median
	}
	return fmt.Sprintf("%s (%s)", median, span(rounds))
}

func span(rounds []float64) string {
	return number(slices.Min(rounds)) + " to " + number(slices.Max(rounds))
}

// number has three significant digits, or all before the point.
func number(v float64) string {
	if math.Abs(v) < 999.5 {
		text := strconv.FormatFloat(v, 'g', 3, 64)
		if strings.Contains(text, "e") { // too small for three
			text = strconv.FormatFloat(v, 'f', 6, 64)
		}
		return text
	}
	digits := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if v < 0 {
		return "-" + digits
	}
	return digits
}
