package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
)

// verb is one of the commands that change jobs: by their ids, or those that
// match a filter.
type verb struct {
	name string // retry
	past string // retried
	// acts are the statuses of the jobs that it changes. Others it leaves
	// alone.
	acts []string
	// passes are the statuses that a filter without --status goes through, one
	// after the other; empty text is all at once. They are in the order in
	// which a job goes through them, so that one which moves on meanwhile is
	// met again.
	passes []string
	do     doer

	short, long, example string
}

// doer does something about jobs, and says for each what it did.
type doer = func(*fencepost.Client, context.Context, ...int64) ([]fencepost.Did, error)

// operateBatch is how many jobs are changed in one transaction.
const operateBatch = 500

const operateHelp = `

Jobs are named by their ids, or by a filter, which must not be empty: --all
stands for every one. Many jobs are done in batches of 500, each in a
transaction of its own; an interrupt stops between two batches and says how far
it got. What enters the filter meanwhile may be missed.

Exit codes, beside those of every command:
  0  all were done; of a filter also those that moved on before their turn
  1  some were left alone, or are busy: an open transaction holds their rows;
     or the database refuses: a foreign key or a trigger of yours
  5  some ids are of no job, and all others were done`

// selection is which jobs a verb is for.
type selection struct {
	ids    []int64
	filter fencepost.Filter
	dryRun bool
}

func (a *app) operateCommand(v verb) *cobra.Command {
	var s selection
	var all bool
	cmd := &cobra.Command{
		Use:               v.name + " {ID... | --queue Q --kind K --status S | --all}",
		Short:             v.short,
		Long:              v.long + operateHelp,
		Example:           v.example,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if s.ids, err = parseIDs(args); err != nil {
				return err
			}
			if err := v.check(cmd, s, all); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(client *fencepost.Client, _ *pgxpool.Pool) error {
				switch {
				case len(s.ids) > 0:
					return a.operateIDs(cmd.Context(), client, v, s)
				case s.dryRun:
					return a.foresee(cmd.Context(), client, v, s.filter)
				default:
					return a.operateFilter(cmd.Context(), client, v, s.filter)
				}
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.filter.Queue, "queue", "", "jobs of this queue")
	flags.StringVar(&s.filter.Kind, "kind", "", "jobs of this kind")
	unasked := ""
	if v.passes[0] != "" && len(v.passes) < len(v.acts) {
		unasked = " (default " + strings.Join(v.passes, ", ") + ")"
	}
	flags.StringVar(&s.filter.Status, "status", "", "jobs with this status: "+strings.Join(v.acts, ", ")+unasked)
	flags.BoolVar(&all, "all", false, "in place of a filter: jobs of every queue and kind")
	flags.BoolVar(&s.dryRun, "dry-run", false, "change nothing, print what would be done")
	a.completeFilter(cmd, v.acts)
	return cmd
}

// check refuses what may be a slip of the hand before anything is changed.
func (v verb) check(cmd *cobra.Command, s selection, all bool) error {
	if err := refuseEmpty(cmd, "queue", "kind", "status"); err != nil {
		return err
	}
	filtered := s.filter != fencepost.Filter{}
	switch {
	case len(s.ids) > 0 && (filtered || all):
		return usage("name jobs by their ids or by a filter, not by both")
	case filtered && all:
		return usage("--all is in place of a filter; it cannot be joined with one")
	case len(s.ids) == 0 && !filtered && !all:
		return usage("which jobs? Give ids or a filter (--queue, --kind, --status); --all is in place of a filter")
	}
	if err := checkStatus(s.filter.Status); err != nil {
		return err
	}
	if s.filter.Status != "" && !slices.Contains(v.acts, s.filter.Status) {
		return usage("%s leaves %s jobs alone; --status must be one of %s", v.name, s.filter.Status, strings.Join(v.acts, ", "))
	}
	return nil
}

// through returns the filters that a filter stands for.
func (v verb) through(f fencepost.Filter) (list []fencepost.Filter) {
	statuses := v.passes
	if f.Status != "" {
		statuses = []string{f.Status}
	}
	for _, f.Status = range statuses {
		list = append(list, f)
	}
	return list
}

// operateIDs does it to the jobs of the given ids, and prints a line for each.
func (a *app) operateIDs(ctx context.Context, client *fencepost.Client, v verb, s selection) error {
	do := v.do
	if s.dryRun {
		do = v.pretend
	}
	var rows []table.Row
	var count tally
	batches := slices.Collect(slices.Chunk(s.ids, operateBatch))
	next := func() (ids []int64, err error) {
		if len(batches) > 0 {
			ids, batches = batches[0], batches[1:]
		}
		return ids, nil
	}
	err := a.batches(ctx, client, v, do, int64(len(s.ids)), next, func(did fencepost.Did) error {
		count.add(did)
		if a.json {
			return a.printJSON(didJSON{formatID(did.ID), v.code(did), textOrNull(did.Status), s.dryRun})
		}
		rows = append(rows, table.Row{did.ID, v.result(did, s.dryRun), orDash(did.Status)})
		return nil
	})
	if !a.json && len(rows) > 0 {
		err = errors.Join(err, a.printTable(table.Row{"id", "result", "status before"}, rows))
	}
	return cmp.Or(err, count.failure(v, int64(len(s.ids)), s.dryRun))
}

// operateFilter does it to the jobs that match, and prints how many they were.
func (a *app) operateFilter(ctx context.Context, client *fencepost.Client, v verb, f fencepost.Filter) error {
	f.Limit = operateBatch
	passes := v.through(f)
	var total int64
	for _, f := range passes {
		n, err := client.Count(ctx, f)
		if err != nil {
			return err
		}
		total += n
	}
	after := int64(math.MinInt64)
	next := func() ([]int64, error) {
		for len(passes) > 0 {
			ids, err := client.IDs(ctx, passes[0], after)
			if err != nil {
				return nil, err
			}
			if len(ids) > 0 {
				after = ids[len(ids)-1]
				return ids, nil
			}
			passes, after = passes[1:], math.MinInt64
		}
		return nil, nil
	}
	var count tally
	err := a.batches(ctx, client, v, v.do, total, next, func(did fencepost.Did) error {
		count.add(did)
		return nil
	})
	err = errors.Join(err, a.printTally(v, count, false))
	if err == nil && count.busy+count.refused > 0 {
		err = count.failure(v, count.total(), false)
	}
	return err
}

// foresee prints what operateFilter would find.
func (a *app) foresee(ctx context.Context, client *fencepost.Client, v verb, f fencepost.Filter) error {
	if f.Status == "" && v.passes[0] == "" {
		v.passes = v.acts
	}
	var count tally
	for _, f := range v.through(f) {
		n, err := client.Count(ctx, f)
		if err != nil {
			return err
		}
		count.change(f.Status, n)
	}
	return a.printTally(v, count, true)
}

// batches does it to one batch after the other, until there is none. An
// interrupt lets the batch in hand end.
func (a *app) batches(ctx context.Context, client *fencepost.Client, v verb, do doer, total int64, next func() ([]int64, error), each func(fencepost.Did) error) (err error) {
	tell := narrator{out: a.stderr}
	defer tell.end()
	n := 0
	defer func() {
		if err != nil && n > 0 {
			err = fmt.Errorf("%s: stopped after %d of %d jobs: %w", v.name, n, max(total, int64(n)), err)
		}
	}()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		ids, err := next()
		if err != nil || len(ids) == 0 {
			return err
		}
		did, err := do(client, context.WithoutCancel(ctx), ids...)
		n += len(did) // what is done is done, also next to an error
		for _, d := range did {
			err = errors.Join(err, each(d))
		}
		if err != nil {
			return err
		}
		tell.progress(v.name, n, int(max(total, int64(n))))
	}
}

