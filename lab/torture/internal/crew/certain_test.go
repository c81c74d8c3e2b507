package crew

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

func TestWhatIsKnownAfterACommit(t *testing.T) {
	server := func(severity, code string) error {
		return fmt.Errorf("commit: %w", &pgconn.PgError{SeverityUnlocalized: severity, Code: code})
	}
	for _, c := range []struct {
		err  error
		want history.Phase
	}{
		{nil, history.OK},
		{server("ERROR", "40001"), history.Failed},
		{server("ERROR", "23505"), history.Failed},
		{fmt.Errorf("commit: %w", pgx.ErrTxCommitRollback), history.Failed},
		{sql.ErrTxDone, history.Failed},
		{server("FATAL", "57P01"), history.Unknown}, // it may have committed before
		{server("PANIC", "53100"), history.Unknown},
		{server("ERROR", "08P01"), history.Unknown}, // a pooler's
		{io.ErrUnexpectedEOF, history.Unknown},
		{context.DeadlineExceeded, history.Unknown},
	} {
		if got := committed(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

func TestWhatIsKnownAfterACallOfTheQueue(t *testing.T) {
	for _, c := range []struct {
		err  error
		want history.Phase
	}{
		{nil, history.OK},
		{fencepost.ErrLeaseLost, history.Refusal},
		{claim.ErrTryAgain, history.Failed},
		{claim.ErrReadOnly, history.Failed},
		{claim.ErrUnknown, history.Unknown},
		{errors.New("anything"), history.Unknown},
	} {
		if got := answered(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

// What real commits return: one that was never sent, one into a session that
// has ended before, and one whose session is ended in the middle of it.
func TestWhatIsKnownAfterARealCommit(t *testing.T) {
	dsn := database(t)
	other := pgtest.Conn(t, dsn)
	begin := func() (*pgx.Conn, pgx.Tx) {
		conn := pgtest.Conn(t, dsn)
		tx, err := conn.Begin(t.Context())
		if err == nil {
			_, err = tx.Exec(t.Context(), `INSERT INTO shop.effects (token, job, fence) VALUES ('x', 1, 1)`)
		}
		if err != nil {
			t.Fatal(err)
		}
		return conn, tx
	}
	end := func(conn *pgx.Conn) {
		if _, err := other.Exec(t.Context(), `SELECT pg_terminate_backend($1, 5000)`, conn.PgConn().PID()); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, tx := begin()
	if got := committed(tx.Commit(ended)); got != history.Failed {
		t.Errorf("a commit that was not sent: %s", got)
	}

	conn, tx := begin()
	end(conn)
	if got := committed(tx.Commit(t.Context())); got == history.OK {
		t.Errorf("a commit into a session that has ended: %s", got)
	}

	_, err := other.Exec(t.Context(), `
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON shop.effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()`)
	if err != nil {
		t.Fatal(err)
	}
	conn, tx = begin()
	answer := make(chan error)
	go func() { answer <- tx.Commit(t.Context()) }()
	for asleep := false; !asleep; {
		err := other.QueryRow(t.Context(), `SELECT coalesce(wait_event = 'PgSleep', false) FROM pg_stat_activity WHERE pid = $1`, conn.PgConn().PID()).Scan(&asleep)
		if err != nil {
			t.Fatal(err)
		}
	}
	end(conn)
	if got := committed(<-answer); got != history.Unknown {
		t.Errorf("a commit whose session was ended: %s", got)
	}
	var rows int
	if err := other.QueryRow(t.Context(), `SELECT count(*) FROM shop.effects`).Scan(&rows); err != nil || rows > 0 {
		t.Errorf("%d of these have committed after all, %v", rows, err)
	}
}
