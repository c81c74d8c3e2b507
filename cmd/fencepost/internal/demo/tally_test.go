package demo

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/migrations"
)

// The counts are worth nothing unless what they count is found when it is
// there. Each case is what the tables hold in the end: jobs 1 and 2 are of
// invoices 10 and 20, and both commits were acknowledged.
func TestTallyFindsEveryFault(t *testing.T) {
	t.Parallel()
	const (
		done1 = `SELECT finish(1, 100, 'done', 10);`
		done2 = `SELECT finish(2, 200, 'done', 20);`
		run1  = `SELECT effect(1, 100, 10, 0, 5);`
		run2  = `SELECT effect(2, 200, 20, 0, 5);`
	)
	cases := []struct {
		name   string
		tables string
		want   Report // without Enqueued
		broken int
	}{
		{
			"all well",
			done1 + run1 + done2 + run2,
			Report{Done: 2},
			0,
		},
		{
			"a job that has not ended",
			done1 + run1 + run2,
			Report{Done: 1, Lost: 1},
			2,
		},
		{
			"a done job without an effect",
			done1 + run1 + done2,
			Report{Done: 2, Lost: 1},
			1,
		},
		{
			"a done job with an effect of an earlier claim only",
			done1 + run1 + done2 + `SELECT effect(2, 199, 20, 0, 5);`,
			Report{Done: 2, Lost: 1},
			1,
		},
		{
			"a dead job is not lost",
			done1 + run1 + `SELECT finish(2, 200, 'dead', 20);`,
			Report{Done: 1, Dead: 1},
			0,
		},
		{
			"killed, and run again three seconds later",
			done1 + `SELECT effect(1, 90, 10, 0, 1); SELECT victim(1, 90, 'killed'); SELECT effect(1, 100, 10, 3, 4);` + done2 + run2,
			Report{Done: 2, RepeatedEffects: 1, RepeatedKilled: 1, RecoverySeconds: 3},
			0,
		},
		{
			"frozen, and its effect came after that of its successor",
			done1 + `SELECT effect(1, 100, 10, 3, 4); SELECT victim(1, 90, 'paused'); SELECT effect(1, 90, 10, 0, 6);` + done2 + run2,
			Report{Done: 2, RepeatedEffects: 1, RepeatedPaused: 1},
			0,
		},
		{
			"run again, one after the other, though its worker was well",
			done1 + `SELECT effect(1, 90, 10, 0, 1); SELECT effect(1, 100, 10, 3, 4);` + done2 + run2,
			Report{Done: 2, RepeatedEffects: 1},
			1,
		},
		{
			"run twice at once though its worker was well",
			done1 + `SELECT effect(1, 90, 10, 0, 4); SELECT effect(1, 100, 10, 3, 5);` + done2 + run2,
			Report{Done: 2, RepeatedEffects: 1, LiveOverlaps: 1},
			2,
		},
		{
			"run twice at once under one claim",
			done1 + run1 + run1 + done2 + run2,
			Report{Done: 2, RepeatedEffects: 1, LiveOverlaps: 1},
			2,
		},
	}
	p := short(t)
	s, err := build(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.strike(); err != nil {
			t.Error(err)
		}
	})
	err = s.pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		_, err := migrations.Up(t.Context(), conn.Conn(), s.schema)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := s.script(t.Context(), sqlHelpers+c.tables); err != nil {
				t.Fatal(err)
			}
			got := Report{Enqueued: 2, LateRefused: 1}
			if err := s.tally(t.Context(), &got, epoch); err != nil {
				t.Fatal(err)
			}
			c.want.Enqueued, c.want.LateRefused = got.Enqueued, got.LateRefused
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			if broken := got.Broken(); len(broken) != c.broken {
				t.Errorf("%d broken promises; want %d: %q", len(broken), c.broken, broken)
			}
		})
	}
}

// epoch is second 0 of sqlHelpers.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// sqlHelpers empty the tables and say short what they hold.
const sqlHelpers = `
SET search_path = {{schema}};
TRUNCATE effects, victims, finished;
CREATE OR REPLACE FUNCTION finish(id bigint, fence bigint, status text, invoice bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO finished (id, fence, run_at, created_at, keep_until, attempts, max_attempts, snoozes, priority, status, queue, kind, payload)
    VALUES (id, fence, now(), now(), now(), 1, 20, 0, 0, status, 'invoices', 'invoice', jsonb_build_object('id', invoice)) $$;
CREATE OR REPLACE FUNCTION effect(job bigint, fence bigint, invoice bigint, began int, ended int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO effects (job_id, fence, invoice_id, started_at, ended_at)
    VALUES (job, fence, invoice, '2026-01-01 00:00:00Z'::timestamptz + began * interval '1 s', '2026-01-01 00:00:00Z'::timestamptz + ended * interval '1 s') $$;
CREATE OR REPLACE FUNCTION victim(job bigint, fence bigint, fate text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO victims (job_id, fence, fate) VALUES (job, fence, fate) $$;
`
