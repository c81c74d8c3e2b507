package check

import (
	"fmt"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// conservation: as many jobs are live, ended or deleted as were acknowledged,
// but for those of which nobody knows; and none runs for ever.
func conservation(ix *index, f *finding) {
	acknowledged, unknown, lost := 0, 0, 0
	for token, tries := range ix.enqueues {
		ok, maybe := false, false
		for _, t := range tries {
			ok = ok || t.phase() == history.OK
			maybe = maybe || t.phase() == history.Unknown
		}
		switch {
		case ok:
			acknowledged++
			there, gone := false, false
			for _, j := range ix.byToken[token] {
				there = there || len(j.changes) > 0
				gone = gone || len(j.lost) > 0
			}
			if gone && !there {
				lost++
			}
		case maybe:
			unknown++
		}
	}
	live, finished, deleted := 0, 0, 0
	seen := make(map[key]bool, len(ix.Final))
	for _, j := range ix.Final {
		f.Checked++
		k := key{j.ID, j.CreatedAt.UnixMicro()}
		switch {
		case seen[k]:
			f.violated("a job is in the tables twice", ix.row("job %d is %s", j.ID, j.Status))
		case j.Token != "" && ix.enqueues[j.Token] == nil:
			f.violated("a job is in the tables that nobody has enqueued", ix.row("job %d of token %s is %s", j.ID, j.Token, j.Status))
		}
		seen[k] = true
		switch {
		case j.Token == "":
			f.part("jobs that are not the run's", 1)
		case j.Status == "done" || j.Status == "dead" || j.Status == "cancelled":
			finished++
		default:
			live++
		}
		if j.Status == "running" {
			f.violated("a job is stuck in running", ix.history(k, ix.row("job %d is running", j.ID))...)
		}
	}
	for _, j := range ix.jobs {
		if n := len(j.changes); n > 0 && j.token != "" && (j.changes[n-1].what == removed || j.changes[n-1].what == forgotten) {
			deleted++
		}
	}
	f.part("acknowledged", acknowledged)
	f.part("unknown", unknown)
	f.part("went with a former primary", lost)
	f.part("live", live)
	f.part("ended", finished)
	f.part("deleted, or done in a queue that keeps none", deleted)
	f.Checked++
	if there := live + finished + deleted + lost; there < acknowledged || there > acknowledged+unknown {
		f.violated("the jobs do not add up", ix.row("%s", fmt.Sprintf(
			"%d live, %d ended, %d deleted, %d lost with a former primary; %d were acknowledged, of %d nobody knows",
			live, finished, deleted, lost, acknowledged, unknown)))
	}
}

// history is the last line of a job, and what is added.
func (ix *index) history(k key, more ...Step) []Step {
	for _, j := range ix.byID[k.id] {
		if n := len(j.changes); j.key == k && n > 0 {
			return append(more, ix.change(j.changes[n-1]))
		}
	}
	return more
}
