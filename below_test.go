package fencepost_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
)

// While somebody's snapshot keeps what has ended in the index, claims begin at
// their mark. A job that commits late, with a run_at far below it, is found all
// the same, by the alarm for the next look below the mark: without polling, and
// without another bell.
func TestAJobBelowTheMark(t *testing.T) {
	t.Parallel()
	const dead = 50_000
	_, pool := database(t)
	boss := admin(t, pool)
	exec := func(sql string) {
		t.Helper()
		if _, err := boss.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(options pgx.TxOptions, sql string) pgx.Tx {
		t.Helper()
		tx, err := pool.BeginTx(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	exec("ALTER TABLE fencepost.jobs SET (autovacuum_enabled = off)")
	if _, err := boss.Exec(t.Context(), `INSERT INTO fencepost.jobs (kind, run_at)
		SELECT 'k', clock_timestamp() - interval '1 hour' FROM generate_series(1, $1::int)`, dead); err != nil {
		t.Fatal(err)
	}
	snapshot := begin(pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, "SELECT FROM fencepost.jobs LIMIT 1")
	exec("DELETE FROM fencepost.jobs")

	config, states := hearing(fencepost.Config{PollInterval: never})
	client := newClient(t, pool, config)
	starts := recordStarts(client, pool.QueryRow)
	work(t, client)
	await(t, states, true)

	for range 5 { // each look may take twice as long as the last, and so does the wait for it
		late := begin(pgx.TxOptions{}, "INSERT INTO fencepost.jobs (kind, payload, run_at) VALUES ('k', '1', clock_timestamp() - interval '1 minute')")
		enqueue(t, client, fencepost.NewJob{Kind: "k", Payload: 1})
		first := receive(t, starts, "a job that commits at once")
		if err := late.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := receive(t, starts, "the job that committed late"); s.id == first.id {
			t.Errorf("job %d started twice", s.id)
		}
	}
	if err := snapshot.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}
