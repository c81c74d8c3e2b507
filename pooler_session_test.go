package fencepost_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// A worker behind a pooler with one server session, in the mode that pgx has by
// itself: with a way of its own for the listener a job starts at once; without
// one LISTEN is said once, not at the pace of broken connections, since the
// session is everybody's. Either way nothing is left with the session: no
// setting and no statement but the one that goes over the caller's pool before
// there is a connection of our own (B85, B87). Long: about 10 s.
func TestAPoolersSessionIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		t.Run(map[bool]string{false: "with a listener of its own", true: "deaf"}[deaf], func(t *testing.T) {
			t.Parallel()
			server := pgtest.Server(t, pg.Options{})
			if err := migrate(t.Context(), server.URL("postgres")); err != nil {
				t.Fatal(err)
			}
			pooled := pgtest.Pooler(t, server, "transaction", 1)("postgres")
			said := make(statements, 10_000)
			pool := traced(t, pooled, said)
			config, states := hearing(fencepost.Config{PollInterval: never})
			if !deaf {
				var err error
				if config.ListenConfig, err = pgx.ParseConfig(server.URL("postgres")); err != nil {
					t.Fatal(err)
				}
			}
			client := newClient(t, pool, config)
			ran := echo(client)
			work(t, client)
			await(t, states, !deaf)
			if deaf {
				// Several attempts at the pace of broken connections. That
				// nothing happens can only be waited for.
				time.Sleep(5 * time.Second)
				n := 0
				for range len(said) {
					if strings.HasPrefix(strings.ToLower((<-said).sql), "listen ") {
						n++
					}
				}
				if n != 2 {
					t.Errorf("LISTEN was said %d times, want 2: once for each channel", n)
				}
			} else {
				var slowest time.Duration
				for range 10 {
					begin := time.Now()
					enqueue(t, client, fencepost.NewJob{Kind: "echo"})
					receive(t, ran, "a job by its bell")
					slowest = max(slowest, time.Since(begin))
				}
				if slowest > time.Second { // a poll of a deaf worker
					t.Errorf("a job took %v", slowest)
				}
			}

			conn := pgtest.Conn(t, pooled+"&default_query_exec_mode=simple_protocol")
			var settings, statements string
			// What PgBouncer itself sets for each client is not ours.
			if err := conn.QueryRow(t.Context(), `SELECT
				(SELECT coalesce(string_agg(name, ', '), '') FROM pg_settings WHERE source = 'session' AND name NOT IN
					('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')),
				(SELECT coalesce(string_agg(left(statement, 60), ';'), '') FROM pg_prepared_statements WHERE statement NOT LIKE '%schema_migrations%')`,
			).Scan(&settings, &statements); err != nil {
				t.Fatal(err)
			}
			if settings != "" || statements != "" {
				t.Errorf("the session is left with settings %q and statements %q", settings, statements)
			}
		})
	}
}

// In a transaction of the caller's a statement that a pooler has lost is not
// sent again: the error says what to do. Outside of one it is, and from then on
// also the caller's transactions carry no names (B87).
func TestALostStatementInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	pooled := pgtest.Pooler(t, server, "transaction", 1)("postgres")
	// Another client leaves its statement with the one session.
	named := pooled + "&default_query_exec_mode=cache_statement"
	enqueue(t, newClient(t, pgtest.Pool(t, named), fencepost.Config{}), fencepost.NewJob{Kind: "k"})
	pool := pgtest.Pool(t, named)
	client := newClient(t, pool, fencepost.Config{})
	inTx := func() error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := client.In(tx).Enqueue(t.Context(), fencepost.NewJob{Kind: "k"})
			return err
		})
	}
	if err := inTx(); err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
		t.Errorf("in a transaction: %v", err)
	}
	enqueue(t, client, fencepost.NewJob{Kind: "k"})
	if err := inTx(); err != nil {
		t.Errorf("once the pooler was met: %v", err)
	}
	if n := count(t, super(t, server), "SELECT count(*) FROM fencepost.jobs"); n != 3 {
		t.Errorf("%d jobs, want 3", n)
	}
}
