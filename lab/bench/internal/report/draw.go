package report

import (
	"bytes"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// In points; the gap between two groups is a share of a bar's place.
const (
	drawingWidth = 640
	barPlace     = 17
	barWidth     = 13
	groupGap     = 0.4
	frameHeight  = 60 // title and axis
)

var (
	letters   = font.Font{Typeface: "Liberation", Variant: "Sans"}
	gridLine  = draw.LineStyle{Color: color.Gray{0xe0}, Width: 0.5}
	rangeLine = draw.LineStyle{Color: color.Gray{0x30}, Width: 1}
)

// drawing is an SVG of horizontal bars, each with the range of its rounds and
// its value.
func drawing(title string, groups []group) ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.Title.TextStyle.Font = title, sized(13)
	p.Title.Padding = 8
	p.X.Tick.Label.Font, p.Y.Tick.Label.Font = sized(10), sized(11)
	p.X.LineStyle, p.X.Tick.LineStyle = gridLine, gridLine
	p.X.Tick.Marker = plot.TickerFunc(numbered)
	p.Add(&plotter.Grid{Vertical: gridLine})

	// From below: the axis begins there.
	place, most := 0.0, 0.0
	var ticks []plot.Tick
	for _, g := range slices.Backward(groups) {
		first := place
		for _, b := range slices.Backward(g.bars) {
			if err := b.add(p, place); err != nil {
				return nil, err
			}
			most = max(most, b.high)
			place++
		}
		ticks = append(ticks, plot.Tick{Value: (first + place - 1) / 2, Label: g.name})
		place += groupGap
	}
	p.Y.Tick.Marker, p.Y.Tick.Length, p.Y.LineStyle.Width = plot.ConstantTicks(ticks), 0, 0
	p.X.Min, p.X.Max = 0, most*1.25 // room for the value
	p.Y.Min, p.Y.Max = -0.6, place-groupGap-0.4

	canvas := vgsvg.New(drawingWidth, vg.Length(frameHeight+barPlace*(place+0.2)))
	p.Draw(draw.New(canvas))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	// Few systems beside Linux have these letters. Arial's are as wide.
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,sans-serif;")), nil
}

func sized(size vg.Length) font.Font { return font.From(letters, size) }

// add puts a bar at its place.
func (b bar) add(p *plot.Plot, place float64) error {
	chart, err := plotter.NewBarChart(plotter.Values{b.value}, barWidth)
	if err != nil {
		return err
	}
	chart.Horizontal, chart.XMin, chart.Color, chart.LineStyle.Width = true, place, b.colour, 0
	p.Add(chart)
	if b.low < b.high {
		whisker, err := plotter.NewXErrorBars(struct {
			plotter.XYs
			plotter.XErrors
		}{
			plotter.XYs{{X: b.value, Y: place}},
			plotter.XErrors{{Low: b.value - b.low, High: b.high - b.value}},
		})
		if err != nil {
			return err
		}
		whisker.LineStyle = rangeLine
		p.Add(whisker)
	}
	value, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: b.high, Y: place}}, Labels: []string{b.label}})
	if err != nil {
		return err
	}
	value.Offset.X = 5
	value.TextStyle[0] = text.Style{Font: sized(10), YAlign: draw.YCenter, Handler: p.TextHandler, Color: color.Black}
	p.Add(value)
	return nil
}

// numbered are the usual ticks with numbers as in the tables.
func numbered(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if !ticks[i].IsMinor() {
			ticks[i].Label = number(ticks[i].Value)
		}
	}
	return ticks
}
