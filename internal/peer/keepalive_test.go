package peer_test

import (
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
	settings := func(dsn string) (before, after string) {
		t.Helper()
		conn := pgtest.Conn(t, dsn)
		if err := conn.QueryRow(t.Context(), ask, pgx.QueryExecModeExec).Scan(&before); err != nil {
			t.Fatal(err)
		}
		if _, err := peer.Greet(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(t.Context(), ask, pgx.QueryExecModeExec).Scan(&after); err != nil {
			t.Fatal(err)
		}
		return before, after
	}
	if _, got := settings(server.TCPURL("postgres")); got != "10 5 3 25000" && got != "10 5 3 25s" {
		t.Errorf("over TCP: %s", got)
	}
	if before, after := settings(server.URL("postgres")); after != before {
		t.Errorf("over a Unix socket: %s, then %s", before, after)
	}
	for _, mode := range []string{"transaction", "session"} {
		if before, after := settings(pgtest.Pooler(t, server, mode, 1)("postgres")); after != before {
			t.Errorf("behind a pooler, %s: %s, then %s", mode, before, after)
		}
	}
}
