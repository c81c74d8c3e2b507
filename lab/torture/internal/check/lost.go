package check

import (
	"fmt"
	"slices"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// lostJobs: what was acknowledged is there, or has gone in a way that jobs go;
// what nobody knows about is there at most once.
func lostJobs(ix *index, f *finding) {
	for token, tries := range ix.enqueues {
		f.Checked++
		var there []*job
		lost := false
		for _, j := range ix.byToken[token] {
			if len(j.changes) > 0 {
				there = append(there, j)
			} else {
				lost = true
			}
		}
		var acknowledged *call
		for _, t := range tries {
			if t.phase() == history.OK {
				acknowledged = t.call
			}
		}
		switch {
		case acknowledged != nil && len(there) == 0 && lost:
			f.part("went with a former primary", 1)
		case acknowledged != nil && len(there) == 0:
			f.violated("an acknowledged job was never seen by the database",
				steps(ix.call(acknowledged), Step{ix.at(ix.last), "witness", "no line of token " + token})...)
		case len(there) > 1:
			var all []Step
			for _, j := range there {
				all = append(all, ix.change(j.changes[0]))
			}
			f.violated("one enqueue made several jobs", all...)
		}
		if acknowledged == nil {
			f.part("unknown or rolled back", 1)
		}
		misnamed(ix, f, token, tries)
	}
	for _, j := range ix.jobs {
		if len(j.changes) > 0 {
			vanished(ix, f, j)
		}
	}
	forgottenProgress(ix, f)
	altered(ix, f)
	unsaid(ix, f)
}

// misnamed: the id that an enqueue has returned is that of the job.
func misnamed(ix *index, f *finding, token string, tries []enqueued) {
	jobs := ix.byToken[token]
	for _, t := range tries {
		if t.phase() != history.OK || len(jobs) == 0 {
			continue
		}
		id := answeredID(t)
		if id == 0 {
			continue // by a way that tells none
		}
		f.part("ids", 1)
		if !slices.ContainsFunc(jobs, func(j *job) bool { return j.id == id }) {
			first := append(slices.Clone(jobs[0].changes), jobs[0].lost...)[0]
			f.violated(fmt.Sprintf("an enqueue returned id %d for the job of another token", id), steps(ix.call(t.call), ix.change(first))...)
		}
	}
}

// answeredID is the id that was returned for the job, 0: none.
func answeredID(t enqueued) int64 {
	for _, r := range t.ret.Refs {
		if r.Token == t.ref.Token {
			return r.Job
		}
	}
	return 0
}

// vanished: of a job that the witness has seen the tables tell the same.
func vanished(ix *index, f *finding, j *job) {
	last := j.changes[len(j.changes)-1]
	switch last.what {
	case removed:
		cl := ix.claims[claimName{j.id, last.before.Fence}]
		if w := cl.outcome(last); w != nil && (w.verb == "done" || w.verb == "complete") && j.queue == script.Bin {
			break
		}
		if ix.operated(j.id, last, "delete") == nil {
			f.violated("a job vanished, and nobody had deleted it, or ended it in a queue that keeps none", ix.change(last))
		}
	case forgotten:
		if ix.operated(j.id, last, "delete") == nil {
			f.violated("an ended job vanished, and nobody had deleted it", ix.change(last))
		}
	default:
		if j.final == nil {
			f.violated("a job is not in the tables at the end, and nothing has ended it",
				ix.change(last), ix.row("no job %d of token %s", j.id, j.token))
		}
		return
	}
	if j.final != nil {
		f.violated("a job is in the tables at the end that had gone", ix.change(last), ix.row("job %d is %s", j.id, j.final.Status))
	}
}
