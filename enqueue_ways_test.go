package fencepost_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// ways are all ways of jobs into the table that go through the client.
var ways = map[string]func(context.Context, *fencepost.Client, *pgxpool.Pool, []fencepost.NewJob) error{
	"one at a time": func(ctx context.Context, client *fencepost.Client, _ *pgxpool.Pool, jobs []fencepost.NewJob) error {
		for _, job := range jobs {
			if _, err := client.Enqueue(ctx, job); err != nil {
				return err
			}
		}
		return nil
	},
	"many": func(ctx context.Context, client *fencepost.Client, _ *pgxpool.Pool, jobs []fencepost.NewJob) error {
		return ordered(client.Enqueue(ctx, jobs...))
	},
	"In": func(ctx context.Context, client *fencepost.Client, pool *pgxpool.Pool, jobs []fencepost.NewJob) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return ordered(client.In(tx).Enqueue(ctx, jobs...))
		})
	},
	"InSQL": func(ctx context.Context, client *fencepost.Client, pool *pgxpool.Pool, jobs []fencepost.NewJob) error {
		return inSQL(ctx, client, stdlib.OpenDBFromPool(pool), jobs)
	},
	"InSQL, a driver that knows no arrays": func(ctx context.Context, client *fencepost.Client, pool *pgxpool.Pool, jobs []fencepost.NewJob) error {
		return inSQL(ctx, client, sql.OpenDB(plainDriver{stdlib.GetPoolConnector(pool)}), jobs)
	},
	"COPY": func(ctx context.Context, client *fencepost.Client, _ *pgxpool.Pool, jobs []fencepost.NewJob) error {
		return all(len(jobs))(client.EnqueueCopy(ctx, slices.Values(jobs)))
	},
	"COPY, In": func(ctx context.Context, client *fencepost.Client, pool *pgxpool.Pool, jobs []fencepost.NewJob) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return all(len(jobs))(client.In(tx).EnqueueCopy(ctx, slices.Values(jobs)))
		})
	},
}

