package crew

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

const (
	operateEvery = 500 * time.Millisecond
	mostIDs      = 2 // in one call
	pauseEvery   = 20 * time.Second
	mostPaused   = time.Second
)

// operator is a process in which somebody interferes, now and then.
type operator struct {
	member
	pool   *pgxpool.Pool
	client *fencepost.Client
	rng    *rand.Rand
}

// operatorVerb is what an operator does, and to which jobs.
type operatorVerb struct {
	do     func(*fencepost.Client, context.Context, ...int64) ([]fencepost.Did, error)
	choose string
}

// Ended jobs are many: some that come after a place in the index taken at
// random.
const (
	ended = `SELECT f.id FROM fencepost.finished AS f
    WHERE f.id >= (SELECT min(id) + (random() * (max(id) - min(id)))::bigint FROM fencepost.finished) ORDER BY f.id LIMIT $1`
	live    = `SELECT j.id FROM fencepost.jobs AS j ORDER BY random() LIMIT $1`
	running = `SELECT j.id FROM fencepost.jobs AS j WHERE j.status = 'running' ORDER BY random() LIMIT $1`
)

var (
	operatorVerbs = map[string]operatorVerb{
		"retry":   {(*fencepost.Client).Retry, ended},
		"cancel":  {(*fencepost.Client).Cancel, `(` + running + `) UNION ALL (` + live + `)`},
		"release": {(*fencepost.Client).Release, running},
		"delete":  {(*fencepost.Client).Delete, `(` + ended + `) UNION ALL (` + live + `)`},
	}
	operatorShares = script.Mix{"retry": 0.45, "cancel": 0.20, "release": 0.25, "delete": 0.10}
)

func operate(ctx context.Context, m member) error {
	pool, err := connect(m)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := fencepost.New(pool, fencepost.Config{})
	if err != nil {
		return err
	}
	o := &operator{member: m, pool: pool, client: client, rng: rand.New(rand.NewPCG(m.Seed, m.Seed))}
	// An operator before this one may have gone in the middle of a pause.
	if err := o.resume(ctx); err != nil {
		return err
	}
	pause := o.within(pauseEvery)
	for rest(ctx, operateEvery) == nil {
		verb := pick(o.rng, operatorShares)
		most := 1 + o.rng.IntN(mostIDs)
		ids, err := o.choose(ctx, operatorVerbs[verb].choose, most)
		if err == nil && len(ids) > 0 {
			o.operate(ctx, verb, ids)
		}
		if pause -= operateEvery; pause <= 0 {
			pause = o.within(pauseEvery)
			if err := o.pause(ctx, o.within(mostPaused)); err != nil {
				return err
			}
		}
	}
	return nil
}

// within returns a time of up to the given one.
func (o *operator) within(most time.Duration) time.Duration {
	return time.Duration(o.rng.Int64N(int64(most)))
}

func (o *operator) choose(ctx context.Context, query string, most int) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := o.pool.Query(ctx, query, unnamed, most)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// operate is not broken off by a stop.
func (o *operator) operate(ctx context.Context, verb string, ids []int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	call := history.Event{Op: history.Operate}
	call.Verb = verb
	for _, id := range ids {
		call.Refs = append(call.Refs, history.Ref{Job: id})
	}
	n := o.Begin(call)
	did, err := operatorVerbs[verb].do(o.client, ctx, ids...)
	phase := answered(err)
	call.Refs, call.Error = nil, text(err)
	for _, d := range did {
		if r, certain := resultOf(d, err); certain {
			call.Refs = append(call.Refs, history.Ref{Job: d.ID, Result: r})
		}
	}
	// Next to an error there may be answers.
	if err != nil && len(did) > 0 {
		phase = history.Unknown
	}
	o.End(n, phase, call)
}

// resultOf is the word for what was done. Next to an error what was busy may
// have been done after all: it was asked for again.
func resultOf(d fencepost.Did, err error) (word string, certain bool) {
	switch {
	case d.Done:
		return "done", true
	case d.Busy:
		return "busy", err == nil
	case d.Refused != nil:
		return "refused", true
	}
	return "left", true
}

// pause stops a queue for a moment. It returns when the queue goes on.
func (o *operator) pause(ctx context.Context, d time.Duration) error {
	_ = o.queue(context.WithoutCancel(ctx), "pause", o.client.Pause) // if nobody knows, it may be paused
	_ = rest(ctx, d)
	return o.resume(ctx)
}

// resume has the queue go on, however long that takes. Even at the end of the
// process it is tried for a while: nobody else would.
func (o *operator) resume(ctx context.Context) error {
	var end time.Time
	for {
		err := o.queue(context.WithoutCancel(ctx), "resume", o.client.Resume)
		if err == nil {
			return nil
		}
		switch now := time.Now(); {
		case ctx.Err() != nil && end.IsZero():
			end = now.Add(3 * patience)
		case ctx.Err() != nil && now.After(end):
			return fmt.Errorf("resume queue %s: %w", script.Side, err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func (o *operator) queue(ctx context.Context, verb string, do func(context.Context, string) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	call := history.Event{Op: history.Operate}
	call.Verb, call.Queue = verb, script.Side
	n := o.Begin(call)
	err := do(ctx, script.Side)
	call.Error = text(err)
	o.End(n, answered(err), call)
	return err
}
