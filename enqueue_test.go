package fencepost_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

func TestEnqueueStoresEveryField(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	producer := newClient(t, as(t, pool, producerRole), fencepost.Config{})
	client := newClient(t, as(t, pool, monitorRole), fencepost.Config{})
	at := time.Date(2031, 2, 3, 4, 5, 6, 789000000, time.FixedZone("", -7*3600))
	ids := enqueue(t, producer,
		fencepost.NewJob{Payload: invoice{Number: math.MaxInt64}},
		fencepost.NewJob{Kind: "k", Payload: raw(`[1]`), Queue: "q", Priority: -2, RunAt: at, MaxAttempts: 3},
		fencepost.NewJob{Kind: "k", Delay: time.Hour},
	)
	if len(ids) != 3 || ids[0] <= math.MaxUint32 {
		t.Fatalf("ids %v: want three above 2^32", ids)
	}
	first, err := client.Get(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if first.Kind != "invoice" || first.Queue != "default" || first.MaxAttempts != 20 || first.Status != fencepost.StatusReady ||
		!strings.Contains(string(first.Payload), "9223372036854775807") {
		t.Errorf("first job is %+v", first)
	}
	second, _ := client.Get(t.Context(), ids[1])
	if second.Kind != "k" || second.Queue != "q" || second.Priority != -2 || second.MaxAttempts != 3 ||
		!second.RunAt.Equal(at) || second.Status != fencepost.StatusScheduled || string(second.Payload) != `[1]` {
		t.Errorf("second job is %+v", second)
	}
	third, _ := client.Get(t.Context(), ids[2])
	if d := third.RunAt.Sub(third.CreatedAt); d < 59*time.Minute || d > 61*time.Minute || string(third.Payload) != `{}` {
		t.Errorf("third job is %+v", third)
	}
}

// Each payload comes out as it went in, or is refused at the door (B108, B109).
func TestPayloadsRoundTrip(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	for _, good := range []string{
		`null`, `[]`, `"x"`, `1`, `true`, `{}`, `9007199254740993`, `-9223372036854775808`, `0.1000000000000000055511151231257827`,
		`"\\u0000"`, `"<a href='x'>&amp;"`, `"\u2028 é 漢 🙂"`, `{"a": [null, {"b": ""}]}`,
	} {
		ids := enqueue(t, client, fencepost.NewJob{Kind: "k", Payload: raw(good)})
		info, err := client.Get(t.Context(), ids[0])
		if err != nil {
			t.Fatal(err)
		}
		if got, want := canonical(t, info.Payload), canonical(t, raw(good)); got != want {
			t.Errorf("%s came back as %s", good, info.Payload)
		}
	}
	for _, bad := range []struct{ payload, where string }{
		{"", "Payload"},
		{`{"a": {"b": [0, "x\u0000"]}}`, "$.a.b[1]"},
		{`{"a\u0000": 1}`, "$"},
		{`{"a": "\ud800"}`, "$.a"},
		{"{\"a\": \"\xff\"}", "$.a"},
		{`{"a": 1e400000}`, "$.a"},
		{`{"a": 1`, "Payload"},
		{`1 2`, "Payload"},
		{`"` + strings.Repeat("x", 1<<20) + `"`, "1048576"},
	} {
		ids, err := client.Enqueue(t.Context(), fencepost.NewJob{Kind: "k"}, fencepost.NewJob{Kind: "k", Payload: json.RawMessage(bad.payload)})
		if !errors.Is(err, fencepost.ErrInvalid) || ids != nil || !strings.Contains(err.Error(), bad.where) || !strings.Contains(err.Error(), "job 2 of 2") {
			t.Errorf("%.40s: ids %v, error %v: want ErrInvalid that names job 2 and %s", bad.payload, ids, err, bad.where)
		}
	}
	if n := count(t, pool, "SELECT count(*) FROM fencepost.jobs WHERE payload = '{}' AND kind = 'k'"); n != 1 {
		t.Errorf("%d jobs with an empty payload; a refused call must store nothing", n)
	}
}

func canonical(t *testing.T, doc json.RawMessage) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(doc)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestEnqueueRefusesBadJobs(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{})
	long := strings.Repeat("x", 129)
	for _, bad := range []struct {
		job  fencepost.NewJob
		says string
	}{
		{fencepost.NewJob{}, "Kind"},
		{fencepost.NewJob{Kind: long}, "Kind"},
		{fencepost.NewJob{Kind: "a\x00"}, "Kind"},
		{fencepost.NewJob{Kind: "k", Payload: invoice{}}, `"invoice"`},
		{fencepost.NewJob{Payload: (*invoice)(nil)}, "nil"},
		{fencepost.NewJob{Kind: "k", Queue: long}, "Queue"},
		{fencepost.NewJob{Kind: "k", Queue: "\xff"}, "Queue"},
		{fencepost.NewJob{Kind: "k", Priority: 3}, "Priority"},
		{fencepost.NewJob{Kind: "k", Priority: -3}, "Priority"},
		{fencepost.NewJob{Kind: "k", MaxAttempts: -1}, "MaxAttempts"},
		{fencepost.NewJob{Kind: "k", Delay: -1}, "Delay"},
		{fencepost.NewJob{Kind: "k", Delay: math.MaxInt64}, "Delay"},
		{fencepost.NewJob{Kind: "k", Delay: 1, RunAt: time.Now()}, "both"},
		{fencepost.NewJob{Kind: "k", RunAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "RunAt"},
		{fencepost.NewJob{Kind: "k", RunAt: time.Date(1969, 12, 31, 23, 0, 0, 0, time.UTC)}, "RunAt"},
		{fencepost.NewJob{Kind: "k", RunAt: time.Date(9999, 12, 31, 23, 59, 59, 999_999_900, time.UTC)}, "RunAt"}, // rounded up
		{fencepost.NewJob{Kind: "k", Payload: func() {}}, "Payload"},
		{fencepost.NewJob{Kind: "k", Payload: math.NaN()}, "Payload"},
	} {
		if _, err := client.Enqueue(t.Context(), bad.job); !errors.Is(err, fencepost.ErrInvalid) || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%+v: error %v: want ErrInvalid that says %s", bad.job, err, bad.says)
		}
		if err := bad.job.Validate(); !errors.Is(err, fencepost.ErrInvalid) || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%+v: Validate says %v", bad.job, err)
		}
	}
	if n := count(t, pool, "SELECT count(*) FROM fencepost.jobs"); n != 0 {
		t.Errorf("%d jobs were stored", n)
	}
}

