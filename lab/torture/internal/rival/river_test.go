package rival

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// The witness tells River's rescue of a job from an outcome. The leader rescues
// when it is elected, so a job that somebody left behind long ago is enough.
func TestRiverWitness(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server, err := pg.Start(ctx, pg.Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	var q riverQueue
	s := setting{queue: q, server: server}
	if err := s.prepare(ctx, "river"); err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(server.URL("river"))
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["application_name"] = "worker"
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig(config, conns))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	enqueue, err := q.enqueuer(pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return errors.Join(enqueue(ctx, tx, script.Order{Token: "plain"}), enqueue(ctx, tx, script.Order{Token: "stuck"}))
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `
UPDATE river_job SET state = 'running', attempt = 1, attempted_at = now() - interval '1 hour', attempted_by = '{gone}'
WHERE args ->> 'token' = 'stuck'`); err != nil {
		t.Fatal(err)
	}

	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- q.work(working, pool, "worker", handlers{run: func(context.Context, int64, int, script.Order) error { return nil }})
	}()
	for all := false; !all; {
		there, err := q.ended(ctx, pool)
		if err != nil {
			t.Fatal(err)
		}
		if all = there["plain"] && there["stuck"]; !all {
			if err := sleep(ctx, 50*time.Millisecond); err != nil {
				t.Fatalf("ended: %v", there)
			}
		}
	}
	if l, err := q.leader(ctx, pool); err != nil || l.name != "worker" {
		t.Errorf("leader %+v, %v", l, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}

	changes, err := q.changes(ctx, pool)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]change{}
	for _, c := range changes {
		token := c.Token
		c.At, c.Job, c.Token = 0, 0, ""
		got[token] = append(got[token], c)
	}
	want := map[string][]change{
		"plain": {
			{App: "worker", From: waiting, To: running, Before: 0, After: 1},
			{App: "worker", From: running, To: ended, Before: 1, After: 1},
		},
		"stuck": {
			{App: "worker", From: waiting, To: running, Before: 0, After: 1}, // by this test
			{App: "worker", From: running, To: waiting, Before: 1, After: 1, Rescue: true},
			{App: "worker", From: waiting, To: waiting, Before: 1, After: 1}, // its pause is over
			{App: "worker", From: waiting, To: running, Before: 1, After: 2},
			{App: "worker", From: running, To: ended, Before: 2, After: 2},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}
