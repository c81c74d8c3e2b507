package claim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// exchange ends the rows as done and claims up to n jobs of each queue.
func (b *bench) exchange(conn claim.DB, done []claim.Row, n int, queues ...string) ([]claim.Result, []claim.Claimed, error) {
	var outcomes []claim.Outcome
	for _, row := range done {
		outcomes = append(outcomes, claim.Outcome{Lease: row.Lease(), Verb: claim.Done})
	}
	var requests []claim.Request
	for _, queue := range queues {
		requests = append(requests, claim.Request{Queue: queue, Limit: n})
	}
	return b.Exchange(b.ctx, conn, outcomes, requests, lease, "worker")
}

// Outcomes and the claims of several queues are one commit, in every mode.
func TestAnExchangeIsOneCommit(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			b := healthy.fresh(t)
			b.conn = b.connectIn(mode)
			for range 2 { // so that cached statements are used as well
				b.insert(2)
				rows := b.take(2, lease)
				b.insert(3)
				b.exec("INSERT INTO {{schema}}.jobs (kind, queue) VALUES ('test', 'other')")
				b.exec("INSERT INTO {{schema}}.jobs (kind, queue, run_at) VALUES ('test', 'other', clock_timestamp() + interval '1 hour')")
				results, claimed, err := b.exchange(b.conn, rows, 2, queue, "other", "empty")
				if err != nil || !slices.Equal(results, []claim.Result{claim.Stored, claim.Stored}) {
					t.Fatal(results, err)
				}
				if len(claimed) != 3 || len(claimed[0].Rows) != 2 || len(claimed[1].Rows) != 1 || len(claimed[2].Rows) != 0 {
					t.Fatalf("claimed %+v", claimed)
				}
				if next := claimed[1]; claimed[0].HasNext || !next.HasNext || next.Next < 59*time.Minute || claimed[2].HasNext {
					t.Errorf("what is next: %+v", claimed)
				}
				if row := claimed[1].Rows[0]; row.Queue != "other" || row.Kind != "test" || row.Attempt != 1 {
					t.Errorf("claimed %+v", row)
				}
				expect(b, int64(1), `SELECT count(DISTINCT xmin::text) FROM (
					SELECT xmin FROM {{schema}}.finished UNION ALL SELECT xmin FROM {{schema}}.jobs WHERE status = 'running') AS x`)
				b.fresh(t)
			}
			if results, claimed, err := b.Exchange(b.ctx, b.conn, nil, nil, lease, "worker"); err != nil || len(results)+len(claimed) != 0 {
				t.Error(results, claimed, err)
			}
		})
	}
}

// A job that its outcome makes ready again may be in the same exchange's claim,
// under another fence.
func TestAnExchangeMayClaimWhatItGivesBack(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(1)
	row := b.takeOne(lease)
	outcomes := []claim.Outcome{{Lease: row.Lease(), Verb: claim.Release}}
	results, claimed, err := b.Exchange(b.ctx, b.conn, outcomes, []claim.Request{{Queue: queue, Limit: 1}}, lease, "worker")
	if err != nil || results[0] != claim.Stored || len(claimed[0].Rows) != 1 {
		t.Fatal(results, claimed, err)
	}
	if again := claimed[0].Rows[0]; again.ID != row.ID || again.Fence <= row.Fence || again.Attempt != 2 {
		t.Errorf("claimed %+v after %+v", again, row)
	}
}

