package report

import (
	"fmt"
	"math"
	"strings"
)

// The measures of a strip, in units of its view box.
const (
	left, right = 56.0, 8.0
	wide        = 1000.0
	laneHeight  = 20.0
	gap         = 26.0
	letter      = 6.0 // the width of one, about
	stripLength = 300.0
)

// strip is a part of the run's course: its panels one above the other, with one
// axis of time.
type strip struct {
	Width, Height float64
	Label         string
	Bands         []band
	BandTop       float64 // from there down
	BandHeight    float64
	Panels        []panel
	Ticks         []tick
}

// band is a fault in a strip: a bar with its name, and a shade over all panels.
type band struct {
	X, Width, Y  float64
	TextX, TextY float64
	Anchor       string
	Name, Title  string
	Bad          bool
}

// panel is one diagram.
type panel struct {
	Title       string
	Top, Height float64
	Bottom      float64
	Levels      []tick
	Curves      []curve
}

type curve struct {
	Class, Path string
}

type tick struct {
	At   float64
	Text string
}

// strips cuts the course of a run into strips of at most five minutes.
func strips(f Figures) []strip {
	if len(f.Bins) == 0 {
		return nil
	}
	end := float64(len(f.Bins)) * f.BinSeconds
	n := math.Ceil(end / stripLength)
	length := math.Ceil(end / n)
	scale := scaleOf(f.Bins)
	var all []strip
	for i := range int(n) {
		all = append(all, f.strip(float64(i)*length, length, scale))
	}
	return all
}

// scale is the same in all strips, so that they can be compared.
type scale struct{ rate, backlog, low, high float64 }

func scaleOf(bins []Bin) scale {
	s := scale{rate: 1, backlog: 1, low: math.Inf(1), high: 0.01}
	for _, b := range smooth(bins) {
		s.rate = max(s.rate, b.Enqueued, b.Completed)
		s.backlog = max(s.backlog, b.Backlog)
		if b.P50 != nil {
			s.low, s.high = min(s.low, *b.P50), max(s.high, *b.P99)
		}
	}
	s.rate, s.backlog = nice(s.rate), nice(s.backlog)
	// Whole powers of ten.
	s.low = math.Pow(10, math.Floor(math.Log10(max(min(s.low, 0.01), 0.001))))
	s.high = math.Pow(10, math.Ceil(math.Log10(s.high)))
	return s
}

// nice is the next number that is good to read.
func nice(x float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8, 10} {
		if m*p >= x {
			return m * p
		}
	}
	return 10 * p
}

// smooth is the rates over two bins, a second, as a half has few jobs at a low
// rate.
func smooth(bins []Bin) []Bin {
	out := make([]Bin, len(bins))
	for i, b := range bins {
		out[i] = b
		if i > 0 {
			out[i].Enqueued = (b.Enqueued + bins[i-1].Enqueued) / 2
			out[i].Completed = (b.Completed + bins[i-1].Completed) / 2
		}
	}
	return out
}

