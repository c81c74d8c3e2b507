package report

import (
	"math"
	"slices"
)

// course is the run in bins, from the begin of the load until the last job has
// left the queue.
func (m *measure) course() []Bin {
	end := m.End
	for _, j := range m.jobs {
		end = max(end, j.left)
	}
	if end <= m.Begin {
		return nil
	}
	bins := make([]Bin, (end-m.Begin+binNS-1)/binNS)
	latencies := make([][]float64, len(bins))
	per := 1e9 / float64(binNS)
	for i := range bins {
		bins[i].At = seconds(int64(i) * binNS)
	}
	for _, j := range m.jobs {
		if i, ok := m.bin(j.enqueued(), len(bins)); ok {
			bins[i].Enqueued += per
		}
		for _, s := range j.states {
			if i, ok := m.bin(s.at, len(bins)); ok && s.status == "" {
				bins[i].Completed += per // again, if an operator had brought it back
			}
		}
		for _, w := range j.waits {
			m.wait(bins, w)
			if at, ok := m.starts[claimKey{j.id, w.fence}]; ok {
				if i, ok := m.bin(w.from, len(bins)); ok {
					latencies[i] = append(latencies[i], float64(max(at-w.from, 0))/1e9)
				}
			}
		}
	}
	for i := range bins {
		bins[i].Backlog = round(bins[i].Backlog, 1)
		bins[i].P50, bins[i].P99 = quantiles(latencies[i])
	}
	return bins
}

// bin is the bin of a time, and whether there is one.
func (m *measure) bin(at int64, n int) (int, bool) {
	if at < m.Begin {
		return 0, false
	}
	i := int((at - m.Begin) / binNS)
	return i, i < n
}

// wait adds a wait to the backlog of each bin, by the share of the bin that it
// takes.
func (m *measure) wait(bins []Bin, w wait) {
	end := m.Begin + int64(len(bins))*binNS
	from, to := max(w.from, m.Begin), min(w.to, end)
	for from < to {
		i := (from - m.Begin) / binNS
		edge := min(m.Begin+(i+1)*binNS, to)
		bins[i].Backlog += float64(edge-from) / float64(binNS)
		from = edge
	}
}

// quantiles are the middle and the 99th of a hundred, in seconds.
func quantiles(all []float64) (p50, p99 *float64) {
	if len(all) == 0 {
		return nil, nil
	}
	slices.Sort(all)
	at := func(q float64) *float64 {
		// The nearest rank: a value that was measured, and none in between.
		x := round(all[int(math.Ceil(q*float64(len(all))))-1], 4)
		return &x
	}
	return at(0.50), at(0.99)
}
