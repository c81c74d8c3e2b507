package fencepost_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
)

// ender ends a context after some INSERTs: between BEGIN and COMMIT.
type ender struct {
	after atomic.Int32
	end   atomic.Pointer[context.CancelFunc]
}

type enderKey struct{}

func (*ender) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, enderKey{}, d.SQL)
}

func (e *ender) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(enderKey{}).(string); strings.Contains(sql, "INSERT INTO") && e.after.Add(-1) == 0 {
		(*e.end.Load())()
	}
}

// A context that ends in the middle of a transaction of ours rolls it back and
// costs no connection: not after its first statement, and not before its commit
// (B90). The batches that go one by one behind a pooler are such transactions.
func TestEndedContextsRollBack(t *testing.T) {
	t.Parallel()
	many := slices.Repeat([]fencepost.NewJob{{Kind: "k"}}, 1001) // two statements
	for name, test := range map[string]struct {
		inserts int
		call    func(context.Context, *fencepost.Client) error
	}{
		"enqueue": {2, func(ctx context.Context, c *fencepost.Client) error { return second(c.Enqueue(ctx, many...)) }},
		"pause":   {1, func(ctx context.Context, c *fencepost.Client) error { return c.Pause(ctx, "q") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, watch := database(t)
			tracer := new(ender)
			pool := traced(t, dsn+"&pool_max_conns=3&default_query_exec_mode=cache_statement", tracer)
			client := newClient(t, pool, fencepost.Config{})
			loseNames(t, pool, client)
			for round := range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				tracer.end.Store(&cancel)
				tracer.after.Store(int32(1 + round%test.inserts))
				if err := test.call(ctx, client); !errors.Is(err, context.Canceled) {
					t.Errorf("%v, want that the context has ended", err)
				}
			}
			if s := pool.Stat(); s.AcquiredConns() != 0 || s.NewConnsCount() != 1 {
				t.Errorf("%d connections are in use, %d were made, want 0 and 1", s.AcquiredConns(), s.NewConnsCount())
			}
			if n := count(t, watch, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"); n != 0 {
				t.Errorf("%d transactions are open", n)
			}
			if n := count(t, watch, "SELECT (SELECT count(*) FROM fencepost.jobs) + (SELECT count(*) FROM fencepost.queues)"); n != 0 {
				t.Errorf("%d rows are stored", n)
			}
		})
	}
}

// loseNames lets a client meet what it would meet behind a pooler.
func loseNames(t *testing.T, pool *pgxpool.Pool, client *fencepost.Client) {
	t.Helper()
	for range 2 {
		if _, err := client.Queues(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), "DEALLOCATE ALL", pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
}
