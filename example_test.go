package fencepost_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
)

type Invoice struct {
	ID int64 `json:"id"`
}

func (Invoice) Kind() string { return "send_invoice" }

// The main job: enqueue, work, stop.
func Example() {
	pool, done := examplePool() // pgxpool.New, on a database after "fencepost migrate up"
	defer done()
	ctx, stop := context.WithCancel(context.Background())

	client, err := fencepost.New(pool, fencepost.Config{})
	if err != nil {
		log.Fatal(err)
	}
	fencepost.Handle(client, func(ctx context.Context, job *fencepost.Job[Invoice]) error {
		fmt.Println("sending invoice", job.Payload.ID)
		stop() // a service stops on SIGTERM
		return nil
	})
	if _, err := client.Enqueue(ctx, fencepost.NewJob{Payload: Invoice{ID: 7}}); err != nil {
		log.Fatal(err)
	}
	if err := client.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: sending invoice 7
}

// A job that exists exactly if the row it belongs to does.
func ExampleClient_In() {
	pool, done := examplePool()
	defer done()
	ctx := context.Background()
	client, err := fencepost.New(pool, fencepost.Config{})
	if err != nil {
		log.Fatal(err)
	}

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var id int64
		if err := tx.QueryRow(ctx, "INSERT INTO invoices DEFAULT VALUES RETURNING id").Scan(&id); err != nil {
			return err
		}
		_, err := client.In(tx).Enqueue(ctx, fencepost.NewJob{Payload: Invoice{ID: id}, Delay: time.Hour})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	jobs, err := client.List(ctx, fencepost.Filter{Status: fencepost.StatusScheduled})
	if err != nil {
		log.Fatal(err)
	}
	for _, job := range jobs {
		fmt.Println(job.Kind, string(job.Payload), job.Status)
	}
	// Output: send_invoice {"id": 1} scheduled
}

// Many jobs from a source that may fail, such as a file: all of them, or none.
func ExampleClient_EnqueueCopy() {
	pool, done := examplePool()
	defer done()
	client, err := fencepost.New(pool, fencepost.Config{})
	if err != nil {
		log.Fatal(err)
	}
	load := func(file io.Reader) (int64, error) {
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		return client.EnqueueCopy(ctx, func(yield func(fencepost.NewJob) bool) {
			lines := bufio.NewScanner(file)
			for lines.Scan() {
				id, err := strconv.ParseInt(lines.Text(), 10, 64)
				if err != nil {
					cancel(err) // nothing is stored
					return
				}
				if !yield(fencepost.NewJob{Payload: Invoice{ID: id}}) {
					return
				}
			}
			if err := lines.Err(); err != nil {
				cancel(err)
			}
		})
	}

	fmt.Println(load(strings.NewReader("7\n8\n9\n")))
	_, err = load(strings.NewReader("10\neleven\n12\n"))
	fmt.Println(errors.Is(err, strconv.ErrSyntax))
	n, err := client.Count(context.Background(), fencepost.Filter{})
	fmt.Println(n, err)
	// Output:
	// 3 <nil>
	// true
	// 3 <nil>
}

// Effect and completion in one transaction: both happen, or neither.
func ExampleJob_CompleteTx() {
	pool, done := examplePool()
	defer done()
	ctx, stop := context.WithCancel(context.Background())
	client, err := fencepost.New(pool, fencepost.Config{})
	if err != nil {
		log.Fatal(err)
	}

	fencepost.Handle(client, func(ctx context.Context, job *fencepost.Job[Invoice]) error {
		defer stop()
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO invoices (id) VALUES ($1)", job.Payload.ID); err != nil {
				return err
			}
			return job.CompleteTx(ctx, tx)
		})
	})
	ids, err := client.Enqueue(ctx, fencepost.NewJob{Payload: Invoice{ID: 42}})
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Run(ctx); err != nil {
		log.Fatal(err)
	}
	job, err := client.Get(context.Background(), ids[0])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Status)
	// Output: done
}

// A guard for writes to your own tables: whoever lost the lease changes
// nothing there either.
func ExampleFenced() {
	pool, done := examplePool()
	defer done()
	ctx := context.Background()
	send := func(id, fence int64) error {
		return fencepost.Fenced(pool.Exec(ctx,
			"UPDATE invoices SET sent_at = now(), fence = $2 WHERE id = $1 AND fence < $2", id, fence))
	}
	if _, err := pool.Exec(ctx, "INSERT INTO invoices (id) VALUES (7)"); err != nil {
		log.Fatal(err)
	}

	fmt.Println(send(7, 1002)) // the worker that took over
	err := send(7, 1001)       // the one that froze and woke up
	fmt.Println(errors.Is(err, fencepost.ErrLeaseLost))
	// Output:
	// <nil>
	// true
}

// What a handler's error can say.
func ExampleHandle_outcomes() {
	pool, done := examplePool()
	defer done()
	client, err := fencepost.New(pool, fencepost.Config{})
	if err != nil {
		log.Fatal(err)
	}
	fencepost.Handle(client, func(ctx context.Context, job *fencepost.Job[Invoice]) error {
		switch err := send(ctx, job.Key(), job.Payload); {
		case errors.Is(err, errBusy):
			return fencepost.Snooze(time.Minute) // the attempt does not count
		case errors.Is(err, errRateLimit):
			return fencepost.RetryAfter(30*time.Second, err)
		case errors.Is(err, errNoSuchCustomer):
			return fencepost.Dead(err) // no attempt can help
		case errors.Is(err, errWithdrawn):
			return fencepost.Cancel(err)
		default:
			return err // nil: done; anything else: retried, by default up to 20 attempts
		}
	}, fencepost.WithTimeout(time.Minute))
}

var (
	errBusy           = errors.New("busy")
	errRateLimit      = errors.New("rate limit")
	errNoSuchCustomer = errors.New("no such customer")
	errWithdrawn      = errors.New("withdrawn")
)

// send stands for a call to the outside, which takes the job's key as its
// idempotency key.
func send(context.Context, string, Invoice) error { return nil }

func examplePool() (pool *pgxpool.Pool, done func()) {
	tb := &exampleTB{}
	_, pool = database(tb)
	if _, err := pool.Exec(context.Background(), "CREATE TABLE invoices (id bigint GENERATED BY DEFAULT AS IDENTITY, sent_at timestamptz, fence bigint NOT NULL DEFAULT 0)"); err != nil {
		log.Fatal(err)
	}
	return pool, tb.end
}
