package claim_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

var sentinels = []error{claim.ErrLeaseLost, claim.ErrUnknown, claim.ErrTryAgain, claim.ErrReadOnly, claim.ErrNotFound, claim.ErrRejected}

// wantKind checks that err wraps exactly the one sentinel, and the operation.
func wantKind(t *testing.T, err, want error, op string) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: no error", op)
	}
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel) != (sentinel == want) {
			t.Errorf("%s: %v: is %q: %v", op, err, sentinel, sentinel != want)
		}
	}
	if !strings.HasPrefix(err.Error(), op+": ") && !strings.HasPrefix(err.Error(), op+" ") {
		t.Errorf("%v does not begin with %q", err, op)
	}
}

// What an error says about the statement: it did nothing, it may have
// happened, or the server takes no writes. Each is provoked on a real server.
func TestErrorsOfARealServer(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(1)
	row := b.takeOne(lease)
	request := claim.Request{Queue: queue, Limit: 1}

	t.Run("read-only server", func(t *testing.T) {
		conn := b.connect()
		if _, err := conn.Exec(b.ctx, "SET default_transaction_read_only = on"); err != nil {
			t.Fatal(err)
		}
		_, err := b.Claim(b.ctx, conn, request, lease, "worker")
		wantKind(t, err, claim.ErrReadOnly, "claim")
		_, err = b.Finish(b.ctx, conn, []claim.Outcome{{Lease: row.Lease(), Verb: claim.Done}})
		wantKind(t, err, claim.ErrReadOnly, "finish")
		_, err = b.Extend(b.ctx, conn, []claim.Lease{row.Lease()}, lease)
		wantKind(t, err, claim.ErrReadOnly, "extend")
		_, err = b.Tick(b.ctx, conn, claim.TickRequest{Queues: []string{queue}, Reap: true, Own: "own"})
		wantKind(t, err, claim.ErrReadOnly, "tick")
		_, err = b.Prune(b.ctx, conn)
		wantKind(t, err, claim.ErrReadOnly, "prune")
		wantKind(t, b.Progress(b.ctx, conn, row.Lease(), json.RawMessage(`1`)), claim.ErrReadOnly, "progress")
		for verb, operator := range operators {
			_, err = operator.call(b, conn, row.ID)
			wantKind(t, err, claim.ErrReadOnly, verb)
		}
		wantKind(t, b.Pause(b.ctx, conn, queue), claim.ErrReadOnly, "pause")
		wantKind(t, b.Resume(b.ctx, conn, queue), claim.ErrReadOnly, "resume")
		if lost, err := b.Check(b.ctx, conn, []claim.Lease{row.Lease()}); err != nil || len(lost) != 0 {
			t.Errorf("check: %v, %v", lost, err)
		}
	})
	t.Run("table lock", func(t *testing.T) { // as DDL takes it; we give up after a second
		holder := b.open()
		if _, err := holder.Exec(b.ctx, "LOCK TABLE fencepost.jobs"); err != nil {
			t.Fatal(err)
		}
		// In one message, settings first. A mode that prepares statements waits
		// when it first does so, for as long as the context lets it.
		_, err := b.Claim(b.ctx, b.connectIn(pgx.QueryExecModeSimpleProtocol), request, lease, "worker")
		wantKind(t, err, claim.ErrTryAgain, "claim")
		b.rollback(holder)
	})
	t.Run("statement timeout", func(t *testing.T) {
		conn, holder := b.connect(), b.open()
		if _, err := conn.Exec(b.ctx, "SET statement_timeout = '50ms'"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Extend(b.ctx, holder, []claim.Lease{row.Lease()}, lease); err != nil {
			t.Fatal(err)
		}
		wantKind(t, b.Progress(b.ctx, conn, row.Lease(), json.RawMessage(`1`)), claim.ErrTryAgain, "progress")
		b.rollback(holder)
	})
	t.Run("terminated backend", func(t *testing.T) {
		conn, holder := b.connect(), b.open()
		if _, err := b.Extend(b.ctx, holder, []claim.Lease{row.Lease()}, lease); err != nil {
			t.Fatal(err)
		}
		waiting := answerOrWait(b, conn, func() (struct{}, error) {
			return struct{}{}, b.Progress(b.ctx, conn, row.Lease(), json.RawMessage(`1`))
		})
		b.exec("SELECT pg_terminate_backend($1::int)", conn.PgConn().PID())
		wantKind(t, (<-waiting).err, claim.ErrUnknown, "progress")
		b.rollback(holder)
		// Now the connection is known to be dead, and nothing is sent on it. But
		// the error is the same as in the next case.
		_, err := b.Claim(b.ctx, conn, request, lease, "worker")
		wantKind(t, err, claim.ErrUnknown, "claim")
	})
	t.Run("answer lost", func(t *testing.T) { // of a commit, and of what is sent like one
		conn := b.losesAnswers()
		_, err := b.Extend(b.ctx, conn, []claim.Lease{row.Lease()}, lease)
		wantKind(t, err, claim.ErrUnknown, "extend")
	})
	t.Run("deadline in the middle", func(t *testing.T) {
		conn, holder := b.connect(), b.open()
		if _, err := b.Extend(b.ctx, holder, []claim.Lease{row.Lease()}, lease); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(b.ctx, 50*time.Millisecond)
		defer cancel()
		err := b.Progress(ctx, conn, row.Lease(), json.RawMessage(`1`))
		wantKind(t, err, claim.ErrUnknown, "progress")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v hides the deadline", err)
		}
		b.rollback(holder)
	})
	t.Run("context over before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(b.ctx)
		cancel()
		_, err := b.Finish(ctx, b.connect(), []claim.Outcome{{Lease: row.Lease(), Verb: claim.Done}})
		wantKind(t, err, claim.ErrTryAgain, "finish")
		expect(b, "running", "SELECT status FROM {{schema}}.jobs")
	})
	t.Run("connection refused", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		listener.Close()
		pool, err := pgxpool.New(b.ctx, "postgres://user:geheim@"+address+"/db?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		_, err = b.Claim(b.ctx, pool, request, lease, "worker")
		wantKind(t, err, claim.ErrTryAgain, "claim")
		if strings.Contains(err.Error(), "geheim") {
			t.Error("the message holds the password")
		}
	})
	t.Run("too few rights", func(t *testing.T) { // nothing that time would mend
		conn := pgtest.Conn(t, b.dsn)
		if _, err := conn.Exec(b.ctx, "SET ROLE pg_monitor"); err != nil {
			t.Fatal(err)
		}
		_, err := b.List(b.ctx, conn, claim.Filter{})
		wantKind(t, err, nil, "list")
	})
	t.Run("transaction over before", func(t *testing.T) {
		tx := b.open()
		b.rollback(tx)
		wantKind(t, b.CompleteTx(b.ctx, tx, row.Lease()), nil, "complete job")
	})
	t.Run("no such job", func(t *testing.T) {
		_, err := b.Get(b.ctx, b.conn, 1)
		wantKind(t, err, claim.ErrNotFound, "get job 1")
	})
	t.Run("lease lost", func(t *testing.T) {
		wantKind(t, b.Progress(b.ctx, b.conn, claim.Lease{ID: row.ID, Fence: 1}, json.RawMessage(`1`)), claim.ErrLeaseLost, "progress")
		tx := b.open()
		wantKind(t, b.CompleteTx(b.ctx, tx, claim.Lease{ID: row.ID, Fence: 1}), claim.ErrLeaseLost, "complete job")
		b.rollback(tx)
	})
}

