package claim_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

// BenchmarkExchange is what the server needs for a job, out of a backlog, from
// the claim to its end: the processor time of the one backend, in claims of 500.
// It is meant for comparing statements: no client, no disk and no other process
// is in it but where they slow the processor down. Linux only.
//
//	go run ./internal/cmd/withpg -- go test -run '^$' -bench Exchange -benchtime 200000x -count 3 ./claim
func BenchmarkExchange(b *testing.B) {
	for _, keep := range []bool{true, false} {
		b.Run(map[bool]string{true: "kept", false: "deleted"}[keep], func(b *testing.B) { exchanged(b, keep) })
	}
}

func exchanged(b *testing.B, keep bool) {
	s := setUp(b)
	if !keep {
		s.exec("INSERT INTO {{schema}}.queues (name, keep) VALUES ($1, '0')", queue)
	}
	s.exec(`INSERT INTO {{schema}}.jobs (kind, payload)
		SELECT 'test', jsonb_build_object('text', repeat('x', 180), 'number', n) FROM generate_series(1, $1::int) AS n`, b.N)
	s.exec("VACUUM ANALYZE {{schema}}.jobs")
	s.exec("CHECKPOINT")
	marks := claim.NewMarks()
	var outcomes []claim.Outcome
	round := func() (jobs int) {
		r := claim.Request{Queue: queue, Kinds: []string{"test"}, Limit: 500, Look: marks.Look(queue, time.Now())}
		results, claimed, err := s.Exchange(s.ctx, s.conn, outcomes, []claim.Request{r}, lease, "host:12345:ABCDEFGH")
		if err != nil {
			b.Fatal(err)
		}
		for _, result := range results {
			if result != claim.Stored {
				b.Fatalf("an outcome is %v", result)
			}
		}
		marks.Learn(r, time.Now(), claimed[0])
		outcomes = outcomes[:0]
		for _, row := range claimed[0].Rows {
			outcomes = append(outcomes, claim.Outcome{Lease: row.Lease(), Verb: claim.Done})
		}
		if n := len(outcomes); n > 0 {
			outcomes[n-1].Closes = claimed[0].Rows[0].Claim
		}
		return len(outcomes)
	}
	wal := func() int64 {
		return ask[int64](s, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
	}
	before, written := backendTime(b, s.conn), wal()
	b.ResetTimer()
	for round() > 0 {
	}
	b.StopTimer()
	b.ReportMetric(float64(backendTime(b, s.conn)-before)/1e3/float64(b.N), "server-us/op")
	b.ReportMetric(float64(wal()-written)/float64(b.N), "wal-B/op")
	if left := ask[int](s, "SELECT count(*) FROM {{schema}}.jobs"); left > 0 {
		b.Fatalf("%d jobs are left", left)
	}
}

// backendTime is the processor time of a connection's backend, in nanoseconds.
func backendTime(b *testing.B, conn *pgx.Conn) (ns int64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", conn.PgConn().PID()))
	if err == nil {
		_, err = fmt.Sscan(string(stat), &ns)
	}
	if err != nil {
		b.Skip(err)
	}
	return ns
}
