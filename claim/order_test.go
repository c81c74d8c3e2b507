package claim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// Jobs come by priority, then due time, then id, whatever path they came by.
func TestClaimKeepsTheOrder(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	var want []int64
	for _, priority := range []string{"-2", "-1", "0", "1", "2"} {
		for _, due := range []string{"2001-01-01Z", "2001-01-02Z", "2001-01-02Z"} {
			want = append(want, b.insertOne("priority, run_at", priority+", '"+due+"'"))
		}
	}
	// Ids that run against the order.
	b.exec("UPDATE {{schema}}.jobs SET id = $1::bigint - id WHERE priority IN (-2, 2)", int64(3*firstID))
	for i, id := range want {
		if i < 3 || i >= len(want)-3 {
			want[i] = 3*firstID - id
		}
	}
	// Of equal due times the smaller id comes first.
	want[1], want[2] = want[2], want[1]
	n := len(want)
	want[n-1], want[n-2] = want[n-2], want[n-1]

	var got []int64
	for _, limit := range []int{1, 2, 4, 100} {
		for _, row := range b.take(limit, lease) {
			got = append(got, row.ID)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("claimed in the order\n%v, want\n%v", got, want)
	}
}

// B7: a job of top priority that was recovered from a dead worker goes before
// fresh jobs of lower priority.
func TestRecoveredJobKeepsItsPriority(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	urgent := b.insertOne("priority", "-2")
	b.takeOne(over)
	b.exec("INSERT INTO {{schema}}.jobs (kind, priority) SELECT 'test', 2 FROM generate_series(1, 100)")
	if reaped := b.tick().Reaped; reaped != 1 {
		t.Fatalf("reaped %d jobs", reaped)
	}
	b.makeDue()
	if row := b.takeOne(lease); row.ID != urgent || row.Attempt != 2 {
		t.Errorf("claimed %+v, want job %d in attempt 2", row, urgent)
	}
}

// B8: jobs that hang until their lease ends do not come first for ever.
func TestReapedJobGoesBehindOthersThatAreDue(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	hanging := []int64{b.insertOne("run_at", "'2001-01-01Z'"), b.insertOne("run_at", "'2001-01-01Z'")}
	b.take(2, over)
	b.insert(10)
	b.tick()
	rows := b.take(12, lease)
	if len(rows) != 10 {
		t.Errorf("claimed %d jobs, want the 10 good ones", len(rows))
	}
	for _, row := range rows {
		if slices.Contains(hanging, row.ID) {
			t.Errorf("job %d, which hangs, was claimed again at once", row.ID)
		}
	}
	expect(b, true, "SELECT min(run_at) > clock_timestamp() FROM {{schema}}.jobs WHERE status = 'ready'")
}

// Only due jobs of the queue and of the kinds that the caller can run.
func TestClaimTakesOnlyWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec(`INSERT INTO {{schema}}.jobs (kind, queue, run_at) VALUES
		('a', 'default', '2001-01-01Z'), ('b', 'default', '2001-01-02Z'), ('c', 'default', '2001-01-03Z'),
		('a', 'other', '2001-01-01Z'), ('a', 'default', clock_timestamp() + interval '1 hour')`)
	for _, test := range []struct {
		name  string
		kinds []string
		limit int
		want  []string
	}{
		{"no kinds", []string{}, 10, nil},
		{"unknown kind", []string{"x", "A"}, 10, nil},
		{"limit 0", nil, 0, nil},
		{"two kinds", []string{"c", "a"}, 10, []string{"a", "c"}},
		{"every kind", nil, 10, []string{"b"}},
	} {
		claimed, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Kinds: test.kinds, Limit: test.limit}, lease, "worker")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, row := range claimed.Rows {
			got = append(got, row.Kind)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: claimed %v, want %v", test.name, got, test.want)
		}
	}
}

