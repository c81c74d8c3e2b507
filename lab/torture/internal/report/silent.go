package report

import "github.com/fencepost-go/fencepost/lab/torture/internal/history"

// silent counts the jobs that were enqueued while a worker promised to look into
// their queue without bells, or one that had died since.
func (m *measure) silent() (n int) {
	promises := make(map[string][]span)
	for _, e := range m.Events {
		if e.Op != history.Promise {
			continue
		}
		all := promises[e.Queue]
		if n := len(all); n > 0 && all[n-1].to > e.At {
			all[n-1].to = e.At // renewed, or ended
		}
		if e.DB > 0 {
			all = append(all, span{e.At, e.DB*1000 - m.Offset})
		}
		promises[e.Queue] = all
	}
	for _, l := range m.Lines {
		if l.Place == "jobs" && l.Op == "INSERT" && spans(promises[l.Queue]).has(stamp(l.At, m.Offset)) {
			n++
		}
	}
	return n
}
