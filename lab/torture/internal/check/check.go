// Package check judges a run by its record: the history of every process (what
// the clients saw), the witness log (what the database committed, job by job in
// order) and the tables, at the end and now and then before it.
//
// It must be sound both ways. A legal run, whatever its faults, has no finding:
// an outcome that nobody knows may have happened or not, an operator may do what
// operators may, and what a failover has lost is excused where that is
// documented. And each guard that is taken away must show in the invariant that
// it is there for.
package check

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// Input is the record of a run.
type Input struct {
	Events []history.Event // of all processes, by time
	Lines  []witness.Line  // of the server that was the primary at the end
	Lost   []witness.Line  // lines of a former primary that the new one lacks
	Final  []FinalJob
	// Orders and Effects are the tables of the business at the end.
	Orders  []FinalOrder
	Effects []FinalEffect
	// Samples are looks at the tables during the run.
	Samples []Sample
	// Offset is the database's time (ns since 1970) minus the time of histories.
	Offset int64
	// Begin is when the load began, from which steps are told; 0: the first event.
	Begin  int64
	Limits Limits
}

// FinalJob is a row of all_jobs at the end.
type FinalJob struct {
	ID        int64
	Token     string
	Kind      string
	Queue     string
	Status    string
	Fence     int64
	Attempts  int
	Max       int
	CreatedAt time.Time
}

// FinalOrder is a row of shop.orders at the end.
type FinalOrder struct {
	Token string
	Fence int64
	Via   string
	XID   int64
}

// FinalEffect is a row of shop.effects at the end.
type FinalEffect struct {
	Token string
	Job   int64
	Fence int64
}

// Limits are what the workers were told, and what the checker allows beyond
// what is documented.
type Limits struct {
	Lease, Poll time.Duration
	// Slots of each process, by queue.
	Slots map[string]int
	// Pooled: the workers are behind a pooler in transaction mode, so that a
	// death shows by the lease alone.
	Pooled bool
	// Wake is how long a due job may wait for a free slot while bells are heard;
	// 0: 3.5 s. Its bell may have been silent because of a promise to look, whose
	// maker has died: others see to that 2.5 s after he made it.
	Wake time.Duration
	// Slack is for a machine that is busy; 0: a second. It is added to each bound
	// on when something must have happened, never to what must not happen.
	Slack time.Duration
	// Patience bounds the search for linearizations; 0: 30 s.
	Patience time.Duration
}

// Finding is what has become of one invariant.
type Finding struct {
	Invariant  int    `json:"invariant"`
	Name       string `json:"name"`
	Checked    int    `json:"checked"`
	Violations int    `json:"violations"`
	// Parts says what is in Checked, and what could not be checked.
	Parts    []Part           `json:"parts,omitempty"`
	Examples []Counterexample `json:"examples,omitempty"` // shortest first, at most 6
}

// Part is a number of its own in a finding.
type Part struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

// Counterexample is the least that shows a violation.
type Counterexample struct {
	Says  string `json:"says"`
	Steps []Step `json:"steps"`
}

// Step is one event, or one line of the witness.
type Step struct {
	At   time.Duration // since the load began; before that it is negative
	Who  string        // a process, or "witness"
	What string
}

// MarshalJSON tells the time in seconds, as all of a report does.
func (s Step) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		At   float64 `json:"at"`
		Who  string  `json:"who"`
		What string  `json:"what"`
	}{s.At.Round(time.Microsecond).Seconds(), s.Who, s.What})
}

// most is how many counterexamples a finding shows.
const most = 6

// names are those of the invariants, in their order.
var names = [...]string{
	"no acknowledged job is lost",
	"nothing runs that was not committed",
	"a job is there if and only if its business row is",
	"fences of a job only grow, and none is given twice",
	"no write with an old fence is accepted",
	"what has ended stays as it is",
	"attempts are claims minus refunds, and no more than allowed",
	"two handlers of a job only if the first was lost",
	"nothing starts before it is due",
	"a death is noticed in time",
	"a due job starts in time if a slot is free, bells or not",
	"no more jobs than asked for, no more handlers than slots",
	"every job is accounted for",
	"a clean stop leaves nothing behind",
	"what was acknowledged as done is not done again",
	"the history of each job is linearizable",
	"a job that runs is named by a claim",
}

// finding collects what is found of one invariant.
type finding struct {
	Finding
}

func (f *finding) part(name string, n int) {
	i := slices.IndexFunc(f.Parts, func(p Part) bool { return p.Name == name })
	if i < 0 {
		i = len(f.Parts)
		f.Parts = append(f.Parts, Part{Name: name})
	}
	f.Parts[i].N += n
}

// violated adds a violation. Of many only the shortest are kept, one for each
// thing that is said. One step alone says what, and not why: it comes last.
func (f *finding) violated(says string, steps ...Step) {
	f.Violations++
	length := func(steps []Step) int {
		if len(steps) == 1 {
			return math.MaxInt
		}
		return len(steps)
	}
	same := slices.IndexFunc(f.Examples, func(c Counterexample) bool { return c.Says == says })
	if same >= 0 && length(f.Examples[same].Steps) <= length(steps) {
		return
	}
	if same >= 0 {
		f.Examples = slices.Delete(f.Examples, same, same+1)
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	i := slices.IndexFunc(f.Examples, func(c Counterexample) bool { return length(c.Steps) > length(steps) })
	if i < 0 {
		i = len(f.Examples)
	}
	f.Examples = slices.Insert(f.Examples, i, Counterexample{says, steps})
	f.Examples = f.Examples[:min(len(f.Examples), most)]
}

// checks are what is checked, in the order of the invariants.
var checks = [len(names)]func(*index, *finding){
	lostJobs, ghosts, business, fences, staleWrites, terminal, attempts, overlaps,
	times, deaths, bells, limits, conservation, cleanStops, again, linear, named,
}

// Check judges the run by all invariants, in their order.
func Check(in Input) []Finding {
	in.Limits = in.Limits.withDefaults()
	ix := newIndex(in)
	findings := make([]Finding, len(names))
	for i, name := range names {
		f := &finding{Finding: Finding{Invariant: i + 1, Name: name}}
		checks[i](ix, f)
		findings[i] = f.Finding
	}
	return findings
}

func (l Limits) withDefaults() Limits {
	l.Lease = cmp.Or(l.Lease, 30*time.Second)
	l.Poll = cmp.Or(l.Poll, 30*time.Second)
	l.Wake = cmp.Or(l.Wake, 3500*time.Millisecond)
	l.Slack = cmp.Or(l.Slack, time.Second)
	l.Patience = cmp.Or(l.Patience, 30*time.Second)
	return l
}
