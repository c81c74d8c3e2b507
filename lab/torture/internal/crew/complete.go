package crew

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

var errAsPlanned = errors.New("rolled back as planned")

// inTx is the handler of all kinds that complete in a transaction of their own,
// together with an effect, and for a parent with its children.
func inTx(ctx context.Context, w *worker, j *job) ending {
	if j.Kind != script.SlowTx { // which takes its time in the transaction
		if end := takeTime(ctx, w, j); end.err != nil {
			return end
		}
	}
	begin, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tx, err := w.pool.Begin(begin)
	if err != nil {
		return failed(j, fmt.Errorf("begin: %w", err))
	}
	children := w.childrenOf(j)
	complete := history.Event{Op: history.Complete, Ref: ref(j)}
	enqueue := history.Event{Op: history.Enqueue, Refs: refsOf(children), Via: "parent"}
	n, m := w.Begin(complete), int64(0)
	if len(children) > 0 {
		m = w.Begin(enqueue)
	}

	phase, err := w.complete(ctx, tx, j, children, enqueue.Refs)

	complete.Error, enqueue.Error = text(err), text(err)
	if errors.Is(err, errAsPlanned) {
		complete.Note = "rolled back"
	}
	w.End(n, phase, complete)
	if len(children) > 0 {
		if phase == history.Refusal {
			phase = history.Failed
		}
		w.End(m, phase, enqueue)
	}
	if err != nil {
		return failed(j, err)
	}
	return done
}

// complete does it all, up to the end of the transaction, and says what is
// known of it then. What ends before the commit is sent has changed nothing.
func (w *worker) complete(ctx context.Context, tx pgx.Tx, j *job, children []order, refs []history.Ref) (history.Phase, error) {
	err := w.fill(ctx, tx, j, children, refs)
	if errors.Is(err, fencepost.ErrLeaseLost) {
		rollback(ctx, tx)
		return history.Refusal, err
	}
	if err == nil && j.Kind == script.SlowTx {
		err = rest(ctx, millis(j.Payload.Millis))
	}
	if err == nil && j.Kind == script.Rollback && j.Attempt == 1 {
		err = errAsPlanned
	}
	if err != nil {
		rollback(ctx, tx)
		return history.Failed, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := tx.Commit(ctx); err != nil {
		return committed(err), fmt.Errorf("commit: %w", err)
	}
	return history.OK, nil
}

// fill is what is in the transaction. It adds the ids of the children to refs.
func (w *worker) fill(ctx context.Context, tx pgx.Tx, j *job, children []order, refs []history.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := j.CompleteTx(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO shop.effects (token, job, fence) VALUES ($1, $2, $3)`,
		unnamed, j.Payload.Token, j.ID, j.Fence)
	if err != nil {
		return fmt.Errorf("effect: %w", err)
	}
	if len(children) == 0 {
		return nil
	}
	if err := insertRows(ctx, tx, children, "parent"); err != nil {
		return err
	}
	ids, err := w.client.In(tx).Enqueue(ctx, newJobs(children)...)
	identify(refs, ids)
	return err
}

// childrenOf returns the jobs that a parent enqueues. Their tokens have its
// fence in them: a parent that an operator brings back has others.
func (w *worker) childrenOf(j *job) []order {
	if j.Kind != script.Parent {
		return nil
	}
	var children []order
	for i := range j.Payload.Times {
		token := fmt.Sprintf("%s/%d.%d", j.Payload.Token, j.Fence, i)
		children = append(children, order{
			Order: script.Order{Token: token, Millis: i},
			kind:  script.Short, queue: j.Queue, priority: j.Priority,
		})
	}
	return children
}

// rollback has a time of its own: the context may be why we are here.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) // what was not committed is gone, whatever it says
}
