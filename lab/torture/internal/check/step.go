package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// at is a time as people read it: since the load began.
func (ix *index) at(t int64) time.Duration { return time.Duration(t - ix.began) }

// event is an event as a step of a counterexample. Of several jobs only the one
// that it is about is named: by its id, and by its fence if that is given.
func (ix *index) event(e *history.Event, about ...int64) Step {
	var b strings.Builder
	b.WriteString(string(e.Op))
	if e.Phase != "" {
		fmt.Fprintf(&b, " %s", e.Phase)
	}
	ref := e.Ref
	for _, r := range e.Refs {
		if len(about) > 0 && r.Job == about[0] && (len(about) == 1 || r.Fence == about[1]) {
			verb := ref.Verb
			ref = r
			if ref.Verb == "" {
				ref.Verb = verb
			}
		}
	}
	word := func(name string, value any) {
		if s := fmt.Sprint(value); s != "" && s != "0" {
			fmt.Fprintf(&b, " %s=%s", name, s)
		}
	}
	word("job", ref.Job)
	word("fence", ref.Fence)
	word("attempt", ref.Attempt)
	word("token", ref.Token)
	word("verb", ref.Verb)
	if ref.Delay != 0 {
		word("delay", time.Duration(ref.Delay).Round(time.Millisecond))
	}
	word("result", ref.Result)
	word("queue", ref.Queue)
	word("asked", e.Asked)
	word("target", e.Target)
	word("note", e.Note)
	word("error", e.Error)
	return Step{ix.at(e.At), e.Proc, b.String()}
}

// change is a change as a step of a counterexample.
func (ix *index) change(c *change) Step {
	var b strings.Builder
	fmt.Fprintf(&b, "%s job=%d", c.what, c.line.ID)
	state := func(s witness.State) {
		switch {
		case s.Status == "":
			b.WriteString(" absent")
			return
		default:
			fmt.Fprintf(&b, " %s fence=%d attempts=%d", s.Status, s.Fence, s.Attempts)
		}
		if s.Worker != "" {
			fmt.Fprintf(&b, " worker=%s", s.Worker)
		}
		if !s.Lease.IsZero() {
			fmt.Fprintf(&b, " lease until %.3f s", ix.at(s.Lease.UnixNano()-ix.Offset).Seconds())
		}
	}
	b.WriteString(":")
	state(c.before)
	b.WriteString(" →")
	state(c.after)
	if c.after.Status == "ready" && c.after.RunAt.UnixNano()-ix.Offset > c.at {
		fmt.Fprintf(&b, " due at %.3f s", ix.at(c.after.RunAt.UnixNano()-ix.Offset).Seconds())
	}
	who := "witness"
	if c.lost {
		who = "witness (lost)"
	}
	return Step{ix.at(c.at), who, b.String()}
}

// call is a call, with its return, as steps.
func (ix *index) call(c *call, about ...int64) []Step {
	steps := []Step{ix.event(c.Event, about...)}
	if c.ret != nil {
		steps = append(steps, ix.event(c.ret, about...))
	}
	return steps
}

// steps puts steps together.
func steps(parts ...any) (all []Step) {
	for _, p := range parts {
		switch p := p.(type) {
		case Step:
			all = append(all, p)
		case []Step:
			all = append(all, p...)
		}
	}
	return all
}

// row is what a table says at the end, as a step.
func (ix *index) row(format string, args ...any) Step {
	return Step{ix.at(ix.last), "final tables", fmt.Sprintf(format, args...)}
}
