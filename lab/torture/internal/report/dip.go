package report

import (
	"fmt"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// calm is how many jobs a second were enqueued in quiet times or, if there were
// hardly any, in the whole run.
func (m *measure) calm(quiet spans) float64 {
	if quiet.length() < int64(time.Second) {
		quiet = spans{{m.Begin, m.End}}
	}
	if quiet.length() <= 0 {
		return 0
	}
	n := 0
	for _, j := range m.jobs {
		if quiet.has(j.enqueued()) {
			n++
		}
	}
	return float64(n) * 1e9 / float64(quiet.length())
}

// dip compares the completions during a fault with those before.
func (m *measure) dip(f *Fault, others []Fault, bins []Bin) {
	var holes []span
	for _, o := range others {
		if !o.whole.covers(f.whole) {
			holes = append(holes, span{o.whole.from, o.base + settle})
		}
	}
	before := span{max(m.Begin, f.whole.from-window), f.whole.from}.without(holes)
	n := 0
	for _, b := range bins {
		if at := m.Begin + int64(b.At*1e9); before.has(at) && before.has(at+binNS-1) {
			f.Before += b.Completed
			f.Level = max(f.Level, b.Backlog)
			n++
		}
	}
	// A kill takes no time; what follows from it does.
	during := span{f.whole.from, max(f.base, f.whole.from+int64(2*time.Second))}
	lowest := -1.0
	for i := 1; i < len(bins); i++ {
		at := m.Begin + int64(i-1)*binNS
		if at+2*binNS > m.End {
			break // the load is over
		}
		if at >= during.from && at+2*binNS <= during.to {
			if rate := (bins[i-1].Completed + bins[i].Completed) / 2; lowest < 0 || rate < lowest {
				lowest = rate
			}
		}
	}
	if n == 0 || lowest < 0 {
		return
	}
	f.Before = round(f.Before/float64(n), 1)
	f.Lowest = round(lowest, 1)
	if f.Before > 0 {
		dip := round(f.Lowest/f.Before, 2)
		f.Dip = &dip
	}
}

// backlog finds when the backlog, and all, was back to what it had been.
func (m *measure) backlog(f *Fault, others []Fault, bins []Bin, calm float64) {
	f.Level = round(max(f.Level, calm/10), 1)
	const two = int(2e9 / binNS)
	for i, b := range bins {
		at := m.Begin + int64(i)*binNS
		if at >= f.next {
			break
		}
		if at+binNS > f.whole.from {
			f.Peak = max(f.Peak, b.Backlog)
		}
		if at < f.base {
			continue
		}
		after := seconds(at - f.base)
		// In this bin and the next, lest a moment of luck count.
		if b.Backlog > f.Level || i+1 < len(bins) && bins[i+1].Backlog > f.Level {
			continue
		}
		if f.BacklogBack == nil {
			f.BacklogBack = &after
		}
		if f.Normal == nil && i+two <= len(bins) {
			var in, out float64
			for _, b := range bins[i : i+two] {
				in, out = in+b.Enqueued, out+b.Completed
			}
			in, out = in/float64(two), out/float64(two)
			if out >= normal*in && in >= normal*normal*calm*(1-script.InBursts) {
				f.Normal = &after
			}
		}
	}
	late := f.BacklogBack != nil && *f.BacklogBack > backWithin
	if f.BacklogBack == nil {
		late = seconds(f.next-f.base) >= backWithin
	}
	if late && f.disturbed(others, span{f.base, f.base + int64(backWithin*1e9)}) == "" {
		f.Missed = append(f.Missed, fmt.Sprintf("the backlog was not back at %.0f jobs within %.0f s", f.Level, backWithin))
	}
}
