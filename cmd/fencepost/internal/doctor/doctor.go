package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrUnreachable means that there was nothing to look at.
var ErrUnreachable = errors.New("the database cannot be reached")

// Verdict is what a check comes to.
type Verdict string

const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // it works, and somebody should look at it
	Fail Verdict = "fail" // jobs are held up, or may be
	Skip Verdict = "skip" // it cannot be told
)

// Finding is one line of the report.
type Finding struct {
	Check   string
	Verdict Verdict
	Message string         // what was seen
	Remedy  string         // what to do about it; empty if it is ok
	Figures map[string]any // what was seen, for programs
}

type figures = map[string]any

func ok(f figures, format string, args ...any) Finding {
	return Finding{Verdict: OK, Message: fmt.Sprintf(format, args...), Figures: f}
}

// but is a finding that is not ok; the remedy is the last word.
func but(v Verdict, f figures, message, remedy string) Finding {
	return Finding{Verdict: v, Message: message, Remedy: remedy, Figures: f}
}

// Patient says what to look at.
type Patient struct {
	Conn   *pgx.ConnConfig // the way of every statement
	Listen *pgx.ConnConfig // the way of the one that listens; nil: the same
	Schema string

	limits *limits // for tests; nil: the usual ones
}

// limits are the times and numbers that a test cannot wait for.
type limits struct {
	long, tooLong time.Duration // of a transaction
	deadRows      int64         // of a table
	slotAge       int64         // transactions that a slot in use may be behind
	ring          time.Duration // until a notification must have arrived
}

var usual = limits{
	long:     time.Minute,
	tooLong:  10 * time.Minute,
	deadRows: 100_000,
	slotAge:  1_000_000,
	ring:     2 * time.Second,
}

type check struct {
	name   string
	tables bool // it reads the tables of the queue
	run    func(context.Context, *exam) ([]Finding, error)
}

var checks = []check{
	{"version", false, version},
	{"writable", false, writable},
	{"settings", false, settings},
	{"connections", false, connections},
	{"schema", false, schema},
	{"rights", true, rights},
	{"objects", true, objects},
	{"indexes", true, indexes},
	{"bell", true, bell},
	{"bells", true, ringing},
	{"wake", false, wake},
	{"clock", false, clock},
	{"fences", true, fences},
	{"transactions", false, transactions},
	{"prepared", false, prepared},
	{"slots", false, slots},
	{"autovacuum", false, autovacuum},
	{"dead-rows", true, deadRows},
	{"notifications", false, notifications},
	{"workers", true, workers},
	{"queues", true, queues},
	{"leases", true, leases},
	{"attempts", true, attempts},
	{"dead-jobs", true, deadJobs},
}

// Examine reports what each check finds, as it is found. It returns an error
// that wraps ErrUnreachable, or migrations.ErrSchema; in the latter case
// everything that needs no tables has been looked at.
func Examine(ctx context.Context, p Patient, report func(Finding)) error {
	e := newExam(p)
	defer e.close()
	first, err := reachable(ctx, e)
	first.Check = "reachable"
	report(first)
	if err != nil {
		return err
	}
	for _, c := range checks {
		if c.tables && e.unfit != nil {
			continue
		}
		list := c.findings(ctx, e)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, f := range list {
			report(f)
		}
	}
	return e.unfit
}

// findings makes the check. It always finds something.
func (c check) findings(ctx context.Context, e *exam) []Finding {
	list, err := c.run(ctx, e)
	if err != nil {
		list = append(list, cannot(err))
	}
	for i := range list {
		list[i].Check = c.name
	}
	return list
}

// cannot is the finding of a check that could not be made.
func cannot(err error) Finding {
	var server *pgconn.PgError
	switch {
	case errors.As(err, &server) && server.Code == "42501":
		return but(Skip, nil, "cannot tell: missing right: "+server.Message,
			"ask as a role that has it; fencepost migrate grants shows what each role needs")
	case errors.As(err, &server) && server.Code == "57014":
		return but(Skip, nil, fmt.Sprintf("cannot tell: the server has not answered within %v", timeLimit),
			"see whether something holds a lock on the queue's tables, or the server is overloaded, and try again")
	default:
		return but(Fail, nil, "cannot tell: "+err.Error(), "see to the error and try again")
	}
}
