// Package rival runs River beside Fencepost: the same jobs, the same faults and
// the same measurement, each through its public API, so that the figures can be
// compared.
package rival

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fencepost-go/fencepost/internal/pg"
)

// Options says how to run. Dir is where the record is written.
type Options struct {
	Dir   string
	Seed  uint64
	Log   io.Writer
	Short bool // two scenarios, a few seconds each, for a test: the figures are of no use
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

// Run measures both queues in all scenarios, one after the other, each queue on
// a server of its own. It takes about five minutes.
func Run(ctx context.Context, o Options) ([]Row, error) {
	rows, err := run(ctx, o)
	if err != nil {
		err = fmt.Errorf("rival: %w", err)
	}
	return rows, err
}

func run(ctx context.Context, o Options) (rows []Row, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	dir, err := os.MkdirTemp(o.Dir, "rival-")
	if err != nil {
		return nil, err
	}
	program, err := build(ctx, dir)
	if err != nil {
		return nil, err
	}
	timing, todo := full, scenarios
	if o.Short {
		timing, todo = short, fewScenarios
	}
	for _, q := range queues {
		of, err := measure(ctx, setting{queue: q, program: program, dir: dir, seed: o.Seed, timing: timing}, todo, o.Log)
		rows = append(rows, of...)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", q.name(), err)
		}
	}
	return rows, nil
}

// measure runs scenarios with one queue, on a server of its own.
func measure(ctx context.Context, s setting, todo []scenario, log io.Writer) (rows []Row, err error) {
	s.server, err = pg.Start(ctx, pg.Options{TCP: true, Durable: true, Log: log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.server.Stop()) }()
	for i, sc := range todo {
		row, err := s.try(ctx, i, sc)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
		fmt.Fprintf(log, "%s, %s: %d of %d jobs went on\n", row.Queue, row.Scenario, row.Recovered, row.Held)
	}
	return rows, nil
}
