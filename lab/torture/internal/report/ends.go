package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// endKey names the end of a job: there is one in a transaction.
type endKey struct{ xid, job int64 }

// ends are what jobs ended as that left a trace: done, dead or cancelled.
func ends(lines []witness.Line) map[endKey]string {
	all := make(map[endKey]string)
	for _, l := range lines {
		if l.Place == "finished" && l.Op == "INSERT" {
			all[endKey{l.XID, l.ID}] = l.After.Status
		}
	}
	return all
}

// well says that the job has ended, and as its script wants it. Without a trace
// it is done: some queues keep none.
func (j *job) well(s state) bool {
	if s.status != "" {
		return false
	}
	switch s.end {
	case "dead":
		return script.MayDie(j.kind, j.max)
	case "cancelled":
		return j.kind == script.Off
	}
	return true
}

// interfered says that the job has left the queue by an operator's doing.
func (m *measure) interfered(j *job, s state) bool {
	return s.status == "" && (s.end == "" && m.deleted[j.id] || s.end == "cancelled" && m.cancelled[j.id])
}

// operated are the jobs to which an operator has done what the verb says, or may
// have.
func operated(events []history.Event, verb string) map[int64]bool {
	jobs := make(map[int64]bool)
	open := make(map[callKey][]history.Ref)
	for _, e := range events {
		if e.Op != history.Operate || e.Verb != verb {
			continue
		}
		key := callKey{e.Proc, e.N}
		if e.Phase == history.Call {
			open[key] = e.Refs
			continue
		}
		for _, ref := range open[key] {
			i := slices.IndexFunc(e.Refs, func(r history.Ref) bool { return r.Job == ref.Job })
			if e.Phase != history.Failed && (i < 0 || e.Refs[i].Result == "done") {
				jobs[ref.Job] = true
			}
		}
		delete(open, key)
	}
	for _, refs := range open {
		for _, ref := range refs {
			jobs[ref.Job] = true
		}
	}
	return jobs
}

// dead are the jobs that died though their script does not want it.
func (m *measure) dead() []string {
	all := []string{}
	for _, l := range m.Lines {
		if l.Place != "finished" || l.Op != "INSERT" || l.After.Status != "dead" {
			continue
		}
		if j := m.jobs[l.ID]; j == nil || !script.MayDie(j.kind, j.max) {
			all = append(all, fmt.Sprintf("job %d (%s), attempt %d of %d: %s",
				l.ID, l.Kind, l.After.Attempts, l.Max, cmp.Or(l.Error, "no reason given")))
		}
	}
	return all
}

// filling is how long a queue of notifications may take from half full, above
// which no bell is rung, to full.
const filling = int64(time.Second)

// bells are the transactions that could not enqueue because the server's queue
// of notifications was full. One that had rung before is not among them: it
// rings when it commits, and nobody can know then that the queue is full.
func bells(events []history.Event) []string {
	all := []string{}
	began, filled := make(map[callKey]int64), never
	for _, e := range events {
		switch {
		case e.Op == history.Fault && e.Phase == history.Call && strings.HasSuffix(e.Verb, "notify-full"):
			filled = e.At + filling
		case e.Op != history.Enqueue:
		case e.Phase == history.Call:
			began[callKey{e.Proc, e.N}] = e.At
		case strings.Contains(e.Error, "SQLSTATE 54000") || strings.Contains(e.Error, "NOTIFY queue"):
			if began[callKey{e.Proc, e.N}] >= filled || filled == never {
				all = append(all, fmt.Sprintf("%s, by %s: %s", e.Proc, e.Via, e.Error))
			}
		}
	}
	return all
}
