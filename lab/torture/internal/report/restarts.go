package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// Restarts are the ends of worker processes that another life followed, by
// cause.
type Restarts struct {
	// Planned: the harness had killed the process, or told it to end, and it did.
	Planned int `json:"planned"`
	// ByJob: a job ended its process, as its script says.
	ByJob int `json:"by_job"`
	// Unplanned are those for which there is no such reason, of any process,
	// whether it was started again or not: also of one that was told to end, and
	// broke down over it. Each is a failure: no worker may need a restart.
	Unplanned []string `json:"unplanned"`
}

// restarts counts the ends of processes by cause.
func restarts(events []history.Event) Restarts {
	r := Restarts{Unplanned: []string{}}
	lives := make(map[string]bool)
	for _, e := range events {
		if e.Op == history.Hello {
			lives[e.Proc] = true
		}
	}
	for _, d := range deaths(events) {
		again := lives[successor(d.proc)] && strings.HasPrefix(d.proc, string(script.Worker))
		switch {
		case d.cause == unplanned:
			r.Unplanned = append(r.Unplanned, d.proc+": "+cmp.Or(d.how, "by itself"))
		case again && d.cause == planned:
			r.Planned++
		case again:
			r.ByJob++
		}
	}
	return r
}

// death is the end of a process.
type death struct {
	at    int64
	proc  string
	cause cause
	how   string
}

type cause int

const (
	unplanned cause = iota
	planned
	byJob
)

// deaths are the ends of processes, in their order.
func deaths(events []history.Event) (all []death) {
	killed := make(map[string]bool)               // by process
	told := make(map[string]bool)                 // by process: to end
	running := make(map[string]map[claimKey]bool) // by process: jobs that end it
	for _, e := range events {
		switch e.Op {
		case history.Kill:
			killed[e.Target] = true
		case history.Term:
			told[e.Target] = true
		case history.Start:
			if e.Kind == script.Exit || e.Kind == script.Killer {
				if running[e.Proc] == nil {
					running[e.Proc] = make(map[claimKey]bool)
				}
				running[e.Proc][claimKey{e.Job, e.Fence}] = true
			}
		case history.End:
			delete(running[e.Proc], claimKey{e.Job, e.Fence})
		case history.Exit:
			d := death{at: e.At, proc: e.Target, how: e.Error}
			switch {
			case killed[e.Target]:
				d.cause = planned
			case brokeDown(e.Error):
			case told[e.Target]:
				d.cause = planned
			case len(running[e.Target]) > 0:
				d.cause = byJob
			}
			all = append(all, d)
		}
	}
	return all
}

// brokeDown says that a process has not ended by its own decision: by a panic,
// for which Go has the status 2, or by a signal. One that is told to end before
// it listens for that ends by the very signal.
func brokeDown(how string) bool {
	return how == "exit status 2" || strings.HasPrefix(how, "signal: ") && how != "signal: terminated"
}

// successor is the name of the next life of a process.
func successor(name string) string {
	stem, life, ok := strings.Cut(name, ".")
	var n int
	if _, err := fmt.Sscan(life, &n); !ok || err != nil {
		return ""
	}
	return fmt.Sprintf("%s.%d", stem, n+1)
}
