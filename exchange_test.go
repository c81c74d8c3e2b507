package fencepost_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/faultproxy"
)

// One queue whose claims never work, whether the server refuses them or they
// cost the connection, and one job that cannot end, keep no outcome from being
// stored and no other queue from being worked.
func TestOnePartOfATripHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"claims refused":              `IF TG_OP = 'UPDATE' AND NEW.queue = 'bad' THEN RAISE 'no'; END IF`,
		"claims that end the session": `IF TG_OP = 'UPDATE' AND NEW.queue = 'bad' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF`,
		"an outcome refused":          `IF TG_OP = 'DELETE' AND OLD.kind = 'kept' THEN RAISE 'no'; END IF`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, pool := database(t)
			if _, err := admin(t, pool).Exec(t.Context(), fmt.Sprintf(`
				CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
					%s; RETURN coalesce(NEW, OLD);
				END $$;
				CREATE TRIGGER no BEFORE UPDATE OR DELETE ON fencepost.jobs FOR EACH ROW EXECUTE FUNCTION no()`, body)); err != nil {
				t.Fatal(err)
			}
			client := newClient(t, pool, fencepost.Config{
				Queues: map[string]fencepost.Queue{"bad": {}, "default": {Slots: 2}, "other": {Slots: 2}},
			})
			for _, kind := range []string{"k", "kept"} {
				fencepost.HandleKind(client, kind, func(context.Context, *fencepost.Job[json.RawMessage]) error { return nil })
			}
			enqueue(t, client, fencepost.NewJob{Kind: "k", Queue: "bad"}, fencepost.NewJob{Kind: "kept"})
			for range 5 {
				enqueue(t, client, fencepost.NewJob{Kind: "k"}, fencepost.NewJob{Kind: "k", Queue: "other"})
			}
			work(t, client)
			eventually(t, "all other jobs are done, at their first attempt", func() bool {
				return count(t, pool, "SELECT count(*) FROM fencepost.finished WHERE kind = 'k' AND queue <> 'bad' AND attempts = 1") == 10
			})
			if _, err := admin(t, pool).Exec(t.Context(), "DROP FUNCTION no() CASCADE"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "all jobs are done", func() bool { return count(t, pool, "SELECT count(*) FROM fencepost.jobs") == 0 })
		})
	}
}

// The answer to a trip that has stored an outcome and claimed a job is lost with
// its connection. The outcome is sent again and found stored; the claimed job,
// which nobody here knows of, comes back when its lease is over.
func TestATripWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	dsn, direct := database(t)
	proxy := faultproxy.New(t, dsn)
	// The proxy reads statements of this mode only.
	pool := poolThrough(t, dsn, proxy, func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol })
	config, states := hearing(fencepost.Config{
		Lease: 2 * time.Second, PollInterval: time.Second,
		Queues: map[string]fencepost.Queue{fencepost.DefaultQueue: {Slots: 1}},
	})
	config.Observer.Refused = func(job, fence int64) {
		t.Errorf("the outcome of job %d under fence %d was called refused", job, fence)
	}
	client := newClient(t, pool, config)
	began, release := hold(client)
	work(t, client)
	await(t, states, true)
	ids := enqueue(t, newClient(t, direct, fencepost.Config{}), fencepost.NewJob{Kind: "hold"}, fencepost.NewJob{Kind: "hold"})
	receive(t, began, "the first job")

	var once sync.Once
	lost := make(chan struct{})
	proxy.OnQuery(func(sql string) *pgproto3.ErrorResponse {
		if strings.Contains(sql, "attempts = j.attempts + 1") && strings.Contains(sql, "DELETE FROM") {
			once.Do(func() {
				proxy.Strand() // this trip still gets through, its answer does not
				close(lost)
			})
		}
		return nil
	})
	close(release)
	receive(t, lost, "a trip with an outcome and a claim")
	if attempt := receive(t, began, "the second job"); attempt != 2 {
		t.Errorf("attempt %d of the second job has run, want the second: the first was lost with its claim", attempt)
	}
	for i, id := range ids {
		if info := ended(t, newClient(t, direct, fencepost.Config{}), id); info.Status != fencepost.StatusDone || info.Attempts != i+1 {
			t.Errorf("job %d is %s after %d attempts: %s", id, info.Status, info.Attempts, info.LastError)
		}
	}
}
