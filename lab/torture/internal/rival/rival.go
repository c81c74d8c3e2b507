// Package rival runs River beside Fencepost: the same jobs, the same faults and
// the same measurement, each through its public API, so that the figures can be
// compared.
package rival

import (
	"context"
	"errors"
	"io"
)

// Options says how to run. Dir is where the record is written.
type Options struct {
	Dir   string
	Seed  uint64
	Log   io.Writer
	Short bool // a few seconds of each, for a test: the figures are of no use
}

// Row is what one queue did in one scenario.
type Row struct {
	Queue    string `json:"queue"`
	Version  string `json:"version"`
	Settings string `json:"settings"`
	Scenario string `json:"scenario"`

	// Held is how many jobs the fault caught in the hands of its victims;
	// Recovered how many of them went on: started again, or had their outcome
	// stored. The seconds are counted from when nobody worked on them.
	Held          int     `json:"held"`
	Recovered     int     `json:"recovered"`
	MedianSeconds float64 `json:"median_seconds"`
	MaxSeconds    float64 `json:"max_seconds"`

	// StaleAccepted is how many outcomes were stored by somebody who did not
	// hold the job any more.
	StaleAccepted int `json:"stale_accepted"`
	// Lost is how many jobs were acknowledged, and are not there at the end.
	Lost int `json:"lost"`
	// Doubled is how many jobs had two handlers at once. One in a frozen process
	// counts.
	Doubled int `json:"doubled"`

	Notes []string `json:"notes,omitempty"`
}

// Run measures both queues under all faults. It takes about five minutes, or
// less than one if it is short.
func Run(ctx context.Context, o Options) ([]Row, error) {
	return nil, errors.New("rival: not built yet")
}
