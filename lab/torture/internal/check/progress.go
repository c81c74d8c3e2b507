package check

import "github.com/fencepost-go/fencepost/lab/torture/internal/history"

// forgottenProgress: what one handler of a job has stored as progress, and that
// was acknowledged, all later ones find. Nothing takes it away: no failure, no
// snooze, no operator who brings the job back; only a failover can lose it.
func forgottenProgress(ix *index, f *finding) {
	found := make(map[claimName]*history.Event) // by the handlers as they started
	for i := range ix.Events {
		if e := &ix.Events[i]; e.Op == history.Progress && e.Phase == "" {
			found[claimName{e.Job, e.Fence}] = e
		}
	}
	for _, j := range ix.jobs {
		var stored *write
		for _, cl := range j.claims {
			if at := found[claimName{j.id, cl.fence}]; at != nil && stored != nil && !cl.given.lost {
				f.part("progress found again", 1)
				if at.Result == "" && !ix.tookBack(j, stored) {
					f.violated("progress that was acknowledged is not there any more",
						steps(ix.call(stored.call, j.id), ix.event(at, j.id))...)
				}
			}
			for _, w := range cl.writes {
				if w.Op == history.Progress && w.result == accepted && !cl.given.lost {
					stored = w
				}
			}
		}
	}
}

// tookBack says that a failover has taken something of the job from the write on.
func (ix *index) tookBack(j *job, w *write) bool {
	for _, c := range j.lost {
		if c.at >= w.At-clockError {
			return true
		}
	}
	return false
}
