// Package play runs the suites that were asked for and keeps what they find.
package play

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/fencepost-go/fencepost/lab/bench/internal/book"
	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/host"
	"github.com/fencepost-go/fencepost/lab/bench/internal/suite"
)

// ErrMissed means that the bench has run and a target was missed.
var ErrMissed = errors.New("a target was missed")

// How the bench is to be played.
type How struct {
	Suites, Peers             []string
	Rounds, Major             int
	JSON, Quick, Full, Resume bool
	Out                       string
	Log, Lines                io.Writer
}

// Play runs the suites one after the other, each on a server of its own.
func Play(ctx context.Context, how How) (err error) {
	chosen, err := choose(how)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(how.Out, 0o755); err != nil {
		return err
	}
	book, err := book.Open(how.Out, how.flags(), how.Resume)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	programs, err := build(ctx, how.Out)
	if err != nil {
		return err
	}
	missed := false
	for _, s := range chosen {
		if how.Resume && book.Has(s.Name) {
			fmt.Fprintf(how.Log, "%s: done before\n", s.Name)
			continue
		}
		lines, err := run(ctx, how, s, programs, book)
		if err != nil {
			return fmt.Errorf("suite %s: %w", s.Name, err)
		}
		missed = missed || slices.ContainsFunc(lines, func(l figures.Line) bool { return !l.Met })
	}
	if missed && !how.Quick {
		return ErrMissed
	}
	return nil
}

func choose(how How) (chosen []suite.Suite, err error) {
	for _, s := range suite.All {
		if len(how.Suites) > 0 && slices.Contains(how.Suites, s.Name) || len(how.Suites) == 0 && (!how.Quick || s.Quick) {
			chosen = append(chosen, s)
		}
	}
	for _, name := range how.Suites {
		if !slices.ContainsFunc(suite.All, func(s suite.Suite) bool { return s.Name == name }) {
			err = errors.Join(err, fmt.Errorf("there is no suite %q; see --help", name))
		}
	}
	for _, name := range how.Peers {
		if crews[name] == nil {
			err = errors.Join(err, fmt.Errorf("there is no peer %q; see --help", name))
		}
	}
	return chosen, err
}

func run(ctx context.Context, how How, s suite.Suite, programs programs, book *book.Book) (lines []figures.Line, err error) {
	fmt.Fprintf(how.Log, "\n%s: %s\n", s.Name, s.About)
	h, err := host.Start(ctx, how.Major, how.Log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Stop()) }()
	b := &suite.Bench{
		Host: h, Rounds: how.rounds(s), Peers: how.peers(s), Small: how.Quick, Full: how.Full, Log: how.Log,
		Start: programs.start(how.Log, func(peer, version string) { book.Peer(s.Name, peer, version) }),
		Record: func(sample figures.Sample) {
			book.Sample(s.Name, sample)
			if how.JSON {
				fmt.Fprintln(how.Lines, text(sample))
			}
		},
		Report: func(l figures.Line) {
			lines = append(lines, l)
			book.Line(s.Name, l)
			fmt.Fprintln(how.Lines, l)
			fmt.Fprintln(how.Log, "  "+l.Words())
		},
	}
	if err := begin(ctx, b, s, book); err != nil {
		return nil, err
	}
	if err := s.Run(ctx, b); err != nil {
		return lines, err
	}
	return lines, book.Done(s.Name)
}

// begin notes what the suite is played under.
func begin(ctx context.Context, b *suite.Bench, s suite.Suite, in *book.Book) error {
	machine, err := host.ThisMachine()
	if err != nil {
		return err
	}
	version, err := b.Host.Version(ctx)
	if err != nil {
		return err
	}
	in.Begin(s.Name, book.Conditions{Machine: machine, Server: version, Settings: host.Settings, Rounds: b.Rounds, Small: b.Small})
	return nil
}

// rounds of a suite.
func (how How) rounds(s suite.Suite) int {
	if how.Quick {
		return 1
	}
	return cmp.Or(how.Rounds, s.Rounds, 3)
}

// flags are those that decide what a suite measures: one that was played with
// others has to be played again.
func (how How) flags() string {
	return fmt.Sprintf("peers=%s rounds=%d major=%d quick=%t full=%t", strings.Join(how.Peers, ","), how.Rounds, how.Major, how.Quick, how.Full)
}

// peers are those that were asked for; else all for the full tables, those that
// the suite's targets name, or of these the ones that a look has time for.
func (how How) peers(s suite.Suite) []string {
	named := append([]string{"fencepost"}, s.Peers...)
	switch {
	case len(how.Peers) > 0:
		return how.Peers
	case how.Full:
		return []string{"fencepost", "river", "graphile", "pgboss", "gue", "floor"}
	case how.Quick:
		return slices.DeleteFunc(named, func(name string) bool { return name != "fencepost" && name != "river" && name != "floor" })
	}
	return named
}

func text(v any) string {
	line, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(line)
}