func (f Figures) strip(from, length float64, s scale) strip {
	x := func(at float64) float64 { return left + (at-from)/length*(wide-left-right) }
	st := strip{Width: wide, Label: clock(from) + " to " + clock(from+length)}
	lanes := st.bands(f.Faults, from, length, x)
	y := float64(lanes)*laneHeight + gap
	st.BandTop = float64(lanes)*laneHeight + 4

	bins := smooth(f.Bins)
	a := min(int(from/f.BinSeconds), len(bins))
	bins = bins[a:min(a+int(math.Ceil(length/f.BinSeconds))+1, len(bins))]

	add := func(title string, height float64, levels []tick, curves ...curve) {
		for i := range levels {
			levels[i].At += y
		}
		st.Panels = append(st.Panels, panel{Title: title, Top: y, Height: height, Bottom: y + height, Levels: levels, Curves: curves})
		y += height + gap
	}
	linear := func(height, top float64) func(float64) float64 {
		base := y
		return func(v float64) float64 { return base + height*(1-min(v/top, 1)) }
	}
	line := func(class string, value func(Bin) *float64, yOf func(float64) float64) curve {
		return curve{class, path(bins, x, value, yOf)}
	}

	const h1, h2, h3 = 120.0, 64.0, 76.0
	yRate := linear(h1, s.rate)
	add("jobs a second", h1, levels(h1, s.rate),
		line("enqueued", func(b Bin) *float64 { return &b.Enqueued }, yRate),
		line("completed", func(b Bin) *float64 { return &b.Completed }, yRate))

	yBacklog := linear(h2, s.backlog)
	backlog := line("backlog", func(b Bin) *float64 { return &b.Backlog }, yBacklog)
	add("backlog: jobs that are due and not taken", h2, levels(h2, s.backlog), backlog)

	base := y
	decades := math.Log10(s.high / s.low)
	yLatency := func(v float64) float64 {
		return base + h3*(1-math.Log10(min(max(v, s.low), s.high)/s.low)/decades)
	}
	var powers []tick
	for v := s.low; v <= s.high*1.001; v *= 10 {
		powers = append(powers, tick{yLatency(v) - base, duration(v)})
	}
	add("from due to start (logarithmic)", h3, powers,
		line("p99", func(b Bin) *float64 { return b.P99 }, yLatency),
		line("p50", func(b Bin) *float64 { return b.P50 }, yLatency))

	st.BandHeight = y - gap - st.BandTop
	step := nice(length / 12)
	for _, s := range []float64{1, 2, 5, 10, 15, 20, 30, 60, 120} {
		if s*12 >= length {
			step = s
			break
		}
	}
	for at := math.Ceil(from/step) * step; at <= from+length; at += step {
		st.Ticks = append(st.Ticks, tick{x(at), clock(at)})
	}
	st.Height = y
	return st
}

// levels are zero, the middle and the top of a panel, counted from its top.
func levels(height, top float64) []tick {
	return []tick{{height, "0"}, {height / 2, short(top / 2)}, {0, short(top)}}
}

// short writes a number for an axis.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", round(v/1e6, 1))
	case v >= 1e4:
		return fmt.Sprintf("%gk", round(v/1e3, 1))
	}
	return fmt.Sprintf("%g", round(v, 1))
}

// duration writes a power of ten of seconds.
func duration(v float64) string {
	if v < 0.9 {
		return fmt.Sprintf("%.0f ms", v*1000)
	}
	return fmt.Sprintf("%.0f s", v)
}

// path draws what has values. Where there is none, it is broken.
func path(bins []Bin, x func(float64) float64, value func(Bin) *float64, y func(float64) float64) string {
	var b strings.Builder
	pen := "M"
	for _, bin := range bins {
		v := value(bin)
		if v == nil {
			pen = "M"
			continue
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", pen, x(bin.At+seconds(binNS)/2), y(*v))
		if pen == "M" {
			// A point alone is seen too, by the round end of its line.
			fmt.Fprintf(&b, "h0")
		}
		pen = "L"
	}
	return b.String()
}

// bands adds the faults of the time, each in the first lane in which its name
// has room, and returns how many lanes there are.
func (st *strip) bands(faults []Fault, from, length float64, x func(float64) float64) (lanes int) {
	var ends []float64 // of the last name in each lane
	for _, f := range faults {
		if f.Begin >= from+length || f.End < from {
			continue
		}
		a := max(x(f.Begin), left)
		b := min(x(max(f.End, f.Base)), wide-right)
		band := band{
			X: a, Width: max(b-a, 2), Bad: !f.OK(), Name: fmt.Sprintf("%d %s", f.N, f.Name), Anchor: "start", TextX: a + 3,
			Title: fmt.Sprintf("%d %s, from %s to %s: %s", f.N, f.Name, clock(f.Begin), clock(f.End), f.outcome()),
		}
		text := letter * float64(len([]rune(band.Name)))
		begin, end := a, max(band.TextX+text, a+band.Width)+4
		if band.TextX+text > wide {
			band.Anchor, band.TextX = "end", wide-2
			begin, end = min(a, wide-2-text), wide
		}
		lane := 0
		for lane < len(ends) && ends[lane] > begin {
			lane++
		}
		if lane == len(ends) {
			ends = append(ends, 0)
		}
		ends[lane] = end
		band.Y = float64(lane) * laneHeight
		band.TextY = band.Y + 14
		st.Bands = append(st.Bands, band)
	}
	return len(ends)
}
