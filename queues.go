package fencepost

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// maxKeep is what the table allows.
const maxKeep = 100 * 365 * 24 * time.Hour

// QueueInfo is a queue as an operator sees it.
type QueueInfo = claim.QueueInfo

// Bell says when an INSERT of jobs, by Enqueue or by hand, wakes the processes
// that work the queue.
type Bell = claim.Bell

const (
	// BellAuto, the default, rings for each INSERT, unless a process has promised
	// to look into the queue every few milliseconds, as one does that hears more
	// than about 100 bells a second and has a slot free.
	BellAuto = claim.BellAuto
	// BellAlways rings for each INSERT. Each costs its commit a lock of the whole
	// server, so many producers at once hold each other up.
	BellAlways = claim.BellAlways
	// BellNever never rings. Jobs wait for the PollInterval of a process, unless
	// the queue is so full that claims follow each other. Jobs that are retried,
	// released or resumed ring all the same: workers do that.
	BellNever = claim.BellNever
)

// Queues returns every queue that has a setting, a live job or a registered
// worker, by name. It counts all live jobs.
func (c *Client) Queues(ctx context.Context) ([]QueueInfo, error) {
	return fromPool(ctx, c, func(db poolDB) ([]QueueInfo, error) { return c.table.Queues(ctx, db) })
}

// Pause lets no process claim from a queue until Resume, also not after a
// restart; the queue need not exist yet. Once Pause has returned no claim that
// begins takes a job of it. Jobs that run go on; those that fail wait for the
// end of the pause. Jobs may be enqueued all the while. Pausing twice changes
// nothing.
//
// Programs of version 1 know no pause.
func (c *Client) Pause(ctx context.Context, queue string) error {
	if err := checkName(queue); err != nil {
		return fmt.Errorf("pause queue %q: %w: name %w", queue, ErrInvalid, err)
	}
	return c.onPool(ctx, func(db poolDB) error { return c.table.Pause(ctx, db, queue) })
}

// Resume ends the pause of a queue, if there is one: what is due starts at
// once where notifications are heard, elsewhere within one poll interval.
func (c *Client) Resume(ctx context.Context, queue string) error {
	if err := checkName(queue); err != nil {
		return fmt.Errorf("resume queue %q: %w: name %w", queue, ErrInvalid, err)
	}
	return c.onPool(ctx, func(db poolDB) error { return c.table.Resume(ctx, db, queue) })
}

// SetKeep sets, for all processes, how long done jobs of a queue stay to be
// looked at: 24 h unless set, at most 100 years. With 0 they are deleted in the
// statement that ends them. It applies to jobs that end from now on; dead ones
// stay 30 days, cancelled ones 24 h.
func (c *Client) SetKeep(ctx context.Context, queue string, keep time.Duration) error {
	if err := checkName(queue); err != nil {
		return fmt.Errorf("set keep of queue %q: %w: name %w", queue, ErrInvalid, err)
	}
	if keep < 0 || keep > maxKeep {
		return fmt.Errorf("set keep of queue %q: %w: %v: must be between 0 and 100 years", queue, ErrInvalid, keep)
	}
	return c.onPool(ctx, func(db poolDB) error { return c.table.SetKeep(ctx, db, queue, keep) })
}

// SetBell sets, for all producers, when an INSERT into a queue wakes those who
// work it: BellAuto unless set. It applies to transactions that begin from now
// on. It rings once. The queue need not exist yet.
func (c *Client) SetBell(ctx context.Context, queue string, bell Bell) error {
	if err := checkName(queue); err != nil {
		return fmt.Errorf("set bell of queue %q: %w: name %w", queue, ErrInvalid, err)
	}
	switch bell {
	case BellAuto, BellAlways, BellNever:
	default:
		return fmt.Errorf("set bell of queue %q: %w: %q: must be auto, always or never", queue, ErrInvalid, bell)
	}
	return c.onPool(ctx, func(db poolDB) error { return c.table.SetBell(ctx, db, queue, bell) })
}
