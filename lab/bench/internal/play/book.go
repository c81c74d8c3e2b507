package play

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
)

// book is the file of everything that was found, a line of JSON each. A run
// that is resumed goes on in it.
type book struct {
	file   *os.File
	ended  []string // suites that had been played to their end, with the same code and flags
	commit string
	errs   []error
}

// entry is one line of the book.
type entry struct {
	Suite  string          `json:"suite"`
	Commit string          `json:"commit"`
	Flags  string          `json:"flags,omitempty"` // of an end
	End    bool            `json:"end,omitempty"`
	Line   *figures.Line   `json:"line,omitempty"`
	Sample *figures.Sample `json:"sample,omitempty"`
}

func openBook(how How) (*book, error) {
	b := &book{commit: commit()}
	path := how.path("results.jsonl")
	if how.Resume {
		entries, err := read(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.End && e.Commit == b.commit && !strings.HasSuffix(e.Commit, "changed") {
				b.ended = append(b.ended, e.Suite)
			}
		}
	} else if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	b.file = file
	return b, err
}

func read(path string) (entries []entry, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		entries = append(entries, e)
	}
	return entries, lines.Err()
}

// commit names the code that is measured.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty=-changed").Output()
	if err != nil {
		return "unknown-changed"
	}
	return strings.TrimSpace(string(out))
}

func (b *book) has(suite string) bool { return slices.Contains(b.ended, suite) }

func (b *book) line(suite string, l figures.Line) { b.write(entry{Suite: suite, Line: &l}) }

func (b *book) sample(suite string, s figures.Sample) { b.write(entry{Suite: suite, Sample: &s}) }

func (b *book) done(suite string) error {
	b.write(entry{Suite: suite, End: true})
	return errors.Join(b.errs...)
}

func (b *book) write(e entry) {
	e.Commit = b.commit
	if _, err := fmt.Fprintln(b.file, text(e)); err != nil {
		b.errs = append(b.errs, err)
	}
}

func (b *book) close() error { return errors.Join(append(b.errs, b.file.Close())...) }
