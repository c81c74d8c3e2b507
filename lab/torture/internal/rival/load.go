package rival

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// load is the producer: 25 jobs a second, each in a transaction beside its
// business row. Every fifth one takes 2 to 4 s, the others up to 20 ms, so that
// of the 40 slots about 15 are busy.
type load struct {
	pool    *pgxpool.Pool
	enqueue func(context.Context, pgx.Tx, script.Order) error
	random  *rand.Rand

	mu    sync.Mutex
	acked []string
}

const pace = 40 * time.Millisecond

// run enqueues until ctx ends. What fails is not acknowledged, and not tried
// again.
func (l *load) run(ctx context.Context) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		o := script.Order{Token: fmt.Sprint("order ", i), Millis: 1 + l.random.IntN(20)}
		if i%5 == 0 {
			half := int(longest/time.Millisecond) / 2
			o.Millis = half + l.random.IntN(half)
		}
		if l.order(ctx, o) == nil {
			l.mu.Lock()
			l.acked = append(l.acked, o.Token)
			l.mu.Unlock()
		}
	}
}

func (l *load) order(ctx context.Context, o script.Order) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO shop.orders (token, via) VALUES ($1, 'rival')`, o.Token); err != nil {
			return err
		}
		return l.enqueue(ctx, tx, o)
	})
}

func (l *load) acknowledged() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.acked...)
}
