package check

import "github.com/fencepost-go/fencepost/lab/torture/internal/history"

// ghosts: what runs was enqueued and claimed in transactions that committed.
func ghosts(ix *index, f *finding) {
	for token, tries := range ix.enqueues {
		f.Checked++
		rolledBack := true
		for _, t := range tries {
			rolledBack = rolledBack && t.phase() == history.Failed
		}
		if !rolledBack {
			continue
		}
		f.part("rolled back", 1)
		for _, j := range ix.byToken[token] {
			first := append(j.changes, j.lost...)[0]
			f.violated("a job is there whose transaction was rolled back", steps(ix.call(tries[0].call), ix.change(first))...)
		}
	}
	for _, cl := range ix.claimList {
		s := cl.start()
		if s == nil {
			continue
		}
		f.Checked++
		switch {
		case cl.given == nil:
			f.violated("a handler started under a claim that the database has never committed", ix.event(s, cl.id, cl.fence))
		case s.Token != "" && cl.job.token != "" && s.Token != cl.job.token:
			f.violated("a handler got another job than was claimed", ix.change(cl.given), ix.event(s, cl.id, cl.fence))
		}
	}
}
