package report

import (
	"image/color"
	"slices"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
)

// chart is a figure or two of everybody in a subject or two.
type chart struct {
	file, title string
	subjects    []string
	figures     []string
}

var charts = []chart{
	{"drain.svg", "A backlog of no-op jobs, jobs/s (more is better)", []string{"drain"}, []string{"jobs/s"}},
	{"cpu.svg", "Processor time of server and worker, µs a job (less is better)", []string{"drain"}, []string{"CPU, µs/job"}},
	{"wake.svg", "From commit to handler on an idle queue, ms (less is better)", []string{"wake"}, []string{"p50 ms", "p99 ms"}},
	{"enqueue-1.svg", "Enqueued one by one from 1 goroutine, jobs/s (more is better)", []string{"enqueue_1"}, []string{"jobs/s"}},
	{"enqueue-16.svg", "Enqueued one by one from 16 goroutines, jobs/s (more is better)", []string{"enqueue_16"}, []string{"jobs/s"}},
	{"enqueue-bulk.svg", "Enqueued in bulk, jobs/s (more is better)", []string{"enqueue_bulk"}, []string{"jobs/s"}},
	{"wal.svg", "Log from enqueue to done, B a job (less is better)", []string{"cost"}, []string{"WAL, B/job"}},
	{
		"held.svg", "The last tenth of a backlog, jobs/s (more is better)",
		[]string{"held_snapshot, no snapshot", "held_snapshot"},
		[]string{"last tenth, jobs/s"},
	},
}

// The colours of ourselves, of other queues, and of what was written by hand;
// the lighter ones are those of a second figure.
var (
	ownColours   = []color.Color{color.RGBA{0x1f, 0x6f, 0xb4, 0xff}, color.RGBA{0x8f, 0xbf, 0xe6, 0xff}}
	peerColours  = []color.Color{color.RGBA{0xd9, 0x7a, 0x1e, 0xff}, color.RGBA{0xf2, 0xc0, 0x8a, 0xff}}
	floorColours = []color.Color{color.RGBA{0x80, 0x80, 0x80, 0xff}, color.RGBA{0xc4, 0xc4, 0xc4, 0xff}}
)

func (r *row) colours() []color.Color {
	switch {
	case r.own():
		return ownColours
	case r.queue():
		return peerColours
	}
	return floorColours
}

// group is a row of a chart.
type group struct {
	name string
	bars []bar
}

type bar struct {
	value, low, high float64
	label            string
	colour           color.Color
}

// groups are the rows of the chart. Those of one queue stand together, in the
// order in which the queues were first seen.
func (c chart) groups(all []*subject) (groups []group) {
	var rows []*row
	for _, name := range c.subjects {
		for _, s := range all {
			if s.name == name {
				rows = append(rows, s.rows...)
			}
		}
	}
	var order []string
	for _, r := range rows {
		order = append(order, r.who)
	}
	slices.SortStableFunc(rows, func(a, b *row) int { return slices.Index(order, a.who) - slices.Index(order, b.who) })
	for _, r := range rows {
		g := group{name: r.String()}
		for i, figure := range c.figures {
			rounds := r.rounds[figure]
			if len(rounds) == 0 {
				continue
			}
			b := bar{value: figures.Median(rounds), low: slices.Min(rounds), high: slices.Max(rounds), colour: r.colours()[i]}
			b.label = number(b.value)
			if len(c.figures) > 1 {
				b.label = figure + ": " + b.label
			}
			g.bars = append(g.bars, b)
		}
		if len(g.bars) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}
