package figures

import (
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{7}, 7},
		{[]float64{9, 1}, 5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{9, 1, 4, 2}, 3},
	} {
		if got := Median(c.values); got != c.want {
			t.Errorf("%v: %v, not %v", c.values, got, c.want)
		}
	}
	order := []float64{3, 1, 2}
	Median(order)
	if !slices.Equal(order, []float64{3, 1, 2}) {
		t.Errorf("the rounds were put into another order: %v", order)
	}
}

func TestRatiosAreMadeRoundByRound(t *testing.T) {
	t.Parallel()
	if got := Ratios([]float64{10, 30, 5}, []float64{5, 10}); !slices.Equal(got, []float64{2, 3}) {
		t.Error(got)
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line Line
		met  bool
	}{
		{AtLeast("a", []float64{1, 3, 2}, 2, "×", "", ""), true},
		{AtLeast("a", []float64{1, 3, 1.9}, 2, "×", "", ""), false},
		{AtMost("a", []float64{1, 3, 2}, 2, "×", "", ""), true},
		{AtMost("a", []float64{1, 3, 2.1}, 2, "×", "", ""), false},
		{AtLeast("a", nil, 0, "×", "", ""), false},
		{AtMost("a", nil, 1, "×", "", ""), false},
	} {
		if c.line.Met != c.met {
			t.Errorf("%+v", c.line)
		}
	}
	l := AtMost("a", []float64{1, 4, 2}, 2, "×", "b", "c")
	if l.Value != 2 || l.Low != 1 || l.High != 4 || l.N != 3 {
		t.Errorf("%+v", l)
	}
}
