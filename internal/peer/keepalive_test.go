package peer_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/peer"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// A connection of ours over TCP has keepalives once it has greeted; one whose
// server session is not ours alone has none, in any mode.
func TestKeepAlives(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{TCP: true})
	const ask = `SELECT concat_ws(' ', current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_interval'),
		current_setting('tcp_keepalives_count'), current_setting('tcp_user_timeout'))`
	// settings are those of a connection that has greeted. sent says whether
	// they were asked for: over the Unix socket between a pooler and the server
	// they would not show.
	settings := func(dsn string) (got string, sent bool) {
		t.Helper()
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		statements := new(tracer)
		config.Tracer = statements
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if _, err := peer.Greet(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(t.Context(), ask, pgx.QueryExecModeExec).Scan(&got); err != nil {
			t.Fatal(err)
		}
		return got, strings.Contains(strings.Join(*statements, " "), "set_config")
	}
	if got, sent := settings(server.TCPURL("postgres")); got != "10 5 3 25000" || !sent {
		t.Errorf("over TCP: %s, asked for: %v", got, sent)
	}
	for _, mode := range []string{"transaction", "session"} {
		if got, sent := settings(pgtest.Pooler(t, server, mode, 1)("postgres")); sent {
			t.Errorf("behind a pooler, %s: asked for; %s", mode, got)
		}
	}
}

// tracer collects statements.
type tracer []string

func (s *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	*s = append(*s, d.SQL)
	return ctx
}

func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
