package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// Record is what was seen in a run.
type Record struct {
	Events []history.Event // in the order of their times
	Lines  []witness.Line  // in the order of the log
	// Offset is the database's time, in ns since 1970, minus the history's.
	Offset int64
	// Begin and End of the load, in times of the history. Zero: the first and
	// last enqueue.
	Begin, End int64
	// About says in a sentence what a fault is; nil: nobody does.
	About func(fault string) string
}

// Figures are what the record amounts to. All are computed from it alone.
type Figures struct {
	// Load is the whole of it.
	Load Load `json:"load"`
	// Bins are the course of the run, in steps of BinSeconds.
	BinSeconds float64 `json:"bin_seconds"`
	Bins       []Bin   `json:"bins"`
	// Faults are in the order in which they began.
	Faults []Fault `json:"faults"`
	// Restarts of worker processes.
	Restarts Restarts `json:"restarts"`
	// Dead are the jobs that died though their script does not want it.
	Dead []string `json:"dead"`
	// Bells are the transactions that could not enqueue because of a notification.
	// None may be: a bell is for speed alone.
	Bells []string `json:"failed_by_bells"`
	// Stale are the writes under an old fence, by who made them.
	Stale []StaleWrites `json:"stale_writes"`
}

// Load is what was asked of the queue and what became of it.
type Load struct {
	Seconds      float64 `json:"seconds"`      // from its begin to its end
	Offered      int     `json:"offered"`      // jobs in transactions that producers began
	Acknowledged int     `json:"acknowledged"` // of them: the commit was answered
	Unknown      int     `json:"unknown"`      // nobody can say whether it happened
	NotCommitted int     `json:"not_committed"`
	Missed       int     `json:"missed"`    // offered, but no producer could begin: too many others were open
	Children     int     `json:"children"`  // enqueued by handlers
	Completed    int     `json:"completed"` // jobs that left the queue: done, dead, cancelled, deleted
	Started      int     `json:"started"`   // handlers
	// Silent is how many came into a queue while a worker promised to look there
	// without bells. Nearly all of those rang none.
	Silent int `json:"silent"`
	// Calm is how many jobs a second were acknowledged outside of the faults and
	// what they left behind, P50 and P99 how many seconds those waited that
	// became due meanwhile; nil if there was no such time.
	Calm    float64  `json:"calm_rate"`
	CalmP50 *float64 `json:"calm_p50_seconds"`
	CalmP99 *float64 `json:"calm_p99_seconds"`
}

// Bin is one step of the course of a run.
type Bin struct {
	At        float64 `json:"at"`        // its begin
	Enqueued  float64 `json:"enqueued"`  // a second
	Completed float64 `json:"completed"` // a second
	// Backlog is how many jobs were due, and held by nobody, on average.
	Backlog float64 `json:"backlog"`
	// P50 and P99 are the seconds from due to the start of the handler, of the
	// jobs that became due in this bin; nil if none was started.
	P50 *float64 `json:"p50_seconds"`
	P99 *float64 `json:"p99_seconds"`
}

const binNS = int64(500 * time.Millisecond)

// Measure computes the figures of a run.
func Measure(r Record) Figures {
	m := newMeasure(r)
	f := Figures{BinSeconds: seconds(binNS), Bins: m.course()}
	f.Faults = m.faults(f.Bins)
	f.Load = m.load(f.Faults)
	f.Restarts = restarts(r.Events)
	f.Dead = m.dead()
	f.Bells = bells(r.Events)
	f.Stale = m.stale()
	return f
}

// measure is a record with its indexes.
type measure struct {
	Record
	jobs   map[int64]*job
	starts map[claimKey]int64  // when the handler of a claim started
	ends   map[claimKey]int64  // and ended
	ended  map[claimKey]bool   // the job has ended under it, and is kept
	holder map[claimKey]string // the process that claimed
	proc   map[string]string   // the process of a worker
	fallen map[string]int64    // when a job of its own ended a process
	acks   []ack               // of producers
	calls  []ack               // jobs that producers began to enqueue
	// What an operator has deleted or cancelled, or may have.
	deleted, cancelled map[int64]bool
}

// ack is some jobs at a time.
type ack struct {
	at   int64
	jobs int
}

// claimKey names a claim.
type claimKey struct{ job, fence int64 }