// 100,000 jobs at once: all of them, ids in the order of the input.
func TestEnqueueMany(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	producers := as(t, pool, producerRole)
	client := newClient(t, producers, fencepost.Config{})
	jobs := make([]fencepost.NewJob, 100_000)
	for i := range jobs {
		jobs[i] = fencepost.NewJob{Payload: invoice{Number: int64(i)}}
	}
	ids := enqueue(t, client, jobs...)
	if len(ids) != len(jobs) || !slices.IsSorted(ids) {
		t.Fatalf("%d ids, sorted: %v", len(ids), slices.IsSorted(ids))
	}
	rows, err := pool.Query(t.Context(), "SELECT (payload ->> 'number')::int FROM fencepost.jobs ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range numbers {
		if i != n {
			t.Fatalf("job %d has number %d: ids are not in the order of the input", i, n)
		}
	}
	// All or none, also over several statements: the last job is the bad one.
	if _, err := admin(t, pool).Exec(t.Context(), "ALTER TABLE fencepost.jobs ADD CHECK (kind <> 'refused')"); err != nil {
		t.Fatal(err)
	}
	jobs = append(jobs[:2500], fencepost.NewJob{Kind: "refused"})
	if _, err := client.Enqueue(t.Context(), jobs...); err == nil {
		t.Error("no error")
	}
	if n := count(t, pool, "SELECT count(*) FROM fencepost.jobs"); n != 100_000 {
		t.Errorf("%d jobs after a failed enqueue, want 100000", n)
	}
	if n := producers.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections not given back", n)
	}
	if ids, err := client.Enqueue(t.Context()); ids != nil || err != nil {
		t.Errorf("no jobs: %v, %v", ids, err)
	}
}

// A job is visible exactly if the transaction it was enqueued in committed.
func TestEnqueueInTransactions(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	producers := as(t, pool, producerRole)
	dsn := producers.Config().ConnString()
	client := newClient(t, producers, fencepost.Config{})
	ctx := t.Context()
	many := make([]fencepost.NewJob, 1500) // more than one statement

	for i := range many {
		many[i] = fencepost.NewJob{Kind: "many"}
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn := pgtest.Conn(t, dsn)

	for _, commit := range []bool{true, false} {
		kind := map[bool]string{true: "committed", false: "rolled back"}[commit]

		tx, err := producers.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.In(tx).Enqueue(ctx, append(many, fencepost.NewJob{Kind: kind})...); err != nil {
			t.Fatal(err)
		}
		// A refused job leaves the transaction as it was.
		if _, err := client.In(tx).Enqueue(ctx, fencepost.NewJob{}); !errors.Is(err, fencepost.ErrInvalid) {
			t.Fatal(err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}

		sqlTx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := client.InSQL(sqlTx).Enqueue(ctx, append(many, fencepost.NewJob{Kind: kind, Payload: raw(`{"n": 9007199254740993}`)})...)
		if err != nil || len(ids) != 1501 {
			t.Fatalf("%d ids, %v", len(ids), err)
		}
		sqlEnd := sqlTx.Rollback
		if commit {
			sqlEnd = sqlTx.Commit
		}
		if err := sqlEnd(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.In(conn).Enqueue(ctx, append(many, fencepost.NewJob{Kind: "conn"})...); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]int{"committed": 2, "rolled back": 0, "conn": 1, "many": 4500} {
		if n := count(t, pool, "SELECT count(*) FROM fencepost.jobs WHERE kind = $1", kind); n != want {
			t.Errorf("%d jobs of kind %q, want %d", n, kind, want)
		}
	}
}
