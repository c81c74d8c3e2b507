// Package crew is those who take part in a run, each a process of its own:
// workers, producers, a zombie and an operator. What they do follows from the
// seed of their assignment, and they write a history of what they see.
//
// # Whose connection is it
//
// Connections that a process uses for its own work (handlers, orders, replays,
// an operator's verbs) have its Assignment.Name as application_name. Those that
// a client of the queue opens for itself keep the names that it gives them:
// "fencepost listener", "fencepost exchange", "fencepost keeper". A handler's
// pool is the client's pool, as with most users, so the name is set by its
// AfterConnect on connections that come without one; see connect. All
// connections of one process are found by the way that they take: each worker
// has a proxy of its own.
package crew

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost-go/fencepost/internal/torture"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// Run does what the assignment says until ctx is done, and writes the history
// of it. It returns nil after a clean stop. One call in a process for each name.
//
// exit ends the process at once, as os.Exit does: some jobs do that to theirs.
// It must not return.
func Run(ctx context.Context, a script.Assignment, exit func(code int)) (err error) {
	roles := map[script.Role]func(context.Context, member) error{
		script.Worker:   func(ctx context.Context, m member) error { return work(ctx, m, exit) },
		script.Producer: produce,
		script.Zombie:   haunt,
		script.Operator: operate,
	}
	role, ok := roles[a.Role]
	if !ok {
		return fmt.Errorf("there is no role %q", a.Role)
	}
	if a.Break != "" && !torture.On {
		return fmt.Errorf("cannot do without the guard %q: built without the tag torture", a.Break)
	}
	if a.Break != "" && !slices.Contains(torture.Guards, torture.Guard(a.Break)) {
		return fmt.Errorf("there is no guard %q", a.Break)
	}
	w, err := history.Create(a.Dir, a.Name)
	if err != nil {
		return fmt.Errorf("begin a history: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	w.Write(history.Event{Op: history.Hello, Note: string(a.Role)})
	doWithout(torture.Guard(a.Break))
	if err = role(ctx, member{a, w}); err != nil {
		err = fmt.Errorf("%s: %w", a.Name, err)
	}
	w.Write(history.Event{Op: history.Bye, Error: text(err)})
	return err
}

// member is one who takes part.
type member struct {
	script.Assignment
	*history.Writer
}

// text is what an event says of an error.
func text(err error) string {
	if err == nil {
		return ""
	}
	const most = 300
	s := fmt.Sprint(err)
	return s[:min(len(s), most)]
}
