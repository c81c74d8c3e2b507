package crew

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// What a replay may be answered. Lost, gone and refused are right, whatever the
// verb; everything else is a write with an old fence that was accepted.
const (
	lost     = "lost"
	gone     = "gone"
	refused  = "refused"  // ErrLeaseLost
	accepted = "stored"   // of all verbs that have no result of their own
	extended = "extended" // of extend
	held     = "held"     // of check
)

var finishVerbs = []claim.Verb{
	claim.Done, claim.Retry, claim.Dead, claim.Cancelled, claim.Snooze, claim.Release, claim.Return,
}

// replay writes about claims that are over, in all ways. It goes on after an
// error unless the connection has broken, and returns the last one.
func (z *zombie) replay(ctx context.Context, stale []*memory) (err error) {
	if len(stale) == 0 {
		return nil
	}
	attempts := []func(context.Context, []*memory) error{z.extend, z.check}
	for _, verb := range finishVerbs {
		attempts = append(attempts, func(ctx context.Context, stale []*memory) error { return z.finish(ctx, verb, stale) })
	}
	for _, m := range stale {
		attempts = append(attempts,
			func(ctx context.Context, _ []*memory) error { return z.complete(ctx, m) },
			func(ctx context.Context, _ []*memory) error { return z.progress(ctx, m) },
			func(ctx context.Context, _ []*memory) error { return z.effect(ctx, m) })
	}
	z.rng.Shuffle(len(attempts), func(i, j int) { attempts[i], attempts[j] = attempts[j], attempts[i] })
	for _, attempt := range attempts {
		if e := attempt(ctx, stale); e != nil {
			err = e
		}
		if z.conn.IsClosed() {
			break
		}
	}
	return err
}

// attempt writes down one call about several claims, each as a call of its own.
// do returns the results in the order of the claims.
func (z *zombie) attempt(verb string, stale []*memory, do func() ([]string, error)) error {
	calls := make([]int64, len(stale))
	events := make([]history.Event, len(stale))
	for i, m := range stale {
		events[i] = about(history.Replay, m.id, m.fence)
		events[i].Verb, events[i].Token = verb, m.token
		calls[i] = z.Begin(events[i])
	}
	results, err := do()
	for i := range stale {
		if err == nil {
			events[i].Result = results[i]
		}
		events[i].Error = text(err)
		z.End(calls[i], answered(err), events[i])
	}
	return err
}

func leasesOf(stale []*memory) (leases []claim.Lease) {
	for _, m := range stale {
		leases = append(leases, m.lease())
	}
	return leases
}

func (z *zombie) finish(ctx context.Context, verb claim.Verb, stale []*memory) error {
	return z.attempt(string(verb), stale, func() (words []string, err error) {
		var outcomes []claim.Outcome
		for _, l := range leasesOf(stale) {
			o := claim.Outcome{Lease: l, Verb: verb}
			if verb != claim.Done {
				o.Error = "of a zombie"
			}
			outcomes = append(outcomes, o)
		}
		results, err := z.table.Finish(ctx, z.conn, outcomes)
		for _, r := range results {
			words = append(words, r.String())
		}
		return words, err
	})
}

func (z *zombie) extend(ctx context.Context, stale []*memory) error {
	return z.attempt("extend", stale, func() ([]string, error) {
		losses, err := z.table.Extend(ctx, z.conn, leasesOf(stale), 30*time.Second)
		return losing(stale, losses, extended), err
	})
}

func (z *zombie) check(ctx context.Context, stale []*memory) error {
	return z.attempt("check", stale, func() ([]string, error) {
		losses, err := z.table.Check(ctx, z.conn, leasesOf(stale))
		return losing(stale, losses, held), err
	})
}

// losing says for each claim that it is lost, or the word for one that is not.
func losing(stale []*memory, losses []claim.Loss, otherwise string) (words []string) {
	lostFor := make(map[claim.Lease]string)
	for _, l := range losses {
		lostFor[l.Lease] = lost // whether to an operator or to a reaper
		if l.Reason == claim.ReasonGone {
			lostFor[l.Lease] = gone
		}
	}
	for _, l := range leasesOf(stale) {
		word, ok := lostFor[l]
		if !ok {
			word = otherwise
		}
		words = append(words, word)
	}
	return words
}

// complete commits in any case: what was refused must leave nothing behind.
func (z *zombie) complete(ctx context.Context, m *memory) error {
	return z.attempt("complete", []*memory{m}, func() ([]string, error) {
		tx, err := z.conn.Begin(ctx)
		if err != nil {
			return nil, err
		}
		word, err := verdict(z.table.CompleteTx(ctx, tx, m.lease()))
		if err != nil {
			rollback(ctx, tx)
			return nil, err
		}
		return []string{word}, tx.Commit(ctx)
	})
}

func (z *zombie) progress(ctx context.Context, m *memory) error {
	return z.attempt("progress", []*memory{m}, func() ([]string, error) {
		word, err := verdict(z.table.Progress(ctx, z.conn, m.lease(), []byte(`{"token": "of a zombie"}`)))
		return []string{word}, err
	})
}

// effect writes to the business row, if somebody with a newer fence has. Before
// that nothing there could tell that this one is old.
func (z *zombie) effect(ctx context.Context, m *memory) error {
	if !m.overwritten {
		return nil
	}
	return z.attempt("effect", []*memory{m}, func() ([]string, error) {
		word, err := verdict(fencepost.Fenced(z.conn.Exec(ctx,
			`UPDATE shop.orders SET fence = $2 WHERE token = $1 AND fence < $2`, m.token, m.fence)))
		return []string{word}, err
	})
}

// verdict is the word for what has no result but an error.
func verdict(err error) (word string, _ error) {
	if errors.Is(err, fencepost.ErrLeaseLost) {
		return refused, nil
	}
	return accepted, err
}
