// Package suite holds what is measured: one file for each subject, each with
// the targets that it answers for.
package suite

import (
	"context"
	"fmt"
	"io"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/host"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// Suite measures one subject.
type Suite struct {
	Name  string
	About string
	// Peers beside Fencepost that its targets name; "floor" is hand-written SQL.
	Peers []string
	// Quick: part of bench-quick, which has one round and Size small.
	Quick bool
	// Rounds, unless others were asked for. Default 3.
	Rounds int
	Run    func(ctx context.Context, b *Bench) error
}

// All suites, in the order in which they are run.
var All []Suite

// Bench is what a suite works with. It is used by one goroutine.
type Bench struct {
	Host   *host.Host
	Rounds int      // at least 1
	Peers  []string // chosen ones, such as "fencepost", "river"
	Small  bool     // a look, no measurement: sizes are a tenth
	Full   bool     // every peer, at its defaults too
	Log    io.Writer

	// Record keeps a figure of a round, for the tables and the charts: subject
	// (such as "drain"), who, settings in words, name of the figure, value.
	Record func(figures.Sample)
	// Report tells a target's line.
	Report func(figures.Line)

	// Start makes a child for the peer on the database, opened.
	Start func(ctx context.Context, peer string, o wire.Options) (*wire.Child, error)
}

// Size is n, or a tenth of it for a look.
func (b *Bench) Size(n int) int {
	if b.Small {
		return max(n/10, 1)
	}
	return n
}

// Logf tells the user how far the bench is.
func (b *Bench) Logf(format string, args ...any) { fmt.Fprintf(b.Log, format+"\n", args...) }

// Alternate calls run for each name in each round, in turning order, A B then
// B A, so that whatever drifts on the machine meets all alike. Before each the
// disk's commit rate is probed and recorded.
func (b *Bench) Alternate(ctx context.Context, names []string, run func(name string, round int) error) error {
	for round := range b.Rounds {
		for i := range names {
			name := names[i]
			if round%2 == 1 {
				name = names[len(names)-1-i]
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := b.probe(ctx, name, round); err != nil {
				return err
			}
			if err := run(name, round); err != nil {
				return fmt.Errorf("%s, round %d: %w", name, round+1, err)
			}
		}
	}
	return nil
}

// probe records what the disk is good for before a round of somebody's.
func (b *Bench) probe(ctx context.Context, who string, round int) error {
	rate, err := b.Host.ProbeCommits(ctx)
	if err != nil {
		return err
	}
	b.Record(figures.Sample{Subject: "disk", Row: who, Round: round, Figure: "commits/s", Value: rate})
	return nil
}