// pretend is the doer of a dry run.
func (v verb) pretend(client *fencepost.Client, ctx context.Context, ids ...int64) ([]fencepost.Did, error) {
	var list []fencepost.Did
	for _, id := range ids {
		job, err := client.Get(ctx, id)
		if err != nil && !errors.Is(err, fencepost.ErrNotFound) {
			return nil, err
		}
		list = append(list, fencepost.Did{ID: id, Status: job.Status, Done: err == nil && slices.Contains(v.acts, job.Status)})
	}
	return list, nil
}

// What became of a job, in --json: the verb's past, or one of these.
const (
	codeBusy      = "busy"
	codeRefused   = "refused"
	codeMissing   = "missing"
	codeLeftAlone = "left_alone"
)

func (v verb) code(d fencepost.Did) string {
	switch {
	case d.Done:
		return v.past
	case d.Refused != nil:
		return codeRefused
	case d.Busy:
		return codeBusy
	case d.Status == "":
		return codeMissing
	default:
		return codeLeftAlone
	}
}

func (v verb) result(d fencepost.Did, dryRun bool) string {
	switch v.code(d) {
	case codeBusy:
		return "busy: held by a transaction"
	case codeRefused:
		return "refused by the database"
	case codeMissing:
		return "no such job"
	case codeLeftAlone:
		return "left alone"
	default:
		return v.did(dryRun)
	}
}

func (v verb) did(dryRun bool) string {
	if dryRun {
		return "would be " + v.past
	}
	return v.past
}

// didJSON is what became of one job.
type didJSON struct {
	ID     string  `json:"id"`
	Result string  `json:"result"`
	Status *string `json:"status"` // that it had before; null for no such job
	DryRun bool    `json:"dry_run"`
}
