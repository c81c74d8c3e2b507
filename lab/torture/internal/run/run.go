package run

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/torture/internal/check"
	"github.com/fencepost-go/fencepost/lab/torture/internal/fault"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/report"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// Place is where runs leave their records, and what they have in common.
type Place struct {
	Dir   string // one folder in it for each run
	Crew  string // see BuildCrew
	Wrong string // see stage.WrongClock; "": no process has a wrong clock
	Major int    // of PostgreSQL; 0: the newest found
	Log   io.Writer
}

// drainTime is how long a queue may take to become empty once the load and the
// faults are over, beside two leases and poll intervals. Jobs snooze, fail and
// take seconds.
const drainTime = 30 * time.Second

// One makes one run. The error is one of the harness; what the run has shown is
// in the report, whether or not there is an error.
func One(ctx context.Context, p Plan, at Place) (result report.Run, err error) {
	result = report.Run{Name: p.Name, Seed: p.Seed, Began: time.Now()}
	defer func() {
		result.Seconds = time.Since(result.Began).Seconds()
		if err != nil {
			result.Errors = append(result.Errors, err.Error())
		}
	}()
	dir := filepath.Join(at.Dir, p.Name)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil { // another run's
		return result, err
	}
	h, err := history.Create(dir, "harness")
	if err != nil {
		return result, err
	}
	defer h.Close()
	r := &one{Plan: p, place: at, dir: dir, history: h}
	if r.stage, err = r.open(ctx); err != nil {
		return report.Run{}, err // there was no run
	}
	defer func() {
		if left := r.stage.Close(); left != nil {
			err = errors.Join(err, LeftError{left})
		}
	}()
	played := r.play(ctx, &result)
	if ctx.Err() != nil {
		return result, played // nobody waits for what it has shown
	}
	if played != nil {
		// What was recorded is judged all the same, once nobody adds to it.
		_ = r.dismiss("") // the first error counts
	}
	return result, errors.Join(played, r.judge(ctx, &result))
}

// LeftError means that a run could not take away all that it had made.
type LeftError struct{ err error }

func (e LeftError) Error() string { return fmt.Sprintf("the stage was not left clean: %v", e.err) }

func (e LeftError) Unwrap() error { return e.err }

// one is a run under way.
type one struct {
	Plan
	place      Place
	dir        string
	history    *history.Writer
	stage      *stage.Stage
	begin, end int64 // of the load
	samples    []check.Sample
	offset     int64
}

func (r *one) open(ctx context.Context) (*stage.Stage, error) {
	o := stage.Options{
		Dir: r.dir, Major: r.place.Major, Workers: r.Workers, Crew: r.place.Crew, Wrong: r.place.Wrong,
		History: r.history, Log: r.place.Log,
	}
	for _, f := range r.Faults {
		o.Standby = o.Standby || f.Needs.Standby
		o.Pooler = o.Pooler || f.Needs.Pooler
	}
	return stage.Open(ctx, o)
}

// play is the run itself: the cast, the load, the faults, and the end of all
// three.
func (r *one) play(ctx context.Context, result *report.Run) error {
	if err := r.describe(ctx, result); err != nil {
		return err
	}
	client, err := fencepost.New(r.stage.Admin(), fencepost.Config{})
	if err != nil {
		return err
	}
	if err := client.SetKeep(ctx, script.Bin, 0); err != nil {
		return err
	}
	for i := range r.Workers {
		if _, err := r.stage.Start(r.worker(i)); err != nil {
			return err
		}
	}
	if err := r.setRate(ctx); err != nil {
		return err
	}
	result.Settings.Rate = r.Rate
	r.begin = history.Now() + int64(time.Second)
	cast := []script.Assignment{r.other(script.Zombie)}
	for i := range r.Producers {
		cast = append(cast, r.producer(i))
	}
	if !r.Unattended {
		cast = append(cast, r.other(script.Operator))
	}
	for _, a := range cast {
		if _, err := r.stage.Start(a); err != nil {
			return err
		}
	}
	defer r.watch(ctx)()
	if err := r.suffer(ctx); err != nil {
		return err
	}
	r.end = history.Now()
	if err := r.dismiss(script.Producer, script.Operator); err != nil {
		return err
	}
	r.logf("%s: the load is over; draining", r.Name)
	drained := time.Now()
	left, err := r.drain(ctx)
	if err != nil {
		return err
	}
	result.Left, result.Drain = left, time.Since(drained).Seconds()
	return r.dismiss(script.Zombie, script.Worker)
}

