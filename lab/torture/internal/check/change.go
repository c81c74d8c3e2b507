package check

import (
	"fmt"
	"strings"

	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// what a change was.
type what string

const (
	inserted  what = "inserted"
	claimed   what = "claimed"
	extended  what = "extended"
	noted     what = "noted" // progress, or nothing that counts
	failed    what = "failed"
	snoozed   what = "snoozed"
	returned  what = "returned"
	released  what = "released" // by its holder or by an operator
	reaped    what = "reaped"
	ended     what = "ended"     // under its own fence: by its holder
	buried    what = "buried"    // reaped in its last attempt
	cancelled what = "cancelled" // by an operator
	removed   what = "removed"   // without a trace: deleted, or done in a queue that keeps none
	retried   what = "retried"   // by an operator, after it had ended
	forgotten what = "forgotten" // deleted after it had ended
	odd       what = "odd"       // nothing that there is a way for
)

// change is what one transaction did to one job: most often one line of the
// witness, two if the job went from one table to the other.
type change struct {
	what
	line          witness.Line // the last
	before, after witness.State
	at            int64 // when, by the histories' clock; it was committed later
	by            int64 // by when it was surely committed; never earlier than at
	lost          bool  // it went with a former primary
	next          *change
}

// wayOut says that the change ended the claim of before.fence.
func (c *change) wayOut() bool {
	return c.before.Status == "running" && c.what != extended && c.what != noted
}

// taken says that the change took the job from its holder, without its doing
// and without an operator's.
func (c *change) taken() bool {
	switch c.what {
	case reaped, buried:
		return true
	case claimed:
		return c.before.Status == "running"
	}
	return false
}

// overAt says that the lease was over when the job was taken, by the database's
// clock alone.
func (c *change) overAt() bool { return !c.before.Lease.After(c.line.At) }

func classify(l witness.Line) what {
	b, a := l.Before, l.After
	switch l.Place + " " + l.Op {
	case "jobs INSERT":
		return inserted
	case "jobs DELETE":
		return removed
	case "finished DELETE":
		return forgotten
	case "finished INSERT":
		return ended
	case "finished UPDATE":
		return odd
	}
	switch {
	case a.Status == "running" && (b.Status == "ready" || a.Fence != b.Fence):
		return claimed
	case b.Status == "running" && a.Status == "running" && !a.Lease.Equal(b.Lease):
		return extended
	case a.Status == b.Status && a.Fence == b.Fence && a.Attempts == b.Attempts:
		return noted
	case isReap(l):
		return reaped // from ready, too: then it was none of the reaper's business
	case b.Status != "running" || a.Status != "ready":
		return odd
	case a.Snoozes == b.Snoozes+1:
		return snoozed
	case a.Attempts == b.Attempts-1:
		return returned
	case a.RunAt.Equal(b.RunAt):
		return released
	case a.Attempts >= b.Attempts:
		return failed
	}
	return odd
}

// Reaped says that the change took a job from a worker whose lease was over, or
// that had died, and made it ready for others.
func Reaped(l witness.Line) bool { return l.Before.Status == "running" && classify(l) == reaped }

// isReap tells by the text that a reaper leaves. It stays with the job, so that
// the rest of the line must fit it too.
func isReap(l witness.Line) bool {
	return l.After.Status == "ready" && !l.After.RunAt.Equal(l.Before.RunAt) &&
		(strings.HasPrefix(l.Error, "lease of worker ") || strings.HasPrefix(l.Error, "worker ")) &&
		strings.Contains(l.Error, fmt.Sprintf(" in attempt %d of ", l.Before.Attempts))
}

// join adds a line to the changes of its job. In one transaction a job may leave
// one table for the other.
func join(changes []*change, l witness.Line) []*change {
	if n := len(changes); n > 0 && changes[n-1].line.XID == l.XID && changes[n-1].line.Place != l.Place {
		c := changes[n-1]
		switch kind := classify(l); {
		case c.what == removed && kind == ended:
			c.after = l.After
		case c.what == ended && kind == removed:
			c.before = l.Before
		case c.what == inserted && kind == forgotten:
			c.what, c.before = retried, l.Before
			return changes
		case c.what == forgotten && kind == inserted:
			c.what, c.after, c.line = retried, l.After, l
			return changes
		default:
			return append(changes, fresh(l))
		}
		c.what = endOf(c.before, c.after)
		c.line.At, c.line.Error = l.At, l.Error
		return changes
	}
	return append(changes, fresh(l))
}

func fresh(l witness.Line) *change {
	return &change{what: classify(l), line: l, before: l.Before, after: l.After}
}

// endOf tells who has ended a job by the fence that it left.
func endOf(before, after witness.State) what {
	switch {
	case before.Status == "running" && after.Fence == before.Fence:
		return ended
	case after.Fence == before.Fence+1 && after.Status == "cancelled":
		return cancelled
	case before.Status == "running" && after.Fence == before.Fence+1 && after.Status == "dead":
		return buried
	}
	return odd
}
