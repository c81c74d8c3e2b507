package fencepost_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// Enqueueing beside the least that could be done by hand into the same table,
// on a server of its own that waits for its disk:
//
//	go test -run '^$' -bench Enqueue -benchmem .
//
// "raw" and "fencepost" have their time and allocations. "ratio" takes turns
// and says how fast the second is, the first being 1: compare only that, since
// disks have moods.
func compare(b *testing.B, raw, fencepost func()) {
	b.Run("raw", func(b *testing.B) {
		for b.Loop() {
			raw()
		}
	})
	b.Run("fencepost", func(b *testing.B) {
		for b.Loop() {
			fencepost()
		}
	})
	b.Run("ratio", func(b *testing.B) {
		timed := func(do func()) time.Duration {
			begin := time.Now()
			do()
			return time.Since(begin)
		}
		var ratios []float64
		for b.Loop() {
			r1 := timed(raw)
			f1, f2 := timed(fencepost), timed(fencepost)
			r2 := timed(raw)
			ratios = append(ratios, float64(r1+r2)/float64(f1+f2))
		}
		slices.Sort(ratios)
		b.ReportMetric(ratios[len(ratios)/2], "ratio")
	})
}

// benched is a job whose payload has 200 bytes as JSON.
type benched struct {
	Number int64  `json:"number"`
	Name   string `json:"name"`
	Text   string `json:"text"`
}

func (benched) Kind() string { return "benched" }

var (
	benchJob     = fencepost.NewJob{Payload: benched{1234567890, "benchmark", strings.Repeat("abcdefg ", 18)}}
	benchPayload = `{"number":1234567890,"name":"benchmark","text":"` + strings.Repeat("abcdefg ", 18) + `"}`
)

const rawInsert = "INSERT INTO fencepost.jobs (kind, payload) VALUES ($1, $2)"

func benchServer(b *testing.B) *pgxpool.Pool {
	server := pgtest.Server(b, pg.Options{Durable: true})
	if err := migrate(b.Context(), server.URL("postgres")); err != nil {
		b.Fatal(err)
	}
	return pgtest.Pool(b, server.URL("postgres")+"&pool_max_conns=16&default_query_exec_mode=cache_statement")
}

func execute(b *testing.B, pool *pgxpool.Pool, sql string) {
	b.Helper()
	if _, err := pool.Exec(b.Context(), sql); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkEnqueue is one job at a time, by 1 and by 16 goroutines; one
// operation of the latter is 16 × 25 jobs.
func BenchmarkEnqueue(b *testing.B) {
	pool := benchServer(b)
	client, err := fencepost.New(pool, fencepost.Config{})
	if err != nil {
		b.Fatal(err)
	}
	raw := func() {
		if _, err := pool.Exec(b.Context(), rawInsert, "benched", benchPayload); err != nil {
			b.Fatal(err)
		}
	}
	ours := func() {
		if _, err := client.Enqueue(b.Context(), benchJob); err != nil {
			b.Fatal(err)
		}
	}
	times := func(n int, do func()) func() {
		return func() {
			for range n {
				do()
			}
		}
	}
	b.Run("1", func(b *testing.B) { compare(b, times(25, raw), times(25, ours)) })
	b.Run("16", func(b *testing.B) {
		at16 := func(do func()) func() {
			return func() {
				var group sync.WaitGroup
				for range 16 {
					group.Go(times(25, do))
				}
				group.Wait()
			}
		}
		compare(b, at16(raw), at16(ours))
	})
}

// BenchmarkEnqueueMany is 10,000 jobs with their ids: beside a batch of plain
// INSERTs in one transaction.
func BenchmarkEnqueueMany(b *testing.B) {
	pool := benchServer(b)
	client, err := fencepost.New(pool, fencepost.Config{})
	if err != nil {
		b.Fatal(err)
	}
	jobs := slices.Repeat([]fencepost.NewJob{benchJob}, 10_000)
	compare(b, func() {
		execute(b, pool, "TRUNCATE fencepost.jobs")
		batch := new(pgx.Batch)
		for range jobs {
			batch.Queue(rawInsert, "benched", benchPayload)
		}
		if err := pool.SendBatch(b.Context(), batch).Close(); err != nil {
			b.Fatal(err)
		}
	}, func() {
		execute(b, pool, "TRUNCATE fencepost.jobs")
		if _, err := client.Enqueue(b.Context(), jobs...); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkEnqueueCopy is 100,000 jobs beside a COPY of these rows by hand, into
// the table without its trigger.
func BenchmarkEnqueueCopy(b *testing.B) {
	const jobs = 100_000
	pool := benchServer(b)
	client, err := fencepost.New(pool, fencepost.Config{})
	if err != nil {
		b.Fatal(err)
	}
	compare(b, func() {
		execute(b, pool, "TRUNCATE fencepost.jobs")
		execute(b, pool, "ALTER TABLE fencepost.jobs DISABLE TRIGGER bell")
		n, err := pool.CopyFrom(b.Context(), pgx.Identifier{"fencepost", "jobs"}, []string{"kind", "payload"},
			pgx.CopyFromSlice(jobs, func(int) ([]any, error) { return []any{"benched", benchPayload}, nil }))
		if err != nil || n != jobs {
			b.Fatal(n, err)
		}
	}, func() {
		execute(b, pool, "TRUNCATE fencepost.jobs")
		execute(b, pool, "ALTER TABLE fencepost.jobs ENABLE ALWAYS TRIGGER bell")
		n, err := client.EnqueueCopy(b.Context(), func(yield func(fencepost.NewJob) bool) {
			for range jobs {
				if !yield(benchJob) {
					return
				}
			}
		})
		if err != nil || n != jobs {
			b.Fatal(n, err)
		}
	})
}