// dismiss stops all processes of some roles, in order.
func (r *one) dismiss(roles ...script.Role) error {
	var stopping errgroup.Group
	for _, role := range roles {
		for _, p := range r.stage.Processes(role) {
			stopping.Go(func() error {
				if err := p.Term(r.SoftStop + hardStop + 30*time.Second); err != nil {
					return fmt.Errorf("stop %s: %w", p.Name(), err)
				}
				return nil
			})
		}
	}
	return stopping.Wait()
}

// suffer lets the faults happen.
func (r *one) suffer(ctx context.Context) error {
	if len(r.Faults) == 0 {
		return sleep(ctx, r.Length)
	}
	faults := slices.Clone(r.Faults)
	for i, f := range faults {
		if r.Most > 0 {
			faults[i] = f.Within(r.Most)
		}
	}
	for _, step := range fault.Schedule(r.Seed, faults, r.Pauses, r.Length) {
		if err := step.Run(ctx, r.stage); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// watch looks at the tables five times a second, until it is told to stop. What
// the server does not answer, because of a fault, is not looked at.
func (r *one) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for sleep(ctx, 200*time.Millisecond) == nil {
			look, done := context.WithTimeout(ctx, time.Second)
			if s, err := check.Look(look, r.stage.Admin()); err == nil {
				r.samples = append(r.samples, s)
			}
			done()
		}
	}()
	return func() { cancel(); <-ended }
}

// drain waits until the queue is empty.
func (r *one) drain(ctx context.Context) (left int, err error) {
	for deadline := time.Now().Add(drainTime + 2*(r.Lease+r.Poll)); ; {
		err = r.stage.Admin().QueryRow(ctx, `SELECT count(*) FROM fencepost.jobs`).Scan(&left)
		if err != nil || left == 0 || time.Now().After(deadline) {
			return left, err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return left, err
		}
	}
}

// judge checks the record.
func (r *one) judge(ctx context.Context, result *report.Run) error {
	var in check.Input
	// All tables as of one moment.
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, r.stage.Admin(), options, func(tx pgx.Tx) (err error) {
		in, err = check.Load(ctx, tx, r.dir)
		return err
	})
	if err != nil {
		return err
	}
	if in.Lost, err = r.stage.Lost(ctx); err != nil {
		return err
	}
	if err := r.keep(in.Lines); err != nil {
		return err
	}
	if err := r.sameClocks(ctx); err != nil {
		return err
	}
	in.Samples, in.Offset, in.Begin = r.samples, r.offset, r.begin
	in.Limits = check.Limits{Lease: r.Lease, Poll: r.Poll, Slots: r.Slots, Wake: r.Wake}
	result.Findings = check.Check(in)
	result.Figures = report.Measure(report.Record{
		Events: in.Events, Lines: in.Lines, Offset: r.offset, Begin: r.begin, End: r.end,
		About: func(name string) string {
			f, _ := fault.Named(name)
			return f.About
		},
	})
	return nil
}

// keep writes the witness to where the histories are, for whoever wants to know
// more than the report says.
func (r *one) keep(lines []witness.Line) error {
	f, err := os.Create(filepath.Join(r.dir, history.Witness))
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	encoder := json.NewEncoder(out)
	for _, l := range lines {
		err = errors.Join(err, encoder.Encode(l))
	}
	return errors.Join(err, out.Flush(), f.Close())
}

func (r *one) logf(format string, args ...any) {
	if r.place.Log != nil {
		fmt.Fprintf(r.place.Log, format+"\n", args...)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
