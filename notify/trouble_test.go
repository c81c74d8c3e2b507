package notify

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fencepost-go/fencepost/internal/faultproxy"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// B39: a socket that is open on our side only raises no error, ever.
func TestFindsHalfOpenSocket(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	proxy := faultproxy.New(t, dsn)
	e := newEar(t, dsn, proxy, half)
	e.runTicking(t)
	e.hears(t, "before")

	proxy.Strand()
	ring(t, dsn, "fence post", "1:0:lost")
	start := time.Now()
	e.tick(t)
	if cause := e.isDeaf(t); !strings.Contains(cause.Error(), "did not arrive within 500ms") {
		t.Errorf("cause: %v", cause)
	}
	e.hears(t, "after")
	if took := time.Since(start); took > soon {
		t.Errorf("hearing again after %v, want within %v", took, soon)
	}
	if len(e.bells) > 0 {
		t.Errorf("heard %v from a dead socket", <-e.bells)
	}
}

// B39, of the whole network for a while: new connections are silent too.
func TestRecoversFromSilentNetwork(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	proxy := faultproxy.New(t, dsn)
	e := newEar(t, dsn, proxy, half)
	e.runTicking(t)
	e.hears(t, "before")
	wait(t, e.attempts, "the first attempt")

	proxy.Stall()
	e.tick(t)
	e.isDeaf(t)
	wait(t, e.attempts, "an attempt")
	wait(t, e.attempts, "another attempt: a dial into silence is bounded")
	proxy.Resume()
	e.hears(t, "after")
}

func TestGivesUpListenThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	proxy := faultproxy.New(t, dsn)
	e := newEar(t, dsn, proxy, 0)
	var once sync.Once
	release := make(chan struct{})
	proxy.OnQuery(func(string) *pgproto3.ErrorResponse {
		once.Do(func() { <-release })
		return nil
	})
	t.Cleanup(func() { close(release) })
	stop := e.runTicking(t)
	if cause := e.isDeaf(t); !errors.Is(cause, errNoAnswer) {
		t.Errorf("cause: %v", cause)
	}
	// The hook of the first connection still blocks; that of the next does not.
	proxy.OnQuery(nil)
	e.hears(t, "after")
	if took := stop(); took > soon {
		t.Errorf("stopping took %v", took)
	}
}

// B43, B44: the listener's connection is its own, and a lost one leaves
// nothing behind, in the pool or on the server.
func TestTerminatedManyTimesLeaksNothing(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	pool := pgtest.Pool(t, dsn)
	held, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	before := pool.Stat()

	e := newEar(t, dsn, nil, 0)
	e.config = pool.Config().ConnConfig
	e.config.RuntimeParams["application_name"] = "ear"
	e.runTicking(t)
	e.hears(t, "first")
	for range 12 {
		e.kill(t)
		if cause := e.isDeaf(t); !isCode(cause, "57P01") {
			t.Errorf("cause: %v", cause)
		}
		e.hears(t, "again")
		e.sessions(t, 1)
	}
	after := pool.Stat()
	if after.AcquiredConns() != 1 || after.TotalConns() != before.TotalConns() || after.NewConnsCount() != before.NewConnsCount() {
		t.Errorf("the pool has made %d connections and lent %d, want 1 and 1", after.NewConnsCount(), after.AcquiredConns())
	}
}

// B45: an attempt that fails after connecting closes what it opened.
func TestFailedAttemptsLeakNothing(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(e *ear, proxy *faultproxy.Proxy){
		"hook after connect": func(e *ear, _ *faultproxy.Proxy) {
			e.config.AfterConnect = func(context.Context, *pgconn.PgConn) error { return errors.New("no rights") }
		},
		"LISTEN": func(_ *ear, proxy *faultproxy.Proxy) { proxy.OnQuery(refuse) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := database(t)
			proxy := faultproxy.New(t, dsn)
			e := newEar(t, dsn, proxy, 0)
			e.pace = fastPace()
			fail(e, proxy)
			stop := e.run(t)
			for range 51 { // 50 have failed when another begins
				wait(t, e.attempts, "an attempt")
			}
			stop()
			e.sessions(t, 0)
		})
	}
}

