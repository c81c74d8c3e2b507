package report

import (
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/book"
	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
)

// run is a suite that was played to its end.
type run struct {
	suite, commit string
	began, ended  time.Time
	conditions    book.Conditions
	peers         []book.Peer
	lines         []figures.Line
	samples       []figures.Sample
}

// ended are the suites that have ended, each as it was played last. What a
// suite had found before it was broken off counts for nothing: the rest of its
// rounds is missing.
func ended(entries []book.Entry) (runs []run) {
	var r run
	for _, e := range entries {
		switch {
		case e.Begin != nil:
			r = run{suite: e.Suite, commit: e.Commit, began: e.At, conditions: *e.Begin}
		case e.Peer != nil:
			r.peers = append(r.peers, *e.Peer)
		case e.Sample != nil:
			r.samples = append(r.samples, *e.Sample)
		case e.Line != nil:
			r.lines = append(r.lines, *e.Line)
		case e.End:
			r.ended = e.At
			runs = append(slices.DeleteFunc(runs, func(old run) bool { return old.suite == e.Suite }), r)
		}
	}
	return runs
}
