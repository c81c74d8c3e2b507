package fencepost_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost"
)

// After a takeover a handler is told that its lease is lost, by its context
// and by everything that it tries to write about the job, and nothing that it
// does changes the job: not even commits it should not have made (B54).
func TestALateHandlerChangesNothing(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	refused := make(chan int64, 1)
	client := newClient(t, pool, fencepost.Config{
		Lease:    2 * time.Second,
		Observer: fencepost.Observer{Refused: func(id, _ int64) { refused <- id }},
	})
	began, said := make(chan struct{}), make(chan map[string]error, 1)
	fencepost.HandleKind(client, "k", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
		close(began)
		<-ctx.Done()
		late := map[string]error{"context": context.Cause(ctx)}
		ctx = context.WithoutCancel(ctx)
		late["SetProgress"] = job.SetProgress(ctx, "late")
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		late["CompleteTx"] = job.CompleteTx(ctx, tx)
		sqlTx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		late["CompleteSQLTx"] = job.CompleteSQLTx(ctx, sqlTx)
		said <- late
		return errors.Join(tx.Commit(ctx), sqlTx.Commit())
	})
	id := enqueue(t, client, fencepost.NewJob{Kind: "k"})[0]
	work(t, client)
	receive(t, began, "the handler")
	if _, err := pool.Exec(t.Context(), `UPDATE fencepost.jobs
		SET fence = fence + 1, attempts = 2, worker_id = 'successor', lease_until = clock_timestamp() + interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	job := func() (doc string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT to_jsonb(j)::text FROM fencepost.jobs AS j WHERE j.id = $1", id).Scan(&doc); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	before := job()
	for what, err := range receive(t, said, "the late handler") {
		if !errors.Is(err, fencepost.ErrLeaseLost) {
			t.Errorf("%s: %v, want ErrLeaseLost", what, err)
		}
	}
	if got := receive(t, refused, "the late outcome to be refused"); got != id {
		t.Errorf("the outcome of job %d was refused, want %d", got, id)
	}
	if after := job(); after != before {
		t.Errorf("the late handler changed the job from\n%s\nto\n%s", before, after)
	}
}
