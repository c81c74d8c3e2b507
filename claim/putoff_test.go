package claim_test

import (
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// ticks ticks until there is nothing more to be done at once, and returns how
// many jobs were reaped.
func (b *bench) ticks() (reaped int) {
	b.t.Helper()
	for range 100 {
		ticked := b.tick()
		if reaped += ticked.Reaped; !ticked.More {
			return reaped
		}
	}
	b.t.Fatal("there is no end of ticks")
	return 0
}

// A job whose lease is over and whose row somebody holds is looked for again a
// second later, and until then keeps nobody busy.
func TestAHeldJobIsPutOff(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits   []string
		put     bool
		further bool
	}{
		"as it is":        {nil, true, false},
		"not put off":     {[]string{"least(o.lease, clock_timestamp() + interval '1 second')", "c.look_at"}, false, false},
		"until the lease": {[]string{"least(o.lease, clock_timestamp() + interval '1 second')", "coalesce(o.lease, clock_timestamp())"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			b.insert(4)
			rows := b.take(3, lease)
			b.expire("id < $1::bigint", rows[2].ID) // of the third the lease goes on
			b.take(1, over)
			tx := b.open()
			if err := b.CompleteTx(b.ctx, tx, rows[0].Lease()); err != nil {
				t.Fatal(err)
			}
			ticked := b.tick()
			if ticked.Reaped != 2 || ticked.More {
				t.Errorf("reaped %d, more: %v", ticked.Reaped, ticked.More)
			}
			put := ask[bool](b, "SELECT look_at > clock_timestamp() - interval '1 minute' FROM {{schema}}.claims WHERE id = $1::bigint", rows[0].Claim)
			further := ask[bool](b, "SELECT look_at > clock_timestamp() + interval '1 second' FROM {{schema}}.claims WHERE id = $1::bigint", rows[0].Claim)
			if put != test.put || further != test.further {
				t.Errorf("put off: %v, further than a second: %v", put, further)
			}
			if name != "as it is" {
				b.rollback(tx)
				return
			}
			if !ticked.HasLease || ticked.Lease > time.Second || ticked.Lease <= 0 {
				t.Errorf("the next look is in %s (%v)", ticked.Lease, ticked.HasLease)
			}
			b.wait()
			if ticked := b.tick(); ticked.Reaped != 0 || ticked.More || !ticked.HasLease || ticked.Lease > time.Second {
				t.Errorf("a second later: %+v", ticked)
			}
			b.rollback(tx)
			b.wait()
			if reaped := b.tick().Reaped; reaped != 1 {
				t.Errorf("reaped %d, want the job that is held no longer", reaped)
			}
		})
	}
}

// However many jobs somebody holds, those behind them are reaped.
func TestManyHeldJobsKeepNoOtherFromBeingReaped(t *testing.T) {
	t.Parallel()
	const held, others = 5100, 10
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		want  int
	}{
		"as it is":    {nil, others},
		"not put off": {[]string{"least(o.lease, clock_timestamp() + interval '1 second')", "c.look_at"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			b.insert(held + others)
			var last int64
			for range held / 300 {
				last = b.take(300, 2*over)[299].ID
			}
			b.take(others, over)
			tx := b.open()
			if _, err := tx.Exec(b.ctx, "SELECT FROM fencepost.jobs WHERE id <= $1::bigint FOR UPDATE", last); err != nil {
				t.Fatal(err)
			}
			reaped := 0
			for range 4 {
				reaped += b.tick().Reaped
			}
			if reaped != test.want {
				t.Errorf("reaped %d, want %d", reaped, test.want)
			}
			b.rollback(tx)
			if name == "as it is" {
				b.wait()
				if reaped := b.ticks(); reaped != held {
					t.Errorf("reaped %d of those that were held, want %d", reaped, held)
				}
			}
		})
	}
}

// Nor do those that the database does not let end, even if there are more than
// one tick can try.
func TestManyRefusedJobsKeepNoOtherFromBeingReaped(t *testing.T) {
	t.Parallel()
	const refused, others = claim.ReapBatch + 100, 10
	healthy := setUp(t)
	healthy.exec("CREATE TABLE public.mine (job bigint REFERENCES {{schema}}.jobs)")
	for name, test := range map[string]struct {
		edits []string
		want  int
	}{
		"as it is":          {nil, others},
		"nothing has space": {[]string{"$3::bigint > 0 AND ", ""}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			healthy.exec("DELETE FROM public.mine")
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			b.exec("INSERT INTO {{schema}}.jobs (kind, max_attempts) SELECT 'test', 1 FROM generate_series(1, $1::int)", refused)
			b.take(refused, 2*over) // more than a dispatcher takes at a time: it needs all that a tick may try
			b.exec("INSERT INTO public.mine SELECT id FROM {{schema}}.jobs")
			b.insert(others)
			b.take(others, over)
			reaped := 0
			for range 2 {
				ticked := b.tick()
				if reaped += ticked.Reaped; reaped == 0 && (ticked.Refused == nil || !ticked.More) {
					t.Errorf("%+v", ticked)
				}
			}
			if reaped != test.want {
				t.Errorf("reaped %d, want %d", reaped, test.want)
			}
			expect(b, int64(refused), "SELECT count(*) FROM {{schema}}.jobs WHERE status = 'running' AND max_attempts = 1")
			expect(b, int64(0), sqlUnnamed)
		})
	}
	healthy.exec("DROP TABLE public.mine")
}

// Of two ticks at once each looks into other claims, and neither waits. What
// the one undoes is left for the next.
func TestTwoTicksAtOnce(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	const locking = "LIMIT 500\n    FOR UPDATE SKIP LOCKED"
	for name, test := range map[string]struct {
		edits []string
		waits bool
	}{
		"as it is": {nil, false},
		"waits":    {[]string{locking, "LIMIT 500\n    FOR UPDATE"}, true},
		"unlocked": {[]string{locking, "LIMIT 500"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLTick, test.edits...))
			b.insert(5)
			b.take(3, over)
			tx := b.open()
			if reaped := b.watchOn(tx).Reaped; reaped != 3 {
				t.Fatalf("reaped %d", reaped)
			}
			b.take(2, over)
			other := b.connect()
			ticking := answerOrWait(b, other, func() (claim.Ticked, error) {
				return b.Tick(b.ctx, other, claim.TickRequest{Queues: []string{queue}, Reap: true, Worker: "other", Own: "own", Token: "token"})
			})
			if waits := len(ticking) == 0; waits != test.waits {
				t.Errorf("waits: %v, want %v", waits, test.waits)
			}
			b.rollback(tx)
			ticked := <-ticking
			if ticked.err != nil {
				t.Fatal(ticked.err)
			}
			if test.edits != nil {
				return
			}
			if ticked.value.Reaped != 2 {
				t.Errorf("the second tick has reaped %d, want 2", ticked.value.Reaped)
			}
			if reaped := b.tick().Reaped; reaped != 3 {
				t.Errorf("the next one has reaped %d, want the 3 of the one that was undone", reaped)
			}
		})
	}
}
