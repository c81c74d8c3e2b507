package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// What must hold after a fault.
const (
	settle     = int64(5 * time.Second)  // so long it may take until all is as before
	window     = int64(10 * time.Second) // so long after that is looked at
	grace      = int64(time.Second)      // what was offered last has so long to be completed
	noticed    = int64(6 * time.Second)  // so long after a process died its jobs run again
	shareDone  = 0.99                    // of what was offered
	backWithin = 10.0                    // seconds, for the backlog
	normal     = 0.9                     // of what is offered is completed: back to normal
)

// Fault is one fault of a run, and how the queue came through it.
type Fault struct {
	N     int     `json:"n"` // 1 is the first of the run
	Name  string  `json:"name"`
	About string  `json:"about"` // in a sentence
	Begin float64 `json:"begin"`
	End   float64 `json:"end"`
	// Base is when recovery begins to count: the fault's end or, if that is
	// later, when a server that it had taken down accepted connections again.
	Base float64 `json:"base"`
	// Error is why the fault could not be made, or did not end.
	Error string `json:"error,omitempty"`

	// Before is how many jobs were completed a second before the fault (10 s, or
	// back to the last one), Lowest the fewest in any second from its begin to
	// its base, and Dip Lowest over Before: 1 is no dip, 0 a standstill.
	Before float64  `json:"before_rate"`
	Lowest float64  `json:"lowest_rate"`
	Dip    *float64 `json:"dip"`
	// Normal is how many seconds after the base it took until, over two seconds,
	// 0.9 of what was enqueued was completed and the backlog was at its level of
	// before; nil: the next fault came first.
	Normal *float64 `json:"normal_seconds"`

	// Level is the backlog before the fault: its highest, at least a tenth of a
	// second's load. Peak is the highest since. BacklogBack is how many seconds
	// after the base it was back; nil: not before the next fault.
	Level       float64  `json:"backlog_before"`
	Peak        float64  `json:"backlog_peak"`
	BacklogBack *float64 `json:"backlog_back_seconds"`

	// Offered are the jobs that became due from 5 s after the base on, for 10 s or
	// until the next fault. Completed are those of them that were completed a
	// second after that at the latest. AtWork are those that by the script take
	// longer: in a handler, waiting for a pause that they asked for, or in the hands
	// of a process that one of its jobs had ended less than 6 s before, as jobs of
	// the load do at any time. Share is Completed/(Offered − AtWork).
	Offered   int      `json:"offered"`
	Completed int      `json:"completed"`
	AtWork    int      `json:"at_work"`
	Share     *float64 `json:"completed_share"`
	// Enqueued is which share of the jobs in transactions that producers began, or
	// should have begun, in that time was acknowledged, but for those that were
	// rolled back as planned: whether producers were back too.
	Enqueued *float64 `json:"enqueued_share"`

	// Reconnect is how many seconds after the base the last worker had its first
	// answer from the database, of those that asked; only where a server or a
	// network came back.
	Reconnect *float64 `json:"reconnect_seconds"`

	// NotJudged is why the share could not be judged; "": it was.
	NotJudged string `json:"not_judged,omitempty"`
	// Missed are the targets that were missed.
	Missed []string `json:"missed"`

	whole span  // from begin to end
	base  int64 // as Base
	next  int64 // when the next fault begins, or the load ends
}

// OK says that the fault was made, ended, and missed no target.
func (f Fault) OK() bool { return f.Error == "" && len(f.Missed) == 0 }

// faults measures each fault of the run.
func (m *measure) faults(bins []Bin) []Fault {
	faults := m.occurred()
	calm := m.calm(m.quiet(faults))
	for i := range faults {
		f := &faults[i]
		others := slices.Delete(slices.Clone(faults), i, i+1)
		f.next = m.next(*f, others)
		m.dip(f, others, bins)
		m.backlog(f, others, bins, calm)
		m.share(f, others)
		f.Reconnect = m.reconnect(f)
	}
	return faults
}

// occurred reads the faults and their times from the history.
func (m *measure) occurred() []Fault {
	var faults []Fault
	open := make(map[callKey]int)
	for _, e := range m.Events {
		if e.Op != history.Fault {
			continue
		}
		key := callKey{e.Proc, e.N}
		if e.Phase == history.Call {
			open[key] = len(faults)
			f := Fault{N: len(faults) + 1, Name: e.Verb, Begin: m.since(e.At), Missed: []string{}, whole: span{e.At, never}}
			if m.About != nil {
				f.About = m.About(e.Verb)
			}
			faults = append(faults, f)
			continue
		}
		if i, ok := open[key]; ok {
			faults[i].whole.to = e.At
			if faults[i].Error = e.Error; e.Phase != history.OK {
				faults[i].Error = cmp.Or(e.Error, "it "+string(e.Phase))
			}
			delete(open, key)
		}
	}
	for _, i := range open {
		faults[i].Error = "it did not end"
		faults[i].whole.to = max(m.End, faults[i].whole.from)
	}
	for i := range faults {
		f := &faults[i]
		f.base = f.whole.to
		next := never
		if i+1 < len(faults) {
			next = faults[i+1].whole.from
		}
		for _, e := range m.during(span{f.whole.from, max(next, f.whole.to)}) {
			if e.Op == history.Ready {
				f.base = max(f.base, e.At)
			}
		}
		f.End, f.Base = m.since(f.whole.to), m.since(f.base)
	}
	return faults
}