// A short claim says when the next job that it did not take is due.
func TestShortClaimTellsWhatComesNext(t *testing.T) {
	t.Parallel()
	const (
		none  = time.Duration(-1)
		three = "INSERT INTO {{schema}}.jobs (kind) VALUES ('test'), ('test'), ('test');"
	)
	b := setUp(t)
	for name, test := range map[string]struct {
		sql   string
		kinds []string
		limit int
		rows  int
		want  time.Duration // until the next job
	}{
		"empty":           {"", nil, 5, 0, none},
		"full":            {three + scheduled("1 hour", 0), nil, 3, 3, none},
		"future":          {scheduled("2 hours", 0) + scheduled("1 hour", 0), nil, 5, 0, time.Hour},
		"after a part":    {three + scheduled("1 hour", 0), nil, 5, 3, time.Hour},
		"lowest priority": {scheduled("2 hours", 0) + scheduled("1 hour", 2), nil, 5, 0, time.Hour},
		"far away":        {scheduled("36500 days", 0), nil, 5, 0, 36500 * 24 * time.Hour},
		"own kind":        {scheduled("1 hour", 0), []string{"test"}, 5, 0, time.Hour},
		"other kind":      {scheduled("1 hour", 0), []string{"other"}, 5, 0, none},
		"other queue":     {scheduled("1 hour", 0) + "UPDATE {{schema}}.jobs SET queue = 'other'", nil, 5, 0, none},
		"only running": {three + `UPDATE {{schema}}.jobs
			SET status = 'running', attempts = 1, worker_id = 'w', lease_until = clock_timestamp()`, nil, 5, 0, none},
	} {
		t.Run(name, func(t *testing.T) {
			b := b.fresh(t)
			if _, err := b.conn.PgConn().Exec(b.ctx, named(test.sql, schema)).ReadAll(); err != nil {
				t.Fatal(err)
			}
			got, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Kinds: test.kinds, Limit: test.limit}, lease, "worker")
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Rows) != test.rows {
				t.Errorf("claimed %d jobs, want %d", len(got.Rows), test.rows)
			}
			const slack = time.Minute // between the INSERT and the claim
			switch {
			case got.HasNext != (test.want != none):
				t.Errorf("has next: %v", got.HasNext)
			case got.HasNext && (got.Next > test.want || got.Next < test.want-slack):
				t.Errorf("next in %s, want %s", got.Next, test.want)
			}
		})
	}
}

// A due job whose row somebody holds is told as such, not as one that lies in
// the future, and does not hold up the others.
func TestShortClaimTellsThatAJobIsHeld(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(3)
	holder := b.open()
	if _, err := holder.Exec(b.ctx, "SELECT FROM fencepost.jobs ORDER BY id LIMIT 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	claimed, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 3}, lease, "worker")
	if err != nil {
		t.Fatal(err)
	}
	if len(claimed.Rows) != 2 || !claimed.HasNext || claimed.Next > 0 {
		t.Errorf("claimed %d, next %v %s; want 2 and one that is due", len(claimed.Rows), claimed.HasNext, claimed.Next)
	}
	b.rollback(holder)
}

// A foreign key to a job does not keep it from being claimed.
func TestReferenceDoesNotHoldUpAClaim(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(1)
	b.exec("CREATE TABLE note (job bigint REFERENCES {{schema}}.jobs)")
	b.exec("GRANT INSERT ON note TO " + role)
	note := b.open()
	if _, err := note.Exec(b.ctx, "INSERT INTO note SELECT id FROM fencepost.jobs"); err != nil {
		t.Fatal(err)
	}
	mutant := b.with(claim.Mutant(t, schema, claim.SQLClaim, "FOR NO KEY UPDATE", "FOR UPDATE"))
	if rows := mutant.take(1, lease); len(rows) != 0 {
		t.Error("the test does not see what FOR NO KEY UPDATE is for")
	}
	if rows := b.take(1, lease); len(rows) != 1 {
		t.Error("the job was not claimed")
	}
	b.rollback(note)
}

// scheduled inserts one job that is due later.
func scheduled(in string, priority int) string {
	return fmt.Sprintf("INSERT INTO {{schema}}.jobs (kind, run_at, priority) VALUES ('test', clock_timestamp() + interval '%s', %d);", in, priority)
}
