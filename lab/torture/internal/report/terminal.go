package report

import (
	"fmt"
	"io"
)

// Print writes the run as tables for a terminal.
func Print(w io.Writer, run Run) {
	ok, reasons := run.OK()
	for _, reason := range reasons {
		fmt.Fprintln(w, reason)
	}
	fmt.Fprintln(w, "ok", ok)
}
