package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// number writes a count with its thousands apart.
func number(n int) string {
	s := strconv.Itoa(n)
	var b strings.Builder
	for i, digit := range s {
		if i > 0 && (len(s)-i)%3 == 0 && s[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}

// took writes a span of seconds as people do.
func took(s float64) string {
	switch {
	case s >= 99.5:
		whole := int(math.Round(s))
		return fmt.Sprintf("%d min %d s", whole/60, whole%60)
	case s >= 10:
		return fmt.Sprintf("%.0f s", s)
	case s == 0:
		return "0 s"
	case s >= 0.1:
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%g ms", round(s*1000, 1))
}

// clock is a time of the run, as minutes and seconds.
func clock(s float64) string {
	whole := int(math.Round(s))
	return fmt.Sprintf("%d:%02d", whole/60, whole%60)
}

// none stands for what is not known.
const none = "–"

func orNone(s *float64, say func(float64) string) string {
	if s == nil {
		return none
	}
	return say(*s)
}

func percent(x float64) string {
	if x = 100 * x; x == math.Trunc(x) {
		return fmt.Sprintf("%.0f %%", x)
	}
	// Cut, not rounded: what is short of a target must not look as if it were not.
	return fmt.Sprintf("%.1f %%", math.Floor(x*10)/10)
}

// dip is how far the rate went down; it may have gone up, too.
func dip(x float64) string {
	if x >= 1 {
		return "no dip"
	}
	return percent(x)
}

func rate(x float64) string { return fmt.Sprintf("%.0f/s", x) }

// outcome is a fault's verdict in a few words.
func (f Fault) outcome() string {
	switch {
	case f.Error != "":
		return f.Error
	case len(f.Missed) > 0:
		return strings.Join(f.Missed, "; ")
	case f.NotJudged != "":
		return "not judged"
	}
	return "held"
}

// notJudged says once of each reason which faults were not judged for it.
func notJudged(faults []Fault) (all []string) {
	of := make(map[string][]string)
	var reasons []string
	for _, f := range faults {
		if f.outcome() != "not judged" {
			continue
		}
		if of[f.NotJudged] == nil {
			reasons = append(reasons, f.NotJudged)
		}
		of[f.NotJudged] = append(of[f.NotJudged], fmt.Sprint(f.N))
	}
	for _, reason := range reasons {
		all = append(all, fmt.Sprintf("Not judged, fault %s: %s.", strings.Join(of[reason], ", "), reason))
	}
	return all
}

// plural writes a count of things.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}
