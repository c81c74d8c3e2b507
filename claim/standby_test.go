package claim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// A pooler may lead on to a server that has become a standby, which knows no
// claim that it has not heard of: it is not to say that one is lost.
func TestAStandbyDoesNotSayThatAClaimIsLost(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	primary := pgtest.Conn(t, server.URL("postgres"))
	if _, err := migrations.Up(t.Context(), primary, schema); err != nil {
		t.Fatal(err)
	}
	// Which restarts the primary.
	second, err := server.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Stop(); err != nil {
			t.Error(err)
		}
	})
	primary, standby := pgtest.Conn(t, server.URL("postgres")), pgtest.Conn(t, second.URL("postgres"))
	exec := func(conn *pgx.Conn, sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(primary, "INSERT INTO fencepost.jobs (kind) VALUES ('test')")
	for known := 0; known == 0; { // there is no event for "the standby has it"
		if err := standby.QueryRow(t.Context(), "SELECT count(*) FROM fencepost.jobs").Scan(&known); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	exec(standby, "SELECT pg_wal_replay_pause()")
	for paused := false; !paused; {
		if err := standby.QueryRow(t.Context(), "SELECT pg_get_wal_replay_pause_state() = 'paused'").Scan(&paused); err != nil {
			t.Fatal(err)
		}
	}
	table := claim.In(schema)
	claimed, err := table.Claim(t.Context(), primary, claim.Request{Queue: queue, Limit: 1}, lease, "worker")
	if err != nil || len(claimed.Rows) != 1 {
		t.Fatalf("claimed %d jobs, %v", len(claimed.Rows), err)
	}
	leases := []claim.Lease{claimed.Rows[0].Lease()}
	if lost, err := table.Check(t.Context(), primary, leases); err != nil || len(lost) > 0 {
		t.Errorf("the primary: %v, %v", lost, err)
	}
	if lost, err := table.Check(t.Context(), standby, leases); !errors.Is(err, claim.ErrReadOnly) || len(lost) > 0 {
		t.Errorf("the standby: %v, %v; want ErrReadOnly", lost, err)
	}
}
