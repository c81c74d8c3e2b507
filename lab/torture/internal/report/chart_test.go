package report

import (
	"strings"
	"testing"
)

func TestNamesOfFaultsHaveRoom(t *testing.T) {
	all := strips(longSample().Figures)
	if len(all) != 2 {
		t.Fatalf("%d strips", len(all))
	}
	seen := make(map[string]bool)
	for _, st := range all {
		for i, a := range st.Bands {
			seen[a.Name] = true
			if a.Y >= st.BandTop {
				t.Errorf("%s is not above the panels", a.Name)
			}
			for _, b := range st.Bands[:i] {
				if a.Y == b.Y && b.X+letter*float64(len(b.Name)) > a.X && a.Anchor == "start" {
					t.Errorf("%q is written over %q", a.Name, b.Name)
				}
			}
		}
	}
	if len(seen) != 14 {
		t.Errorf("%v", seen)
	}
}

func TestCurvesBreakWhereNothingIsKnown(t *testing.T) {
	one := 1.0
	bins := []Bin{{P50: &one}, {P50: &one}, {}, {P50: &one}}
	same := func(x float64) float64 { return x }
	got := path(bins, same, func(b Bin) *float64 { return b.P50 }, same)
	if strings.Count(got, "M") != 2 || strings.Count(got, "L") != 1 {
		t.Error(got)
	}
}
