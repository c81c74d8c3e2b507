package crew

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// order is one job to be enqueued, and the business row beside it.
type order struct {
	script.Order
	kind, queue string
	priority    int
	delay       time.Duration
	max         int // 0: the default
}

func (o order) payload() string {
	raw, err := json.Marshal(o.Order)
	if err != nil {
		panic(err) // text and numbers
	}
	return string(raw)
}

func (o order) attempts() int {
	if o.max == 0 {
		return 20
	}
	return o.max
}

func refsOf(orders []order) []history.Ref {
	var refs []history.Ref
	for _, o := range orders {
		refs = append(refs, history.Ref{Token: o.Token, Kind: o.kind, Queue: o.queue, Delay: int64(o.delay), Most: o.attempts(), Payload: o.Sum()})
	}
	return refs
}

// identify adds the ids, if they are known, in the order of the orders.
func identify(refs []history.Ref, ids []int64) {
	for i := range ids {
		refs[i].Job = ids[i]
	}
}

func newJobs(orders []order) []fencepost.NewJob {
	var jobs []fencepost.NewJob
	for _, o := range orders {
		jobs = append(jobs, fencepost.NewJob{
			Kind: o.kind, Payload: o.Order, Queue: o.queue,
			Priority: o.priority, Delay: o.delay, MaxAttempts: o.max,
		})
	}
	return jobs
}

func tokens(orders []order) []string {
	var tokens []string
	for _, o := range orders {
		tokens = append(tokens, o.Token)
	}
	return tokens
}

const sqlRows = `INSERT INTO shop.orders (token, via) SELECT t.token, $2 FROM unnest($1::text[]) AS t (token)`

func insertRows(ctx context.Context, tx pgx.Tx, orders []order, via string) error {
	if _, err := tx.Exec(ctx, sqlRows, unnamed, tokens(orders), via); err != nil {
		return fmt.Errorf("business rows: %w", err)
	}
	return nil
}
