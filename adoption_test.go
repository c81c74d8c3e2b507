package fencepost_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost"
)

// While a program works that writes no claims, each look for its jobs finds some
// that are new. They are no reason to look again at once, and so on for as long as
// it works: each look reads a part of the table.
func TestLooksForJobsOfOldProgramsArePaced(t *testing.T) {
	t.Parallel()
	dsn, watcher := database(t)
	if _, err := admin(t, watcher).Exec(t.Context(), `
		INSERT INTO fencepost.workers (worker_id) VALUES ('old');
		INSERT INTO fencepost.jobs (kind, status, attempts, worker_id, lease_until)
		VALUES ('test', 'running', 1, 'old', clock_timestamp() + interval '1 hour');
		-- What was found is not named for long, as if it had ended and another had begun.
		CREATE FUNCTION fencepost.forget() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
		$$BEGIN DELETE FROM fencepost.claims WHERE id = NEW.id; RETURN NULL; END$$;
		CREATE TRIGGER forget AFTER INSERT ON fencepost.claims FOR EACH ROW EXECUTE FUNCTION fencepost.forget()`); err != nil {
		t.Fatal(err)
	}
	sent := make(statements, 10_000)
	config, states := hearing(fencepost.Config{})
	client := newClient(t, traced(t, dsn, sent), config)
	echo(client)
	work(t, client)
	await(t, states, true)
	looked := func() time.Time {
		for !strings.Contains(receive(t, sent, "a look for running jobs").sql, "j.ctid >=") {
		}
		return time.Now()
	}
	looked()
	looked() // the start asks for a second one
	before := looked()
	for range 2 {
		now := looked()
		// The guard, and an interval is fifteen times as long.
		if took := now.Sub(before); took < 1900*time.Millisecond || took > 10*time.Second {
			t.Errorf("the next look comes after %v", took)
		}
		before = now
	}
}
