package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/fencepost-go/fencepost"
)

// tally counts what became of jobs, by the status that they had before.
type tally struct {
	changed, leftAlone map[string]int64
	busy, missing      int64
	refused            int64
	refusal            error // the first of them
}

func (t *tally) add(d fencepost.Did) {
	switch {
	case d.Done:
		t.change(d.Status, 1)
	case d.Refused != nil:
		t.refused++
		t.refusal = cmp.Or(t.refusal, d.Refused)
	case d.Busy:
		t.busy++
	case d.Status == "":
		t.missing++
	default:
		if t.leftAlone == nil {
			t.leftAlone = make(map[string]int64)
		}
		t.leftAlone[d.Status]++
	}
}

func (t *tally) change(status string, n int64) {
	if t.changed == nil {
		t.changed = make(map[string]int64)
	}
	if n > 0 {
		t.changed[status] += n
	}
}

func sum(counts map[string]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

func (t *tally) total() int64 {
	return sum(t.changed) + sum(t.leftAlone) + t.busy + t.missing + t.refused
}

// failure is the error about those that were not changed, of n that were to be.
func (t *tally) failure(v verb, n int64, dryRun bool) error {
	var reasons []string
	if left := sum(t.leftAlone); left > 0 {
		reasons = append(reasons, fmt.Sprintf("%d left alone", left))
	}
	if t.busy > 0 {
		reasons = append(reasons, fmt.Sprintf("%d busy", t.busy))
	}
	if t.refused > 0 {
		reasons = append(reasons, fmt.Sprintf("%d refused by the database (%v)", t.refused, t.refusal))
	}
	not := "were not"
	if dryRun {
		not = "would not be"
	}
	switch {
	case len(reasons) == 0 && t.missing == 0:
		return nil
	case len(reasons) == 0:
		return fmt.Errorf("%d of %d jobs %s %s: %w", t.missing, n, not, v.past, fencepost.ErrNotFound)
	case t.missing > 0:
		reasons = append(reasons, fmt.Sprintf("%d missing", t.missing))
	}
	return fmt.Errorf("%d of %d jobs %s %s: %s", n-sum(t.changed), n, not, v.past, strings.Join(reasons, ", "))
}

// tallyJSON is what became of the jobs that match a filter. The maps are by the
// status that they had before.
type tallyJSON struct {
	Result    string           `json:"result"`
	Changed   map[string]int64 `json:"changed"`
	LeftAlone map[string]int64 `json:"left_alone"`
	Busy      int64            `json:"busy"`
	Missing   int64            `json:"missing"`
	Refused   int64            `json:"refused"`
	DryRun    bool             `json:"dry_run"`
}

func (a *app) printTally(v verb, t tally, dryRun bool) error {
	if a.json {
		if t.changed == nil {
			t.changed = map[string]int64{}
		}
		if t.leftAlone == nil {
			t.leftAlone = map[string]int64{}
		}
		return a.printJSON(tallyJSON{v.past, t.changed, t.leftAlone, t.busy, t.missing, t.refused, dryRun})
	}
	if t.total() == 0 {
		_, err := fmt.Fprintln(a.out, "no such jobs")
		return err
	}
	var rows []table.Row
	for _, part := range []struct {
		result string
		counts map[string]int64
	}{{v.did(dryRun), t.changed}, {"left alone", t.leftAlone}} {
		for _, status := range statuses {
			if n := part.counts[status]; n > 0 {
				rows = append(rows, table.Row{part.result, status, n})
			}
		}
	}
	if t.busy > 0 {
		rows = append(rows, table.Row{"busy: held by a transaction", "-", t.busy})
	}
	if t.refused > 0 {
		rows = append(rows, table.Row{"refused by the database", "-", t.refused})
	}
	if t.missing > 0 {
		rows = append(rows, table.Row{"gone meanwhile", "-", t.missing})
	}
	return a.printTable(table.Row{"result", "status before", "jobs"}, rows)
}