// answerless is a connection that breaks while an answer is awaited.
type answerless struct {
	net.Conn
	deaf *atomic.Bool
}

func (c answerless) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.deaf.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// What cannot be provoked in a moment.
func TestErrorsByCode(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]error{
		"40001": claim.ErrTryAgain, "40P01": claim.ErrTryAgain, "55P03": claim.ErrTryAgain, "57014": claim.ErrTryAgain,
		"53300": claim.ErrTryAgain, "53100": claim.ErrTryAgain, "53200": claim.ErrTryAgain, "57P03": claim.ErrTryAgain,
		"57P01": claim.ErrUnknown, "57P02": claim.ErrUnknown, "57P04": claim.ErrUnknown,
		"08006": claim.ErrUnknown, "08P01": claim.ErrUnknown,
		"25006": claim.ErrReadOnly,
		"42P05": claim.ErrUnprepared, "26000": claim.ErrUnprepared,
		"42501": nil, "42P01": nil, "25P02": nil, "XX000": nil,
	} {
		wantKind(t, claim.Classify("op", &pgconn.PgError{Code: code}), want, "op")
	}
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, errors.New("tls: bad record"), fmt.Errorf("read: %w", context.Canceled)} {
		wantKind(t, claim.Classify("op", broken), claim.ErrUnknown, "op")
	}
	for _, mistake := range []error{sql.ErrTxDone, pgx.ErrTxClosed} {
		wantKind(t, claim.Classify("op", mistake), nil, "op")
	}
	wantKind(t, claim.Classify("outer", claim.Classify("op", io.EOF)), claim.ErrUnknown, "outer")
	if err := claim.Classify("op", nil); err != nil {
		t.Error(err)
	}
}

// losesAnswers returns a connection on which what is sent arrives, and no answer
// comes back.
func (b *bench) losesAnswers() *pgx.Conn {
	b.t.Helper()
	config := b.conn.Config()
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	var deaf atomic.Bool
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return answerless{conn, &deaf}, err
	}
	conn, err := pgx.ConnectConfig(b.ctx, config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close(b.ctx) })
	deaf.Store(true)
	return conn
}
