package claim_test

import (
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// The server's clock is set back by an hour under a claim. Its lease ends
// earlier from the next extension on, and so does the wait of those who would
// take the job from a worker of which nothing but the lease is known.
func TestAClaimIsLookedIntoEarlierAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(2)
	one, other := b.takeOne(time.Minute), b.takeOne(time.Minute)
	b.exec("UPDATE {{schema}}.jobs SET lease_until = lease_until + interval '1 hour'")
	b.exec("UPDATE {{schema}}.claims SET look_at = look_at + interval '1 hour'")
	if lost, err := b.Extend(b.ctx, b.conn, []claim.Lease{one.Lease()}, time.Minute); err != nil || len(lost) > 0 {
		t.Fatalf("%+v, %v", lost, err)
	}
	const inTime = `SELECT count(*) FROM {{schema}}.jobs AS j WHERE j.status = 'running'
		AND EXISTS (SELECT FROM {{schema}}.claims AS c WHERE j.id = ANY (c.ids) AND c.look_at <= j.lease_until)`
	expect(b, int64(2), inTime)
	expect(b, int64(1), "SELECT count(*) FROM {{schema}}.claims WHERE look_at < clock_timestamp() + interval '1 minute'")
	b.tick() // which finds out when exactly
	expect(b, int64(2), inTime)
	expect(b, true, "SELECT bool_and(c.look_at = j.lease_until) FROM {{schema}}.claims AS c JOIN {{schema}}.jobs AS j ON j.id = ANY (c.ids) WHERE j.id = $1::bigint", one.ID)

	// One that only moves leases on touches no claim.
	b.exec("UPDATE {{schema}}.claims SET look_at = look_at - interval '1 second'")
	before := ask[string](b, "SELECT string_agg(xmin::text, ',' ORDER BY id) FROM {{schema}}.claims")
	if lost, err := b.Extend(b.ctx, b.conn, []claim.Lease{one.Lease(), other.Lease()}, 2*time.Hour); err != nil || len(lost) > 0 {
		t.Fatalf("%+v, %v", lost, err)
	}
	expect(b, before, "SELECT string_agg(xmin::text, ',' ORDER BY id) FROM {{schema}}.claims")
}
