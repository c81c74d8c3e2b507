package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// The files that Write makes.
const (
	JSONFile = "report.json"
	PageFile = "report.html"
)

// Write makes report.json and report.html in dir, which it makes if need be.
func Write(run Run, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	run = judged(run)
	for name, write := range map[string]func(io.Writer, Run) error{JSONFile: writeJSON, PageFile: writePage} {
		var out bytes.Buffer
		if err := write(&out, run); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

func writeJSON(w io.Writer, run Run) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(run)
}

// judged is the run with its verdict, and with lists that are empty, not absent.
func judged(run Run) Run {
	run.Verdict.OK, run.Verdict.Reasons = run.OK()
	if run.Without != "" {
		run.Verdict.Found = run.failures()
	}
	present(&run.Verdict.Reasons)
	present(&run.Findings)
	present(&run.Controls)
	present(&run.Rivals)
	present(&run.Errors)
	present(&run.Figures.Bins)
	present(&run.Figures.Faults)
	present(&run.Figures.Stale)
	present(&run.Figures.Dead)
	present(&run.Figures.Bells)
	present(&run.Figures.Restarts.Unplanned)
	return run
}

// present makes an absent list an empty one, which is not null in JSON.
func present[T any](list *[]T) {
	if *list == nil {
		*list = []T{}
	}
}
