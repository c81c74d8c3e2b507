package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "lone", About: "from the end of a lone job's handler until everybody can see that it is done", Quick: true,
		Peers: []string{"floor"},
		Run:   loneSuite,
	})
}

// How long a lone job runs, and how far apart two of them are on average.
const loneJob, loneGap = 5 * time.Millisecond, 100 * time.Millisecond

// lone is a couple whose tables are looked at all the time.
type lone struct {
	*couple
	ledger *ledger
	seen   []int64 // when each job was seen to be done, by number
}

func loneSuite(ctx context.Context, b *Bench) error {
	const turns = 4
	n := b.Size(200) / turns
	groups := [][]entrant{b.wakers()}
	for _, e := range b.others() {
		groups = append(groups, []entrant{e})
	}
	r := make(latencies)
	for round := range b.Rounds {
		for _, group := range groups {
			if err := b.probe(ctx, "lone", round); err != nil {
				return err
			}
			if err := b.loneRound(ctx, group, round, turns, n, r); err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
		}
	}
	b.reportMeasured(figures.AtMost("lone_done", r.ratios(ownRow, wakeFloorRow, 50), 2, "×", "the same change by hand, in one commit of its own",
		fmt.Sprintf("median from the end of the handler until a look at the tables finds the job done, one look after the other: %d jobs of %v at 10/s, done jobs kept; every commit durable", n*turns, loneJob)))
	return nil
}

func (b *Bench) loneRound(ctx context.Context, group []entrant, round, turns, n int, r latencies) (err error) {
	var all []*lone
	defer func() {
		for _, q := range all {
			if q.ledger != nil {
				err = errors.Join(err, q.ledger.close())
			}
			err = errors.Join(err, q.close())
		}
	}()
	for _, e := range group {
		c, err := b.couple(ctx, e, 1, wire.Work{Sleep: loneJob})
		if err != nil {
			return err
		}
		q := &lone{couple: c}
		all = append(all, q)
		if err := q.ready(ctx); err != nil {
			return err
		}
		q.seen = make([]int64, q.warm)
		if q.ledger, err = openLedger(ctx, e.peer, c.dsn); err != nil {
			return err
		}
	}
	if err := b.Host.Settle(ctx); err != nil {
		return err
	}
	for i := range turns {
		random := rand.New(rand.NewPCG(uint64(round), uint64(i))) // the same for all
		gaps := make([]time.Duration, n)
		for k := range gaps {
			gaps[k] = loneGap/2 + time.Duration(random.Int64N(int64(loneGap)))
		}
		for _, q := range turn(all, round+i) {
			if err := q.jobs(ctx, gaps); err != nil {
				return err
			}
		}
	}
	for _, q := range all {
		if err := q.stop(ctx); err != nil {
			return err
		}
		l := newLatency()
		for k := q.warm; k < len(q.seen); k++ {
			end := q.worked[0].Ends[k]
			if end == 0 {
				return fmt.Errorf("%s: job %d is gone and has not run", q.name, k)
			}
			if err := l.add(q.seen[k] - end); err != nil {
				return err
			}
		}
		b.recordLatency("lone", q.entrant, q.settings(), round, l)
		r[q.name] = append(r[q.name], l)
	}
	return nil
}

// jobs enqueues one job after each pause and looks until it is done.
func (q *lone) jobs(ctx context.Context, gaps []time.Duration) error {
	for _, gap := range gaps {
		end := wire.Now() + int64(gap)
		if err := q.enqueue(ctx, wire.Produce{N: 1, Clients: 1}); err != nil {
			return err
		}
		at, left, err := q.ledger.watched(ctx, wire.Now()+int64(patience))
		if err != nil {
			return err
		}
		if left > 0 {
			return fmt.Errorf("%s: a lone job was not done after %v", q.name, patience)
		}
		q.seen = append(q.seen, at)
		until(end)
	}
	return nil
}
