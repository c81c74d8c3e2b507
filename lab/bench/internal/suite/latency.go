package suite

import (
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
)

// latency is how long many things have taken, in nanoseconds.
type latency struct {
	*hdrhistogram.Histogram
	// unseen is how many had not happened when nobody waited any more. They are
	// counted with the time that they had taken by then.
	unseen int
}

func newLatency() latency {
	const day = 24 * 60 * 60 * 1e9
	return latency{Histogram: hdrhistogram.New(1, day, 3)}
}

// add counts one. A handler may start before the call that has enqueued its job
// returns: the commit is done, and its answer on the way. That took no time.
func (l *latency) add(took int64) error { return l.RecordValue(max(took, 0)) }

// ms is the quantile, such as 99, in milliseconds.
func (l *latency) ms(quantile float64) float64 { return float64(l.ValueAtQuantile(quantile)) / 1e6 }

func (l *latency) String() string {
	s := fmt.Sprintf("p50 %.3g ms, p99 %.3g ms, most %.3g ms of %d", l.ms(50), l.ms(99), float64(l.Max())/1e6, l.TotalCount())
	if l.unseen > 0 {
		s += fmt.Sprintf(", of which %d had not come", l.unseen)
	}
	return s
}

// recordLatency records and tells what an entrant's round has come to.
func (b *Bench) recordLatency(subject string, e entrant, settings string, round int, l latency) {
	b.Logf("  %s, %s, round %d: %s", subject, e.name, round+1, &l)
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"p50 ms", l.ms(50)},
		{"p90 ms", l.ms(90)},
		{"p99 ms", l.ms(99)},
		{"max ms", float64(l.Max()) / 1e6},
		{"jobs", float64(l.TotalCount())},
		{"unseen", float64(l.unseen)},
	} {
		b.Record(e.sample(subject, settings, round, f.name, f.value))
	}
}

// latencies are those of each entrant, one a round.
type latencies map[string][]latency

// each is a quantile of each round of an entrant, in milliseconds.
func (r latencies) each(name string, quantile float64) (rounds []float64) {
	for _, l := range r[name] {
		rounds = append(rounds, l.ms(quantile))
	}
	return rounds
}

// ratios divides a quantile of one entrant by that of another, round by round.
func (r latencies) ratios(a, b string, quantile float64) []float64 {
	return figures.Ratios(r.each(a, quantile), r.each(b, quantile))
}