func newMeasure(r Record) *measure {
	m := &measure{
		Record: r,
		starts: make(map[claimKey]int64), ends: make(map[claimKey]int64), ended: make(map[claimKey]bool),
		holder: make(map[claimKey]string), proc: make(map[string]string), fallen: make(map[string]int64),
		deleted: operated(r.Events, "delete"), cancelled: operated(r.Events, "cancel"),
	}
	visible := make(map[string]int64)    // by token: its enqueue was answered
	answered := make(map[claimKey]int64) // completions in the handlers' own transactions
	for _, e := range r.Events {
		switch e.Op {
		case history.Claim:
			if e.Worker != "" {
				m.proc[e.Worker] = e.Proc
			}
			for _, ref := range e.Refs {
				m.holder[claimKey{ref.Job, ref.Fence}] = e.Proc
			}
		case history.Start:
			m.starts[claimKey{e.Job, e.Fence}] = e.At
		case history.End:
			m.ends[claimKey{e.Job, e.Fence}] = e.At
		case history.Enqueue:
			if e.Phase == history.OK {
				see(visible, e)
			}
			if produces(e) && e.Phase == history.Call {
				m.calls = append(m.calls, ack{e.At, len(refs(e))})
			} else if produces(e) && e.Phase == history.OK {
				m.acks = append(m.acks, ack{e.At, len(refs(e))})
			}
		case history.Complete:
			if e.Phase == history.OK {
				answered[claimKey{e.Job, e.Fence}] = e.At
				see(visible, e)
			}
		}
	}
	for _, d := range deaths(r.Events) {
		if d.cause == byJob {
			m.fallen[d.proc] = d.at
		}
	}
	if n := len(m.calls); n > 0 {
		if m.Begin == 0 {
			m.Begin = m.calls[0].at
		}
		if m.End == 0 {
			m.End = m.calls[n-1].at
		}
	}
	for _, l := range r.Lines {
		if l.Place == "finished" && l.Op == "INSERT" {
			m.ended[claimKey{l.ID, l.After.Fence}] = true
		}
	}
	m.jobs = lives(r.Lines, r.Offset, visible, answered)
	return m
}

func see(visible map[string]int64, e history.Event) {
	for _, ref := range e.Refs {
		if ref.Token != "" {
			visible[ref.Token] = e.At
		}
	}
	if e.Op == history.Enqueue && e.Token != "" {
		visible[e.Token] = e.At
	}
}

// refs are the jobs of an event, whether it names one or several.
func refs(e history.Event) []history.Ref {
	if len(e.Refs) > 0 {
		return e.Refs
	}
	if e.Job != 0 || e.Token != "" {
		return []history.Ref{e.Ref}
	}
	return nil
}

// during are the events from a time on until before another.
func (m *measure) during(s span) []history.Event {
	at := func(t int64) int {
		i, _ := slices.BinarySearchFunc(m.Events, t, func(e history.Event, t int64) int { return cmp.Compare(e.At, t) })
		return i
	}
	from := at(s.from)
	return m.Events[from:max(at(s.to), from)]
}

// since is a time of the history as seconds since the load began.
func (m *measure) since(at int64) float64 { return seconds(at - m.Begin) }

// seconds is a span, to the millisecond.
func seconds(ns int64) float64 { return round(float64(ns)/1e9, 3) }

func round(x float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(x*p) / p
}

func (m *measure) load(faults []Fault) Load {
	l := Load{Seconds: m.since(m.End), Started: len(m.starts)}
	for _, c := range m.calls {
		l.Offered += c.jobs
	}
	for _, a := range m.acks {
		l.Acknowledged += a.jobs
	}
	producers := make(map[string]bool) // the tokens of their jobs
	for _, e := range m.Events {
		switch {
		case e.Op == history.Missed:
			l.Missed += e.Asked
			l.Offered += e.Asked
		case !produces(e):
		case e.Phase == history.Call:
			for _, ref := range refs(e) {
				producers[ref.Token] = true
			}
		case e.Phase == history.Unknown:
			l.Unknown += len(refs(e))
		case e.Phase == history.Failed, e.Phase == history.Refusal:
			l.NotCommitted += len(refs(e))
		}
	}
	var calm []float64
	quiet := m.quiet(faults)
	for _, j := range m.jobs {
		if j.inserted && !producers[j.token] && j.enqueued() >= m.Begin {
			l.Children++
		}
		if j.left != 0 {
			l.Completed++
		}
		for _, w := range j.waits {
			if at, ok := m.starts[claimKey{j.id, w.fence}]; ok && quiet.has(w.from) {
				calm = append(calm, float64(max(at-w.from, 0))/1e9)
			}
		}
	}
	l.Silent = m.silent()
	l.Calm = round(m.calm(quiet), 1)
	l.CalmP50, l.CalmP99 = quantiles(calm)
	return l
}
