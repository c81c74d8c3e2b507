package claim_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-go/fencepost/claim"
)

// A running job that somebody makes ready by hand, without moving its fence,
// has lost its lease, and costs no other job of the same batch its own.
func TestARunningJobMadeReadyByHand(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(3)
	var leases []claim.Lease
	for _, row := range b.take(3, lease) {
		leases = append(leases, row.Lease())
	}
	b.exec("UPDATE {{schema}}.jobs SET status = 'ready', lease_until = NULL, worker_id = NULL, attempts = 0 WHERE id = $1::bigint", leases[1].ID)
	b.exec("UPDATE {{schema}}.jobs SET lease_until = clock_timestamp() + interval '1 second' WHERE status = 'running'")
	lost, err := b.Extend(b.ctx, b.conn, leases, lease)
	if want := []claim.Loss{{Lease: leases[1], Reason: claim.ReasonTaken}}; err != nil || !slices.Equal(lost, want) {
		t.Fatalf("lost %v, %v; want %v", lost, err, want)
	}
	expect(b, 2, "SELECT count(*)::int FROM {{schema}}.jobs WHERE lease_until > clock_timestamp() + interval '10 seconds'")
	// What its handler says still counts, as long as nobody has claimed it.
	b.finish(claim.Stored, claim.Outcome{Lease: leases[1], Verb: claim.Snooze, Delay: time.Hour})
	expect(b, 0, "SELECT attempts FROM {{schema}}.jobs WHERE id = $1::bigint", leases[1].ID)
}

// A job may be due, and a lease may end, later than a Duration reaches.
func TestTheEndOfTimeIsNotSoon(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	const century = 100 * 365 * 24 * time.Hour
	for _, year := range []string{"2400", "2600", "3000", "5000", "9999"} {
		b := b.fresh(t)
		b.insertOne("run_at", "'"+year+"-12-31'")
		b.insertOne("status, attempts, worker_id, lease_until", "'running', 1, 'w', '"+year+"-12-31'")
		b.adopt()
		claimed, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 1}, lease, "worker")
		if err != nil || !claimed.HasNext || claimed.Next < century {
			t.Errorf("%s: claim says %+v, %v", year, claimed, err)
		}
		if ticked := b.tick(); ticked.Next[queue] < century || !ticked.HasLease || ticked.Lease < century {
			t.Errorf("%s: tick says %+v", year, ticked)
		}
	}
}

// A fence above which a claim cannot count is refused when it is written: the
// job would spoil every claim that chooses it.
func TestNoFenceIsTooHighToClaim(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	var refused *pgconn.PgError
	_, err := b.conn.Exec(b.ctx, "INSERT INTO fencepost.jobs (kind, fence) VALUES ('test', 9223372036854775807)")
	if !errors.As(err, &refused) || refused.ConstraintName != "jobs_fence" {
		t.Fatalf("got %v, want a violation of jobs_fence", err)
	}
	b.insertOne("fence", "9007199254740993")
	b.finish(claim.Stored, claim.Outcome{Lease: b.takeOne(lease).Lease(), Verb: claim.Done})
}