// One part of an exchange that the server refuses refuses all of it, and says so
// in a way that tells it from one that may have happened. What is sent apart
// works, and nothing is left of the exchange.
func TestARefusedExchangeHasNotHappened(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	for name, ddl := range map[string]string{
		"outcome": `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF OLD.kind = 'bad' THEN RAISE 'no'; END IF; RETURN OLD;
			END $$;
			CREATE TRIGGER no BEFORE DELETE ON {{schema}}.jobs FOR EACH ROW EXECUTE FUNCTION no()`,
		"claim": `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF NEW.queue = 'bad' THEN RAISE 'no' USING ERRCODE = '40001'; END IF; RETURN NEW;
			END $$;
			CREATE TRIGGER no BEFORE UPDATE ON {{schema}}.jobs FOR EACH ROW EXECUTE FUNCTION no()`,
		"commit": `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF NEW.queue = 'bad' THEN RAISE 'no' USING ERRCODE = '23000'; END IF; RETURN NULL;
			END $$;
			CREATE CONSTRAINT TRIGGER no AFTER UPDATE ON {{schema}}.jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION no()`,
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t)
			b.exec("INSERT INTO {{schema}}.jobs (kind) VALUES ('bad'), ('test')")
			rows := b.take(2, lease)
			b.insert(1)
			b.exec("INSERT INTO {{schema}}.jobs (kind, queue) VALUES ('test', 'bad')")
			if _, err := b.conn.PgConn().Exec(b.ctx, named(ddl, schema)).ReadAll(); err != nil {
				t.Fatal(err)
			}
			defer b.exec("DROP FUNCTION no() CASCADE")
			before := b.dump()
			for _, mode := range modes {
				conn := b.connectIn(mode)
				results, claimed, err := b.exchange(conn, rows, 5, queue, "bad")
				if !errors.Is(err, claim.ErrApart) || errors.Is(err, claim.ErrUnknown) || !strings.HasPrefix(err.Error(), "exchange: ") {
					t.Errorf("%s: %v, want ErrApart", mode, err)
				}
				if results != nil || claimed != nil || b.dump() != before {
					t.Errorf("%s: the exchange has left something: %v, %v", mode, results, claimed)
				}
				if conn.IsClosed() {
					t.Errorf("%s: the connection did not survive", mode)
				}
			}
			results, claimed, err := b.exchange(b.conn, rows[1:], 5, queue)
			if err != nil || results[0] != claim.Stored || len(claimed[0].Rows) != 1 {
				t.Errorf("without what is refused: %v, %v, %v", results, claimed, err)
			}
		})
	}
}

// Nobody knows what became of an exchange whose answer is lost. It happened:
// its outcomes, sent again, are found stored, and what it has claimed comes back
// when its lease is over.
func TestAnExchangeWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(2)
	rows := b.take(2, lease)
	b.insert(1)
	conn := b.losesAnswers()
	results, claimed, err := b.exchange(conn, rows, 5, queue)
	wantKind(t, err, claim.ErrUnknown, "exchange")
	if errors.Is(err, claim.ErrApart) || results != nil || claimed != nil {
		t.Errorf("got %v, %v, %v", results, claimed, err)
	}
	results, _, err = b.exchange(b.conn, rows, 5)
	if err != nil || !slices.Equal(results, []claim.Result{claim.Stored, claim.Stored}) {
		t.Errorf("sent again: %v, %v", results, err)
	}
	expect(b, int64(1), "SELECT count(*) FROM {{schema}}.jobs WHERE status = 'running' AND attempts = 1")
	b.expire("true")
	if ticked := b.tick(); ticked.Reaped != 1 {
		t.Errorf("reaped %d jobs that nobody knows of, want 1", ticked.Reaped)
	}
}

// A backend that is ended in the middle is no refusal.
func TestAnExchangeOfATerminatedBackend(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(1)
	if _, err := b.conn.PgConn().Exec(b.ctx, named(`
		CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW;
		END $$;
		CREATE TRIGGER no BEFORE UPDATE ON {{schema}}.jobs FOR EACH ROW EXECUTE FUNCTION no()`, schema)).ReadAll(); err != nil {
		t.Fatal(err)
	}
	_, _, err := b.exchange(b.connect(), nil, 5, queue, "other")
	wantKind(t, err, claim.ErrUnknown, "exchange")
	if errors.Is(err, claim.ErrApart) {
		t.Error(err)
	}
}

// Rows that nobody needs any more lend their memory to those of the next claim,
// and nothing else.
func TestAClaimUsesTheMemoryItIsGiven(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	old := make([]claim.Row, 2)
	for i := range old {
		old[i] = claim.Row{ID: -1, Kind: "old", Payload: []byte("old"), Progress: []byte("old"), Attempt: 9}
	}
	b.insert(3)
	for _, want := range []int{2, 1, 0} {
		c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 2, Into: old}, lease, "worker")
		if err != nil || len(c.Rows) != want || want > 0 && &c.Rows[0] != &old[0] {
			t.Fatal(c, err)
		}
		for _, row := range c.Rows {
			if row.ID < firstID || row.Kind != "test" || string(row.Payload) != "{}" || row.Progress != nil || row.Attempt != 1 {
				t.Errorf("claimed %+v", row)
			}
		}
	}
	b.insert(20)
	if c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: queue, Limit: 50, Into: old}, lease, "worker"); err != nil || len(c.Rows) != 20 {
		t.Fatal(c, err)
	}
}
