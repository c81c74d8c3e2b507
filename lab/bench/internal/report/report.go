// Package report makes a page and charts of what the bench has found.
package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencepost-go/fencepost/lab/bench/internal/book"
)

const pageFile = "last.md"

// Write reads the results in one folder and writes the page and the charts into
// another. Both are made anew each time: nobody edits them.
func Write(in, out string) error {
	entries, err := book.Read(in)
	if err != nil {
		return err
	}
	runs := ended(entries)
	if len(runs) == 0 {
		return fmt.Errorf("%s: no suite has been played to its end", in)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	all := subjects(runs)
	var drawn []chart
	for _, c := range charts {
		path := filepath.Join(out, c.file)
		groups := c.groups(all)
		if len(groups) == 0 { // and an older one says nothing of this run
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			continue
		}
		svg, err := drawing(c.title, groups)
		if err != nil {
			return fmt.Errorf("%s: %w", c.file, err)
		}
		if err := os.WriteFile(path, svg, 0o644); err != nil {
			return err
		}
		drawn = append(drawn, c)
	}
	return os.WriteFile(filepath.Join(out, pageFile), []byte(page(runs, drawn)), 0o644)
}
