// Package book holds the file of everything that a run has found.
package book

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/host"
)

// Book is the file of everything that was found, a line of JSON each. A run
// that is resumed goes on in it.
type Book struct {
	file   *os.File
	ended  []string // suites that had been played to their end, with the same code and flags
	commit string
	flags  string
	peers  []Peer // of the suite that is played
	errs   []error
}

// Entry is one line of the book. A suite begins, says what it finds, and ends;
// one that was broken off has no end, and may begin again further down.
type Entry struct {
	Suite  string          `json:"suite"`
	At     time.Time       `json:"at"`
	Commit string          `json:"commit"`
	Begin  *Conditions     `json:"begin,omitempty"`
	Peer   *Peer           `json:"peer,omitempty"`
	Sample *figures.Sample `json:"sample,omitempty"`
	Line   *figures.Line   `json:"line,omitempty"`
	End    bool            `json:"end,omitempty"`
	Flags  string          `json:"flags,omitempty"` // of an end: what else was asked for
}

// Conditions are what a suite is played under.
type Conditions struct {
	Machine host.Machine `json:"machine"`
	// Server is the version of PostgreSQL, Settings what differs from its defaults.
	Server   string            `json:"server"`
	Settings map[string]string `json:"settings"`
	Rounds   int               `json:"rounds"`
	Small    bool              `json:"small"` // a look, no measurement
}

// Peer is a queue that has taken part.
type Peer struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

const name = "results.jsonl"

// Open opens the book of a folder: to go on in it, or empty. flags are those
// that decide what is measured.
func Open(folder, flags string, resume bool) (*Book, error) {
	b := &Book{commit: commit(), flags: flags}
	path := filepath.Join(folder, name)
	if resume {
		entries, err := Read(folder)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		b.ended = endedBefore(entries, b.commit, flags)
	} else if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	b.file = file
	return b, err
}

// endedBefore are the suites that need not be played again.
func endedBefore(entries []Entry, commit, flags string) (suites []string) {
	for _, e := range entries {
		if e.End && e.Commit == commit && e.Flags == flags && !Changed(commit) {
			suites = append(suites, e.Suite)
		}
	}
	return suites
}

// Read reads the book of a folder.
func Read(folder string) (entries []Entry, err error) {
	file, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		entries = append(entries, e)
	}
	return entries, lines.Err()
}

const changed = "-changed"

// Changed says whether the code was another than that of the commit.
func Changed(commit string) bool { return strings.HasSuffix(commit, changed) }

// commit names the code that is measured.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty="+changed).Output()
	if err != nil {
		return "unknown" + changed
	}
	return strings.TrimSpace(string(out))
}

// Has says whether the suite has been played before.
func (b *Book) Has(suite string) bool { return slices.Contains(b.ended, suite) }

// Begin begins a suite.
func (b *Book) Begin(suite string, c Conditions) {
	b.peers = nil
	b.write(Entry{Suite: suite, Begin: &c})
}

// Peer notes, once, that a queue takes part in it.
func (b *Book) Peer(suite, name, version string) {
	p := Peer{Name: name, Version: version}
	if !slices.Contains(b.peers, p) {
		b.peers = append(b.peers, p)
		b.write(Entry{Suite: suite, Peer: &p})
	}
}

// Sample notes a figure.
func (b *Book) Sample(suite string, s figures.Sample) { b.write(Entry{Suite: suite, Sample: &s}) }

// Line notes what was found of a target.
func (b *Book) Line(suite string, l figures.Line) { b.write(Entry{Suite: suite, Line: &l}) }

// Done ends a suite. It returns what has gone wrong in writing until then.
func (b *Book) Done(suite string) error {
	b.write(Entry{Suite: suite, End: true, Flags: b.flags})
	return errors.Join(b.errs...)
}

func (b *Book) write(e Entry) {
	e.Commit, e.At = b.commit, time.Now().UTC()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = fmt.Fprintf(b.file, "%s\n", line)
	}
	if err != nil {
		b.errs = append(b.errs, err)
	}
}

// Close closes the file.
func (b *Book) Close() error { return errors.Join(append(b.errs, b.file.Close())...) }
