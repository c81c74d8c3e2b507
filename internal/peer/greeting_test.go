package peer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/peer"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// A server that takes no writes is refused at the greeting, and by a ping
// later, whether it is a standby or only read-only; and with two servers named,
// the standby first, a connection finds the primary.
func TestOnlyAServerThatTakesWrites(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t, pg.Options{})
	standby, err := primary.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	for name, c := range map[string]struct {
		dsn    string
		reason string // why it is refused; "": it is not
	}{
		"a primary":          {primary.URL("postgres"), ""},
		"a standby":          {standby.URL("postgres"), "it is a standby"},
		"a read-only server": {primary.URL("postgres") + "&default_transaction_read_only=on", "its transactions are read-only"},
	} {
		conn := pgtest.Conn(t, c.dsn)
		_, greeted := peer.Greet(t.Context(), conn)
		pinged := peer.Ping(t.Context(), conn)
		for what, err := range map[string]error{"greeting": greeted, "ping": pinged} {
			if refused := c.reason != ""; errors.Is(err, peer.ErrReadOnly) != refused || (err != nil) != refused ||
				refused && !strings.Contains(err.Error(), c.reason) {
				t.Errorf("%s of %s: %v", what, name, err)
			}
		}
	}

	first, err := pgx.ParseConfig(standby.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := pgx.ParseConfig(primary.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	both, err := pgx.ParseConfig(fmt.Sprintf("host=%s,%s port=%d,%d user=postgres dbname=postgres", first.Host, second.Host, first.Port, second.Port))
	if err != nil {
		t.Fatal(err)
	}
	peer.PreferPrimary(both)
	conn, err := pgx.ConnectConfig(t.Context(), both)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := peer.Greet(t.Context(), conn); err != nil {
		t.Error(err)
	}
}