// B41, B84: from refused connections, through a server in recovery, where
// nothing is ever announced, back to normal.
func TestRecoversFromServerInRecovery(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	dsn := server.URL("postgres")
	var data string
	conn := pgtest.Conn(t, dsn)
	if err := conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	e := newEar(t, dsn, nil, 0)
	e.runTicking(t)
	e.hears(t, "before")

	if err := server.Shutdown("fast"); err != nil {
		t.Fatal(err)
	}
	e.isDeaf(t)
	drain(e.attempts)
	for range 3 {
		wait(t, e.attempts, "an attempt at a server that is down")
	}
	if err := os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	drain(e.attempts)
	for range 3 {
		wait(t, e.attempts, "an attempt at a server in recovery")
	}
	if len(e.changes) > 0 {
		t.Errorf("in recovery: %v", <-e.changes)
	}
	if e.log.count("it is a standby") != 1 {
		t.Errorf("that the server is in recovery is not in the log, or more than once:\n%s", e.log)
	}
	if _, err := pgtest.Conn(t, dsn).Exec(t.Context(), "SELECT pg_promote()"); err != nil {
		t.Fatal(err)
	}
	e.hears(t, "after")
	e.sessions(t, 1)
}

func TestRecoversFromRefusedConnections(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	proxy := faultproxy.New(t, dsn)
	e := newEar(t, dsn, proxy, 0)
	e.runTicking(t)
	e.hears(t, "before")
	proxy.Refuse()
	proxy.Cut()
	e.isDeaf(t)
	for range 5 {
		wait(t, e.attempts, "an attempt")
	}
	if n := e.log.count("cannot connect"); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, e.log)
	}
	for range 100 { // ticks may reach the server by another way
		e.Await(e.Expect())
	}
	if n := len(e.proof.waiting); n > 0 {
		t.Errorf("waits for %d bells without a connection", n)
	}
	proxy.Accept(t)
	e.hears(t, "after")
	proxy.Cut()
	e.isDeaf(t)
	e.hears(t, "after a cut")
}

// B33, B47: a LISTEN that fails is loud, and is tried again at a bounded rate.
func TestFailingListenIsLoudAndPaced(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	proxy := faultproxy.New(t, dsn)
	e := newEar(t, dsn, proxy, 0)
	stop := e.runTicking(t)
	e.hears(t, "before")

	proxy.OnQuery(refuse)
	drain(e.attempts)
	e.kill(t)
	e.isDeaf(t)
	var times []time.Time
	for range 4 {
		times = append(times, wait(t, e.attempts, "an attempt"))
	}
	for i, least := range []time.Duration{200, 400, 700} { // milliseconds
		least *= time.Millisecond
		// The first pause may belong to the loss of a connection that lived.
		if pause := times[i+1].Sub(times[i]); pause < least {
			t.Errorf("pause %d is %v, want %v or more", i, pause, least)
		}
	}
	if n := e.log.count("pg_xact"); n != 1 {
		t.Errorf("the error of LISTEN is logged %d times, want once:\n%s", n, e.log)
	}
	if len(e.changes) > 0 {
		t.Errorf("said again: %v", <-e.changes)
	}
	proxy.OnQuery(nil)
	e.hears(t, "after")
	stop()
	begin := time.Now()
	if err := e.pace.Wait(t.Context()); err != nil || time.Since(begin) > 600*time.Millisecond {
		t.Errorf("after a connection that lived the next pause is %v, want 250 ms ± 20 %% (%v)", time.Since(begin), err)
	}
}

// B52: behind a pooler in transaction mode LISTEN works and nothing arrives.
func TestDeafConnectionIsSaidOnceAndReplacedAtAPace(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	proxy := faultproxy.New(t, dsn)
	proxy.DropNotifications(-1)
	e := newEar(t, dsn, proxy, half)
	e.runTicking(t)
	if cause := e.isDeaf(t); !strings.Contains(cause.Error(), "pooler") {
		t.Errorf("the cause gives no hint: %v", cause)
	}
	var times []time.Time
	for range 5 {
		times = append(times, wait(t, e.attempts, "an attempt"))
	}
	if took := times[4].Sub(times[0]); took < 2200*time.Millisecond {
		t.Errorf("5 attempts in %v", took)
	}
	if len(e.changes) > 0 {
		t.Errorf("said again: %v", <-e.changes)
	}
	if e.log.count("") != 1 {
		t.Errorf("want one line in the log, got:\n%s", e.log)
	}
	proxy.DropNotifications(0)
	e.hears(t, "after")
	if e.log.count("") != 2 {
		t.Errorf("want one more line in the log, got:\n%s", e.log)
	}
}

// B34: the server may lose a notification while LISTEN commits. If it is the
// own bell, the connection is not trusted.
func TestFirstNotificationAfterListenIsLost(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	proxy := faultproxy.New(t, dsn)
	proxy.DropNotifications(1)
	e := newEar(t, dsn, proxy, half)
	e.runTicking(t)
	e.isDeaf(t)
	e.hears(t, "after")
}

func refuse(sql string) *pgproto3.ErrorResponse {
	return &pgproto3.ErrorResponse{
		Severity: "ERROR", Code: "58P01",
		Message: `could not open file "pg_xact/0000": No such file or directory`,
	}
}

func isCode(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}
