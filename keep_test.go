package fencepost_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
)

// Done jobs whose time is up are deleted by the tick.
func TestDoneJobsGoWhenTheirTimeIsUp(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	client := newClient(t, pool, fencepost.Config{PollInterval: time.Second})
	ran := echo(client)
	if err := client.SetKeep(t.Context(), "default", time.Millisecond); err != nil {
		t.Fatal(err)
	}
	work(t, client)
	enqueue(t, client, fencepost.NewJob{Kind: "echo"})
	receive(t, ran, "the job")
	eventually(t, "the job is gone", func() bool { return count(t, pool, "SELECT count(*) FROM fencepost.all_jobs") == 0 })
}

// A database that does not let finished jobs be deleted keeps nobody from
// hearing bells and working.
func TestWhatCannotBeDeletedHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	_, pool := database(t)
	if _, err := admin(t, pool).Exec(t.Context(), `
		INSERT INTO fencepost.finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload)
			SELECT 1, 1, now(), now(), now(), 1, 1, 0, 0, 'done', 'default', 'old', '{}';
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'this table is an archive'; END $$;
		CREATE TRIGGER refuse BEFORE DELETE ON fencepost.finished EXECUTE FUNCTION refuse()`, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	config, states := hearing(fencepost.Config{PollInterval: never})
	client := newClient(t, pool, config)
	ran := echo(client)
	work(t, client)
	await(t, states, true)
	enqueue(t, client, fencepost.NewJob{Kind: "echo"})
	receive(t, ran, "a job")
}
