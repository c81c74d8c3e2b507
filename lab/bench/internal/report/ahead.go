package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
)

// judged says of the figures that are better or worse whether more is better.
// The others are parts of these, or sizes.
var judged = map[string]bool{
	"jobs/s": true, "last tenth, jobs/s": true, "commits/s": true, "completed": true,

	"CPU, µs/job": false, "WAL, B/job": false, "commits/job": false, "objects/job": false, "bytes/job": false,
	"start-up ms": false, "claims/job": false, "waits": false, "backlog": false, "unseen": false,
	"p50 ms": false, "p90 ms": false, "p99 ms": false, "max ms": false, "next job ms": false,
	"statements/min": false, "WAL B/min": false, "worker CPU ms/min": false, "server CPU ms/min": false,
	"connections": false, "idle RSS, MiB": false,
}

// ahead says in words where another queue has done better than we, by the
// medians.
func (s *subject) ahead() (words []string) {
	for _, figure := range s.figures {
		more, is := judged[figure]
		if !is {
			continue
		}
		for _, peer := range s.rows {
			if !peer.queue() || peer.own() || len(peer.rounds[figure]) == 0 {
				continue
			}
			var beaten []string
			for _, own := range s.rivals(peer) {
				if better(peer.rounds[figure], own.rounds[figure], more) {
					beaten = append(beaten, versus(own, peer, figure))
				}
			}
			if len(beaten) > 0 {
				words = append(words, fmt.Sprintf("%s, %s: **%s** %s; %s", s.name, figure, peer, cell(peer.rounds[figure]), strings.Join(beaten, "; ")))
			}
		}
	}
	return words
}

// rivals are our rows that the other's is held against: at our best if it is at
// its best, at our defaults if it is at its own; all if there is none such.
func (s *subject) rivals(peer *row) []*row {
	own := slices.DeleteFunc(slices.Clone(s.rows), func(r *row) bool { return !r.own() })
	same := slices.DeleteFunc(slices.Clone(own), func(r *row) bool { return r.best != peer.best })
	if len(same) > 0 {
		return same
	}
	return own
}

func better(a, b []float64, more bool) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	if more {
		return figures.Median(a) > figures.Median(b)
	}
	return figures.Median(a) < figures.Median(b)
}

func versus(own, peer *row, figure string) string {
	a, b := own.rounds[figure], peer.rounds[figure]
	words := own.String() + " " + cell(a)
	if slices.Max(a) >= slices.Min(b) && slices.Max(b) >= slices.Min(a) {
		words += ", the ranges overlap"
	}
	return words
}
