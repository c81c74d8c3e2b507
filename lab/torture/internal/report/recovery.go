package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
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
	// 0.9 of what was enqueued was completed, as much came in as between bursts, and
	// the backlog was at its level of before; nil: the next fault came first.
	Normal *float64 `json:"normal_seconds"`

	// Level is the backlog before the fault: its highest, at least a tenth of a
	// second's load. Peak is the highest since. BacklogBack is how many seconds
	// after the base it was back; nil: not before the next fault.
	Level       float64  `json:"backlog_before"`
	Peak        float64  `json:"backlog_peak"`
	BacklogBack *float64 `json:"backlog_back_seconds"`

	// Offered are the jobs that became due from 5 s after the base on, for 10 s or
	// until the next fault, and those that producers began to enqueue in that time,
	// or should have, and that did not get in as far as their producer knows: they
	// are NotEnqueued. What was rolled back as planned is left out.
	Offered     int `json:"offered"`
	NotEnqueued int `json:"not_enqueued"`
	// Completed are those of them that ended as they should a second after that
	// time at the latest. LeftOut are those that by their script take longer: in a
	// handler, waiting for a pause that they asked for, in a transaction that is
	// held open, or in the hands of a process that one of its jobs had ended less
	// than 6 s before, as jobs of the load do at any time; and those that an
	// operator has cancelled or deleted. Share is Completed/(Offered − LeftOut).
	Completed int      `json:"completed"`
	LeftOut   int      `json:"left_out"`
	Share     *float64 `json:"completed_share"`

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
