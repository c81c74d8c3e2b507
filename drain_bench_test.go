package fencepost_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost"
)

// padded is a payload of about 200 bytes.
type padded struct {
	Number int64  `json:"number"`
	Text   string `json:"text"`
}

func (padded) Kind() string { return "padded" }

// BenchmarkDrain is what a worker needs for a job that does nothing, out of a
// backlog, until all of them are stored as done. Read its allocations as those
// of one job; the jobs are there before it begins. Its commits are those of the
// whole database, the test's own included.
//
//	go run ./internal/cmd/withpg -- go test -run '^$' -bench Drain -benchtime 100000x .
func BenchmarkDrain(b *testing.B) {
	_, pool := database(b)
	client := newClient(b, pool, fencepost.Config{
		Queues: map[string]fencepost.Queue{fencepost.DefaultQueue: {Slots: 500}},
		Logger: slog.New(slog.DiscardHandler),
	})
	var ran atomic.Int64
	all := make(chan struct{})
	fencepost.Handle(client, func(context.Context, *fencepost.Job[padded]) error {
		if ran.Add(1) == int64(b.N) {
			close(all)
		}
		return nil
	})
	if _, err := pool.Exec(b.Context(), `INSERT INTO fencepost.jobs (kind, payload)
		SELECT 'padded', jsonb_build_object('number', n, 'text', $2::text) FROM generate_series(1, $1::int) AS n`,
		b.N, strings.Repeat("x", 170)); err != nil {
		b.Fatal(err)
	}
	commits := func() int {
		return count(b, pool, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
	}
	before := commits()
	b.ReportAllocs()
	b.ResetTimer()
	stop := work(b, client)
	<-all
	for count(b, pool, "SELECT count(*) FROM (SELECT FROM fencepost.jobs LIMIT 1) AS j") > 0 {
		time.Sleep(time.Millisecond)
	}
	b.StopTimer()
	if err := stop(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	pool.Reset() // a session that ends has counted all of its commits
	b.ReportMetric(float64(commits()-before)/float64(b.N), "commits/job")
}
