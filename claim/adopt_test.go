package claim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// runByHand makes n jobs running as a program does that writes no claims.
func (b *bench) runByHand(n int, worker, lease string) {
	b.t.Helper()
	b.exec(`INSERT INTO {{schema}}.jobs (kind, status, attempts, worker_id, lease_until)
		SELECT 'test', 'running', 1, $2::text, clock_timestamp() + $3::text::interval + n * interval '1 ms' FROM generate_series(1, $1::int) AS n`, n, worker, lease)
}

// adoptOnce looks through a table of one part, and says whether it has found any.
func (b *bench) adoptOnce() bool {
	b.t.Helper()
	found, next, err := b.Adopt(b.ctx, b.conn, 0)
	if err != nil || next != 0 {
		b.t.Fatal(found, next, err)
	}
	return found
}

// Running jobs that no claim names get one for each worker, in parts, and are
// then reaped as any others. Those that a claim names get none, and nothing is
// found twice.
func TestAdopt(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, test := range map[string]struct {
		edits []string
		wrong string
	}{
		"as it is":         {nil, ""},
		"in one part":      {[]string{"ORDER BY j.id) - 1) / 500 AS part", "ORDER BY j.id) - 1) / 5000 AS part"}, "parts"},
		"by the last":      {[]string{"SELECT min(r.lease_until), r.worker_id", "SELECT max(r.lease_until), r.worker_id"}, "look"},
		"named ones too":   {[]string{"WHERE k.id = j.id AND", "WHERE false AND"}, "named"},
		"not only running": {[]string{"AND j.status = 'running'\n", "AND j.lease_until IS DISTINCT FROM '-infinity'\n"}, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLAdopt, test.edits...))
			if b.adoptOnce() {
				t.Error("found a job in an empty table")
			}
			b.insert(4)
			named := b.take(3, lease)[0].Claim
			if name != "not only running" {
				b.exec("DELETE FROM {{schema}}.jobs WHERE status = 'ready'")
			}
			b.runByHand(600, "a", "-1 hour")
			b.runByHand(7, "b", "1 hour")
			wrong := make(map[string]bool)
			found, _, err := b.Adopt(b.ctx, b.conn, 0)
			if wrong["refused"] = err != nil; test.wrong != "refused" {
				if !found || err != nil {
					t.Fatalf("found %v, %v", found, err)
				}
				wrong["named"] = b.adoptOnce()
				wrong["look"] = ask[int64](b, sqlUnnamed) > 0
				sizes := make(map[string][]int)
				for _, c := range b.claims() {
					if c.ID != named {
						sizes[c.Worker] = append(sizes[c.Worker], len(c.IDs))
					}
				}
				slices.Sort(sizes["a"])
				wrong["parts"] = !slices.Equal(sizes["a"], []int{100, 500})
				if name == "as it is" && (len(sizes) != 2 || !slices.Equal(sizes["b"], []int{7})) {
					t.Errorf("claims of %v jobs", sizes)
				}
			}
			switch test.wrong {
			case "named":
				wrong["parts"] = false
			case "look": // and so they are found once more
				wrong["named"] = false
			}
			for what, is := range wrong {
				if is != (what == test.wrong) {
					t.Errorf("%s is wrong: %v", what, is)
				}
			}
			if name == "as it is" {
				if reaped := b.ticks(); reaped != 600 {
					t.Errorf("reaped %d of 600", reaped)
				}
				if b.adoptOnce() {
					t.Error("a tick has left running jobs without a claim")
				}
			}
		})
	}
}

// A lease that was made to end earlier by hand, or by a clock that was set back,
// is found as well; what a tick has put off is not.
func TestAdoptFindsWhatIsLookedIntoTooLate(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	const in = "\n                  AND k.look_at <= greatest(j.lease_until, statement_timestamp() + interval '2 seconds')"
	for name, test := range map[string]struct {
		edits          []string
		shortened, put bool
	}{
		"as it is":            {nil, true, false},
		"whenever":            {[]string{in, "\n"}, false, false},
		"when the lease ends": {[]string{in, "\nAND k.look_at <= j.lease_until"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLAdopt, test.edits...))
			b.insert(3)
			b.take(2, time.Hour)
			b.exec("UPDATE {{schema}}.jobs SET lease_until = clock_timestamp() - interval '1 second' WHERE id = (SELECT min(id) FROM {{schema}}.jobs)")
			if found := b.adoptOnce(); found != test.shortened {
				t.Errorf("found the lease that was made shorter: %v, want %v", found, test.shortened)
			}
			if reaped := b.tick().Reaped; reaped != map[bool]int{true: 1}[test.shortened] {
				t.Errorf("reaped %d", reaped)
			}

			b = b.fresh(t).with(b.Table)
			b.insert(1)
			row := b.takeOne(over)
			tx := b.open()
			if err := b.CompleteTx(b.ctx, tx, row.Lease()); err != nil {
				t.Fatal(err)
			}
			b.tick()
			if found := b.adoptOnce(); found != test.put {
				t.Errorf("found what a tick has put off: %v, want %v", found, test.put)
			}
			b.rollback(tx)
		})
	}
}

// A table of more than one part is read part by part, to its end.
func TestAdoptReadsALargeTableInParts(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec("SET synchronous_commit = off")
	b.exec("ALTER TABLE {{schema}}.jobs ALTER COLUMN payload SET STORAGE PLAIN, SET (autovacuum_enabled = off)")
	b.runByHand(1, "first", "-1 hour")
	// A row for each page.
	b.exec(`INSERT INTO {{schema}}.jobs (kind, payload) SELECT 'test', to_jsonb(repeat('x', 5000)) FROM generate_series(1, 4200)`)
	b.runByHand(1, "last", "-1 hour")
	found, next, err := b.Adopt(b.ctx, b.conn, 0)
	if err != nil || !found || next <= 0 {
		t.Fatal(found, next, err)
	}
	if claims := b.claims(); len(claims) != 1 || claims[0].Worker != "first" {
		t.Errorf("the first part has %+v", claims)
	}
	found, end, err := b.Adopt(b.ctx, b.conn, next)
	if err != nil || !found || end != 0 {
		t.Error(found, end, err)
	}
	if claims := b.claims(); len(claims) != 2 || claims[1].Worker != "last" {
		t.Errorf("both parts have %+v", claims)
	}
	if parts := b.adopt(); parts != 2 || len(b.claims()) != 2 {
		t.Errorf("read in %d parts, and then there are %+v", parts, b.claims())
	}
	if reaped := b.tick().Reaped; reaped != 2 {
		t.Errorf("reaped %d, want 2", reaped)
	}
	// The table may have become smaller meanwhile.
	if found, end, err := b.Adopt(b.ctx, b.conn, 1<<31); err != nil || found || end != 0 {
		t.Error(found, end, err)
	}
}