// quiet is the load's time outside of the faults and what they leave behind.
func (m *measure) quiet(faults []Fault) spans {
	var holes []span
	for _, f := range faults {
		holes = append(holes, span{f.whole.from, f.base + settle})
	}
	return span{m.Begin, m.End}.without(holes)
}

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

// next is when the time ends in which f is what the queue recovers from.
func (m *measure) next(f Fault, others []Fault) int64 {
	next := m.End
	for _, o := range others {
		if o.whole.from >= f.whole.to {
			next = min(next, o.whole.from)
		}
	}
	return next
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
			if out >= normal*in && in >= normal*normal*calm {
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

// disturbed names a fault that was on in a time after f. One that lasts from
// before f until after that time is no disturbance: all of it was under that one.
func (f Fault) disturbed(others []Fault, s span) string {
	for _, o := range others {
		on := span{o.whole.from, o.base}
		if on.meets(s) && !on.covers(span{f.whole.from, s.to}) {
			return o.Name
		}
	}
	return ""
}

// share counts what became of the jobs that were offered after a fault.
func (m *measure) share(f *Fault, others []Fault) {
	from := f.base + settle
	due := min(f.base+settle+window+grace, f.next)
	offered := span{from, due - grace}
	if other := f.disturbed(others, span{from, due}); other != "" {
		f.NotJudged = "another fault was on: " + other
		return
	}
	if offered.to-offered.from < int64(time.Second) {
		f.NotJudged = fmt.Sprintf("the next fault, or the end of the load, came %.1f s after this one", seconds(f.next-f.base))
		return
	}
	for _, j := range m.jobs {
		if !offered.has(j.first()) {
			continue
		}
		f.Offered++
		switch s, _ := j.at(due); {
		case s.status == "": // perhaps not for good: an operator may bring it back
			f.Completed++
		case m.atWork(j, s, due):
			f.AtWork++
		}
	}
	if rest := f.Offered - f.AtWork; rest > 0 {
		share := round(float64(f.Completed)/float64(rest), 4)
		f.Share = &share
		if share < shareDone {
			f.Missed = append(f.Missed, fmt.Sprintf("%d of %d jobs were completed, less than %g", f.Completed, rest, shareDone))
		}
	}
	began, acknowledged := m.producers(offered, due)
	if began > 0 {
		part := round(float64(acknowledged)/float64(began), 4)
		f.Enqueued = &part
		if part < normal {
			f.Missed = append(f.Missed, fmt.Sprintf("of %d jobs only %d could be enqueued: producers were not back", began, acknowledged))
		}
	}
}

// producers counts the jobs of transactions that were begun in a time, or
// should have been, and had an answer by another; and those of which the answer
// was the commit.
func (m *measure) producers(in span, by int64) (began, acknowledged int) {
	open := make(map[callKey]bool)
	for _, e := range m.during(span{in.from, by}) {
		key := callKey{e.Proc, e.N}
		switch {
		case e.Op == history.Missed && in.has(e.At):
			began += e.Asked
		case e.Op != history.Enqueue:
		case e.Phase == history.Call:
			open[key] = in.has(e.At)
		case open[key] && e.Note != asPlanned:
			began += len(refs(e))
			if e.Phase == history.OK {
				acknowledged += len(refs(e))
			}
		}
	}
	return began, acknowledged
}

// asPlanned is the note of a transaction that was to be rolled back.
const asPlanned = "rolled back"

// atWork says that a job that is not completed is where the script wants it: in
// its handler, waiting for a time of its own, or in the hands of a process that
// a job has just ended.
func (m *measure) atWork(j *job, s state, at int64) bool {
	claim := claimKey{j.id, s.fence}
	if fell, ok := m.fallen[m.holder[claim]]; ok && fell <= at && at < fell+noticed {
		return s.status == "running"
	}
	if j.kind == script.Short {
		return false // it asks for no time
	}
	if s.status == "ready" {
		// The pause is over, or was a moment ago. But it was due before.
		return s.due > at-grace && s.due > j.first()
	}
	started, ok := m.starts[claim]
	ended, over := m.ends[claim]
	// Just over: its outcome is on the way.
	return ok && started <= at && (!over || ended > at-grace)
}

// reconnect is how long after a server or a network was back the last worker
// had an answer.
func (m *measure) reconnect(f *Fault) *float64 {
	back := false
	for _, e := range m.during(span{f.whole.from, f.base + 1}) {
		back = back || e.Op == history.Ready || e.Op == history.Mend
	}
	if !back {
		return nil
	}
	there := make(map[string]bool) // who was there when it came back
	for _, e := range m.during(span{0, f.base}) {
		switch e.Op {
		case history.Hello:
			there[e.Proc] = true
		case history.Exit:
			delete(there, e.Target)
		}
	}
	first := make(map[string]int64)
	for _, e := range m.during(span{f.base, f.next}) {
		asks := e.Op == history.Claim || e.Op == history.Finish || e.Op == history.Extend
		if asks && e.Phase == history.OK && there[e.Proc] && first[e.Proc] == 0 {
			first[e.Proc] = e.At
		}
	}
	slowest := int64(-1)
	for _, at := range first {
		slowest = max(slowest, at-f.base)
	}
	if slowest < 0 {
		return nil
	}
	s := seconds(slowest)
	return &s
}
