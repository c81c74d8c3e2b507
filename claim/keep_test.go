package claim_test

import (
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost/claim"
)

// How long a job that ended stays depends on its outcome, and for done jobs on
// the queue; keep 0 leaves no row at all.
func TestHowLongFinishedJobsAreKept(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, test := range []struct {
		keep string
		verb claim.Verb
		want string // "": not kept
	}{
		{"", claim.Done, "24:00:00"},
		{"7 days", claim.Done, "7 days"},
		{"0", claim.Done, ""},
		{"0", claim.Dead, "30 days"},
		{"0", claim.Cancelled, "24:00:00"},
		{"7 days", claim.Cancelled, "24:00:00"},
	} {
		b := b.fresh(t)
		if test.keep != "" {
			b.exec("INSERT INTO {{schema}}.queues (name, keep) VALUES ('default', $1::text::interval)", test.keep)
		}
		b.insert(1)
		row := b.takeOne(lease)
		b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: test.verb})
		expect(b, int64(0), "SELECT count(*) FROM {{schema}}.jobs")
		if test.want == "" {
			expect(b, int64(0), "SELECT count(*) FROM {{schema}}.finished")
			continue
		}
		expect(b, true, `SELECT abs(extract(epoch FROM keep_until - (finished_at + $1::text::interval))) < 1 FROM {{schema}}.finished`, test.want)
	}
	// The same for a completion in the caller's transaction, and for a reaped job.
	b = b.fresh(t)
	b.exec("INSERT INTO {{schema}}.queues (name, keep) VALUES ('default', '0')")
	b.insert(1)
	row := b.takeOne(lease)
	tx := b.open()
	if err := b.CompleteTx(b.ctx, tx, row.Lease()); err != nil {
		t.Fatal(err)
	}
	b.commit(tx)
	expect(b, int64(0), "SELECT (SELECT count(*) FROM {{schema}}.jobs) + (SELECT count(*) FROM {{schema}}.finished)")
	b.insertOne("max_attempts", "1")
	b.takeOne(over)
	b.tick()
	expect(b, true, "SELECT keep_until > clock_timestamp() + interval '29 days' FROM {{schema}}.finished")
}

// A job that moves to finished takes everything with it.
func TestFinishedRowIsComplete(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insertOne("run_at, created_at, max_attempts, snoozes, priority, payload, last_error",
		`'2001-01-01Z', '2000-01-01Z', 7, 3, -2, '{"n": 12345678901234567890}', 'earlier'`)
	row := b.takeOne(lease)
	if err := b.Progress(b.ctx, b.conn, row.Lease(), []byte(`{"step": 2}`)); err != nil {
		t.Fatal(err)
	}
	columns := `id, fence, run_at, created_at, attempts, max_attempts, snoozes, priority, queue, kind, worker_id, payload, progress, last_error`
	before := ask[string](b, "SELECT to_jsonb(x)::text FROM (SELECT "+columns+" FROM {{schema}}.jobs) AS x")
	b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: claim.Done})
	expect(b, before, "SELECT to_jsonb(x)::text FROM (SELECT "+columns+" FROM {{schema}}.finished) AS x")
}

// The clean-up deletes what is over, in batches, and nothing else; two at once
// take different rows and neither waits.
func TestPrune(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	const expired, kept = 3*claim.PruneBatch + 50, 70
	b.exec(`INSERT INTO {{schema}}.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload)
		SELECT n, 1, now(), now(), clock_timestamp() + CASE WHEN n <= $1::int THEN interval '-1 second' ELSE interval '1 hour' END,
			1, 1, 0, 0, 'done', 'default', 'test', '{}' FROM generate_series(1, $1::int + $2::int) AS n`, expired, kept)
	if !b.tick().Expired {
		t.Error("the tick does not see that there is something to delete")
	}
	holder := b.open()
	if n, err := b.Prune(b.ctx, holder); err != nil || n != claim.PruneBatch {
		t.Fatal(n, err)
	}
	var group errgroup.Group
	counts := make([]int, 2)
	for i := range counts {
		conn := b.connect()
		group.Go(func() (err error) {
			for {
				n, err := b.Prune(b.ctx, conn)
				if counts[i] += n; err != nil || n == 0 {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := counts[0] + counts[1]; got != expired-claim.PruneBatch {
		t.Errorf("deleted %v beside the rows that were held, want %d in all", counts, expired-claim.PruneBatch)
	}
	b.commit(holder)
	expect(b, int64(kept), "SELECT count(*) FROM {{schema}}.finished")
	if b.tick().Expired {
		t.Error("the tick sees something to delete after the last")
	}
}
