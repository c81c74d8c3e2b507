// Package report turns the record of a run into something to read: figures, a
// verdict with every reason, a table for the terminal, a file for programs and
// a page for people.
package report

import (
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/check"
	"github.com/fencepost-go/fencepost/lab/torture/internal/rival"
)

// Run is all that is told about a run. Written as JSON it is report.json: the
// names there are those of the tags, and they stay. Times are seconds since the
// load began, unless they say otherwise.
type Run struct {
	// Name is run, short, full, or control- and the name of a guard.
	Name string `json:"name"`
	// Without is the guard that was taken away on purpose; "": none. Then the
	// verdict is that of the control: it is OK if the checker has noticed.
	Without string `json:"without,omitempty"`
	// Seed and Command repeat the run: the same faults and load, in the same order.
	Seed    uint64 `json:"seed"`
	Command string `json:"command"`
	// Began is by the machine's clock; Seconds is the whole of it, with the drain.
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`

	Versions Versions `json:"versions"`
	Machine  Machine  `json:"machine"`
	Settings Settings `json:"settings"`
	// Demands are what the run must have seen to be worth anything.
	Demands Demands `json:"demands"`

	// Figures is what Measure made of the record.
	Figures Figures `json:"figures"`
	// Findings are what the checker found, one for each invariant.
	Findings []check.Finding `json:"findings"`
	// Controls are the runs in which one guard was missing.
	Controls []Control `json:"controls"`
	// Rivals are River and, beside it, Fencepost under some of the faults. They are
	// for comparison and decide nothing.
	Rivals []rival.Row `json:"rivals"`

	// Left is how many jobs the queue still had when the time to drain was over;
	// Drain how many seconds it took.
	Left  int     `json:"left"`
	Drain float64 `json:"drain_seconds"`
	// Errors is what went wrong with the run itself: a server that did not start,
	// a process that was left behind, a record that cannot be read.
	Errors []string `json:"errors"`

	// Verdict is what OK says. Write fills it in.
	Verdict Verdict `json:"verdict"`
}

// Versions are of what took part. What did not is "".
type Versions struct {
	Fencepost  string `json:"fencepost"` // a version or a commit
	PostgreSQL string `json:"postgresql"`
	Go         string `json:"go"`
	PgBouncer  string `json:"pgbouncer,omitempty"`
	River      string `json:"river,omitempty"`
}

// Machine is where the run was.
type Machine struct {
	OS     string `json:"os"` // system and architecture
	CPU    string `json:"cpu,omitempty"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory_bytes,omitempty"`
}

// Settings are those of the workers, the load and the server.
type Settings struct {
	Workers int            `json:"workers"`
	Slots   map[string]int `json:"slots"` // by queue, of each worker
	Lease   float64        `json:"lease_seconds"`
	Poll    float64        `json:"poll_seconds"`
	// Rate is the jobs a second that the producers offer, whatever happens to
	// them: some of their transactions roll back, as planned.
	Rate float64 `json:"rate"`
	// Fsync and SynchronousCommit are the server's.
	Fsync             string `json:"fsync"`
	SynchronousCommit string `json:"synchronous_commit"`
	// Server are other settings of the server that were not its defaults.
	Server map[string]string `json:"server,omitempty"`
}

// Demands are minima. A run that has not seen so much has not failed a check,
// but proves too little, and is not OK either. Zero demands nothing.
type Demands struct {
	Faults      int  `json:"faults"`       // different faults that began and ended
	Judged      int  `json:"judged"`       // faults after which recovery could be judged
	StaleWrites int  `json:"stale_writes"` // writes under an old fence, by whomever
	Frozen      int  `json:"frozen"`       // of them by processes that were frozen
	Invariants  bool `json:"invariants"`   // each invariant was checked at least once
	Controls    int  `json:"controls"`
	Rivals      int  `json:"rivals"` // rows
	Silent      int  `json:"silent"` // jobs that came while bells were silent
	// Names are faults that must have happened, each with why it may not have:
	// what the machine lacks. "": there is no such reason.
	Names map[string]string `json:"names,omitempty"`
}

// Verdict is what a run comes to.
type Verdict struct {
	OK bool `json:"ok"`
	// Reasons are all reasons why not.
	Reasons []string `json:"reasons"`
	// Found is what the checker has found in a run without a guard.
	Found []string `json:"found,omitempty"`
}