func inSQL(ctx context.Context, client *fencepost.Client, db *sql.DB, jobs []fencepost.NewJob) error {
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, some := range [][]fencepost.NewJob{jobs[:1], jobs[1:]} { // a statement for one, and for many
		if err := ordered(client.InSQL(tx).Enqueue(ctx, some...)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// plainDriver is pgx's without what only it has: parameters are what
// database/sql knows, and no arrays.
type plainDriver struct{ driver.Connector }

func (d plainDriver) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := d.Connector.Connect(ctx)
	return plainConn{conn}, err
}

type plainConn struct{ driver.Conn }

func (c plainConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

func (c plainConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func ordered(ids []int64, err error) error {
	if err == nil && !slices.IsSorted(ids) {
		err = fmt.Errorf("ids are not in the order of the jobs")
	}
	return err
}

func all(want int) func(int64, error) error {
	return func(n int64, err error) error {
		if err == nil && n != int64(want) {
			err = fmt.Errorf("%d jobs were counted, want %d", n, want)
		}
		return err
	}
}

// Each way stores the same of the same jobs, in their order, in every mode in
// which pgx sends statements.
func TestEveryWayStoresTheSame(t *testing.T) {
	t.Parallel()
	at := time.Date(2031, 2, 3, 4, 5, 6, 789123000, time.FixedZone("", -7*3600))
	odd := []string{
		"k", "a b", "NULL", "null", `\N`, `\.`, `\`, `\\`, `"`, `""`, `'`, `''`, ",", "{}", `{"a",b}`, "\t", "\n", "\r\n", "\r", "\b\f\v", " x ",
		`\n`, `a\tb`, "$1", "--", "é 漢 🙂", "\u2028", "\ufeff", "\ue000", "::text", "%s", "\x01\x7f", strings.Repeat("🙂", 32),
	}
	payloads := []string{
		`{}`, `null`, `[]`, `"x"`, `1`, `true`, `9007199254740993`, `-9223372036854775808`, `0.1000000000000000055511151231257827`,
		"{\n\t\"a\": [1,\r\n 2]}", `"\\N"`, `"\\.\t\n\r\"\\"`, `"\\u0000"`, `"<a href='x'>&amp;"`, `"\u2028 é 漢 🙂 \ud83d\ude00"`,
		`{"NULL": null, "{": "}", ",": "\""}`, strings.Repeat("9", 900), `"` + strings.Repeat("x", 100_000) + `"`,
	}
	var jobs []fencepost.NewJob
	for i, text := range odd {
		job := fencepost.NewJob{Kind: text, Queue: odd[len(odd)-1-i], Payload: raw(payloads[i%len(payloads)]), Priority: i%5 - 2, MaxAttempts: i + 1}
		switch i % 4 {
		case 1:
			job.Delay = time.Duration(i)*time.Hour + 999*time.Nanosecond // which is cut
		case 2:
			job.RunAt = at.AddDate(i, 0, 0)
		case 3:
			job.RunAt = time.Date(1970, 1, 1, 0, 0, 0, i*1000, time.UTC)
		}
		jobs = append(jobs, job)
	}
	jobs = append(jobs, fencepost.NewJob{Payload: invoice{Number: 1}}) // the defaults

	type stored struct {
		Kind, Queue, Payload  string
		Priority, MaxAttempts int
		RunAt, CreatedAt      time.Time
		Rest                  bool // the other columns have their defaults
	}
	dsn, watch := database(t)
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		for name, way := range ways {
			t.Run(mode+", "+name, func(t *testing.T) {
				defer script(t, watch, "DELETE FROM fencepost.jobs")
				pool := pgtest.Pool(t, pgtest.As(t, pgtest.Admin(t, dsn), producerRole)+"&default_query_exec_mode="+mode)
				client := newClient(t, pool, fencepost.Config{})
				var begin, end time.Time
				const clock = "SELECT clock_timestamp()"
				if err := watch.QueryRow(t.Context(), clock).Scan(&begin); err != nil {
					t.Fatal(err)
				}
				if err := way(t.Context(), client, pool, jobs); err != nil {
					t.Fatal(err)
				}
				if err := watch.QueryRow(t.Context(), clock).Scan(&end); err != nil {
					t.Fatal(err)
				}
				rows, err := watch.Query(t.Context(), `SELECT kind, queue, payload::text, priority, max_attempts, run_at, created_at,
					status = 'ready' AND fence = 0 AND attempts = 0 AND snoozes = 0 AND lease_until IS NULL AND last_error IS NULL
					FROM fencepost.jobs ORDER BY id`)
				if err != nil {
					t.Fatal(err)
				}
				got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stored])
				if err != nil || len(got) != len(jobs) {
					t.Fatalf("%d rows, want %d; %v", len(got), len(jobs), err)
				}
				for i, job := range jobs {
					payload, queue, attempts := `{"number": 1}`, job.Queue, job.MaxAttempts
					if i < len(odd) {
						payload = string(job.Payload.(json.RawMessage))
					} else {
						job.Kind, queue, attempts = "invoice", "default", 20
					}
					g := got[i]
					if g.Kind != job.Kind || g.Queue != queue || g.Priority != job.Priority || g.MaxAttempts != attempts ||
						canonical(t, raw(g.Payload)) != canonical(t, raw(payload)) || !g.Rest {
						t.Errorf("job %d, %+.200v, is stored as %+.200v", i, job, g)
					}
					if !job.RunAt.IsZero() {
						if !g.RunAt.Equal(job.RunAt) {
							t.Errorf("job %d is due at %v, want %v", i, g.RunAt, job.RunAt)
						}
					} else if delay := job.Delay.Truncate(time.Microsecond); g.RunAt.Before(begin.Add(delay)) || g.RunAt.After(end.Add(delay)) {
						t.Errorf("job %d is due at %v, want %v after a time between %v and %v", i, g.RunAt, delay, begin, end)
					}
				}
			})
		}
	}
}
