// Package figures holds what the bench has found: medians and ranges, ratios,
// and the lines of the targets.
package figures

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Line is what the bench says of one target.
type Line struct {
	Target  string  `json:"target"`
	Value   float64 `json:"value"`
	Limit   float64 `json:"limit"`
	Met     bool    `json:"met"`
	Against string  `json:"against"`
	N       int     `json:"n"` // rounds

	AtLeast bool    `json:"at_least"` // the limit is a least value; false: a greatest
	Unit    string  `json:"unit"`     // "×", "ms", …
	Low     float64 `json:"low"`      // of the rounds
	High    float64 `json:"high"`
	What    string  `json:"what"` // one line in words, with batch sizes and durability
}

// AtMost makes the line of a target that has a greatest value.
func AtMost(target string, rounds []float64, limit float64, unit, against, what string) Line {
	return line(target, rounds, limit, false, unit, against, what)
}

// AtLeast makes the line of a target that has a least value.
func AtLeast(target string, rounds []float64, limit float64, unit, against, what string) Line {
	return line(target, rounds, limit, true, unit, against, what)
}

func line(target string, rounds []float64, limit float64, least bool, unit, against, what string) Line {
	l := Line{Target: target, Limit: limit, Against: against, N: len(rounds), AtLeast: least, Unit: unit, What: what}
	if len(rounds) == 0 {
		return l // not met: nothing was measured
	}
	l.Value, l.Low, l.High = Median(rounds), slices.Min(rounds), slices.Max(rounds)
	l.Met = least && l.Value >= limit || !least && l.Value <= limit
	return l
}

// Median of an even number of values is the mean of the two in the middle.
func Median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	switch n := len(v); {
	case n == 0:
		return 0
	case n%2 == 1:
		return v[n/2]
	default:
		return (v[n/2-1] + v[n/2]) / 2
	}
}

// Ratios divides round by round: a and b of one round were measured next to
// each other.
func Ratios(a, b []float64) []float64 {
	r := make([]float64, min(len(a), len(b)))
	for i := range r {
		r[i] = a[i] / b[i]
	}
	return r
}

// String is the line as the terminal shows it while the bench runs.
func (l Line) String() string {
	text, err := json.Marshal(l)
	if err != nil {
		return fmt.Sprintf("%s: %v", l.Target, err)
	}
	return string(text)
}

// Words is the line for people.
func (l Line) Words() string {
	verdict, sign := "met", "≤"
	if !l.Met {
		verdict = "MISSED"
	}
	if l.AtLeast {
		sign = "≥"
	}
	return fmt.Sprintf("%-14s %8.3g %s (%.3g to %.3g, n=%d; %s %.4g): %s, against %s. %s",
		l.Target, l.Value, l.Unit, l.Low, l.High, l.N, sign, l.Limit, verdict, l.Against, l.What)
}
