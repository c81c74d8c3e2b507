package claim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost/claim"
)

// walk is what several connections do at random to the jobs of one table. Its
// leases are short, and all of one length, as those of one program are.
type walk struct {
	*bench
	mu   sync.Mutex
	held []claim.Row
}

const walkLease = 40 * time.Millisecond

// draw takes up to n claims at random, to be used or put back.
func (w *walk) draw(n int) []claim.Row {
	w.mu.Lock()
	defer w.mu.Unlock()
	rand.Shuffle(len(w.held), func(i, j int) { w.held[i], w.held[j] = w.held[j], w.held[i] })
	n = min(n, len(w.held))
	drawn := append([]claim.Row(nil), w.held[:n]...)
	w.held = w.held[n:]
	return drawn
}

func (w *walk) put(rows []claim.Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = append(w.held, rows...)
	if len(w.held) > 300 { // what is forgotten comes back when its lease is over
		w.held = w.held[len(w.held)-300:]
	}
}

// outcomes ends claims at random, some of which are over, and says at random
// which claim that closes.
func outcomes(rows []claim.Row) []claim.Outcome {
	all := make([]claim.Outcome, len(rows))
	for i, row := range rows {
		all[i] = claim.Outcome{Lease: row.Lease(), Verb: verbs[rand.IntN(len(verbs))]}
		if rand.IntN(2) == 0 {
			all[i].Closes = rows[rand.IntN(len(rows))].Claim
		}
	}
	return all
}

// step does one thing.
func (w *walk) step(ctx context.Context, conn *pgx.Conn, worker string) error {
	request := claim.Request{Queue: queue, Limit: 1 + rand.IntN(20)}
	switch rand.IntN(12) {
	case 0, 1, 2:
		c, err := w.Claim(ctx, conn, request, walkLease, worker)
		w.put(c.Rows)
		return err
	case 3, 4:
		_, err := w.Finish(ctx, conn, outcomes(w.draw(10)))
		return err
	case 5:
		_, claimed, err := w.Exchange(ctx, conn, outcomes(w.draw(10)), []claim.Request{request}, walkLease, worker)
		if err == nil {
			w.put(claimed[0].Rows)
		}
		return err
	case 6:
		rows := w.draw(30)
		defer w.put(rows)
		leases := make([]claim.Lease, len(rows))
		for i, row := range rows {
			leases[i] = row.Lease()
		}
		_, err := w.Extend(ctx, conn, leases, walkLease)
		return err
	case 7:
		return w.undo(ctx, conn, request, worker)
	case 8:
		var ids []int64
		for _, row := range w.draw(2) {
			ids = append(ids, row.ID)
		}
		_, err := w.Release(ctx, conn, ids)
		return err
	case 9:
		found, _, err := w.Adopt(ctx, conn, 0)
		if found {
			err = errors.New("a running job that no claim names was found")
		}
		return err
	default:
		_, err := w.Tick(ctx, conn, claim.TickRequest{Queues: []string{queue}, Reap: true, Own: "own", Token: "token"})
		return err
	}
}

// undo does all sorts of things in a transaction that is not to be.
func (w *walk) undo(ctx context.Context, conn *pgx.Conn, request claim.Request, worker string) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	rows := w.draw(5)
	defer w.put(rows)
	if _, err := w.Claim(ctx, tx, request, walkLease, worker); err != nil {
		return err
	}
	if _, err := w.Finish(ctx, tx, outcomes(rows)); err != nil {
		return err
	}
	_, err = w.Tick(ctx, tx, claim.TickRequest{Queues: []string{queue}, Reap: true, Own: "own", Token: "token"})
	return err
}

// Whatever goes on at the same time, at each moment every running job is named
// by a claim that is looked into in time; so in the end ticks alone bring all of
// them back, and no claim is left.
func TestEveryRunningJobIsNamedByAClaim(t *testing.T) {
	t.Parallel()
	const walkers, steps, jobs = 6, 250, 200
	healthy := setUp(t)
	for name, test := range map[string]struct {
		template string
		edits    []string
	}{
		"as it is":     {claim.SQLClaim, nil},
		"half written": {claim.SQLClaim, []string{"$5::text, h.ids\n", "$5::text, h.ids[2:]\n"}},
		"closed early": {claim.SQLClose, []string{"AND j.status = 'running' LIMIT", "AND j.status = 'running' AND random() < 0.5 LIMIT"}},
		"forgotten":    {claim.SQLByLeases, []string{"AND j.status = 'running'\n    ) AS r", "AND j.status = 'running' AND j.lease_until < clock_timestamp()\n    ) AS r"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, test.template, test.edits...))
			b.exec("INSERT INTO {{schema}}.queues (name, keep) VALUES ('default', '0')")
			b.exec("INSERT INTO {{schema}}.jobs (kind, max_attempts) SELECT 'test', 1000000 FROM generate_series(1, $1::int)", jobs)
			w := &walk{bench: b}
			group, ctx := errgroup.WithContext(b.ctx)
			for n := range walkers {
				conn := b.connect()
				group.Go(func() error {
					defer conn.Close(ctx)
					for range steps {
						if err := w.step(ctx, conn, fmt.Sprint("worker ", n)); err != nil {
							return err
						}
					}
					return nil
				})
			}
			done := make(chan error)
			go func() { done <- group.Wait() }()
			unnamed, err := int64(0), error(nil)
			for running := true; running; {
				select {
				case err = <-done:
					running = false
				default:
				}
				b.makeDue()
				b.exec("INSERT INTO {{schema}}.jobs (kind, max_attempts) SELECT 'test', 1000000 FROM generate_series(1, $1::int - (SELECT count(*) FROM {{schema}}.jobs))", jobs)
				unnamed = max(unnamed, ask[int64](b, sqlUnnamed))
			}
			if holds := unnamed == 0 && err == nil; holds != (test.edits == nil) {
				t.Errorf("%d running jobs were named by no claim; %v", unnamed, err)
			}
			if test.edits != nil {
				return
			}
			for ask[bool](b, "SELECT EXISTS (SELECT FROM {{schema}}.claims) OR EXISTS (SELECT FROM {{schema}}.jobs WHERE status = 'running')") {
				b.tick()
			}
		})
	}
}
