package notify

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/faultproxy"
	"github.com/fencepost-go/fencepost/internal/peer"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

const (
	patience = 60 * time.Second // longest wait for an event that must come
	soon     = 4 * time.Second  // what "promptly" allows, on a loaded machine too
	half     = time.Second / 2  // a limit for a proof that is to fail soon, and not by chance
)

// ear is a Listener under test, and everything it said.
type ear struct {
	*Listener
	dsn      string          // around the proxy
	config   *pgx.ConnConfig // what the listener connects with
	attempts chan time.Time
	looks    chan struct{} // Connected was called
	bells    chan Bell
	recalls  chan string
	changes  chan change
	log      *logBuffer
}

type change struct {
	hearing bool
	cause   error
}

// newEar prepares a Listener on a database of its own, with or without a
// proxy between. It rings for itself on every connection, as a tick does.
func newEar(t *testing.T, dsn string, proxy *faultproxy.Proxy, proof time.Duration) *ear {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["application_name"] = "ear"
	if proxy != nil {
		proxy.Through(config)
	}
	e := &ear{
		dsn:      dsn,
		config:   config,
		attempts: make(chan time.Time, 1000),
		looks:    make(chan struct{}, 1000),
		bells:    make(chan Bell, 1000),
		recalls:  make(chan string, 1000),
		changes:  make(chan change, 1000),
		log:      new(logBuffer),
	}
	e.Listener = New(Config{
		ConnConfig: func(context.Context) (*pgx.ConnConfig, error) {
			e.attempts <- time.Now()
			return e.config, nil
		},
		Channel:   "fence post",
		Bell:      func(b Bell) { e.bells <- b },
		Recall:    func(worker string) { e.recalls <- worker },
		Connected: func() { e.looks <- struct{}{} },
		Hearing:   func(hearing bool, cause error) { e.changes <- change{hearing, cause} },
		Proof:     proof,
		Logger:    slog.New(slog.NewTextHandler(e.log, nil)),
	})
	return e
}

// run starts Run; stop ends it and returns how long that took.
func (e *ear) run(t *testing.T) (stop func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stop = sync.OnceValue(func() time.Duration {
		start := time.Now()
		cancel()
		if err := wait(t, ended, "Run to return"); err != nil {
			t.Errorf("Run: %v", err)
		}
		return time.Since(start)
	})
	t.Cleanup(func() { stop() })
	return stop
}

// runTicking is run with a tick after every Connected.
func (e *ear) runTicking(t *testing.T) (stop func() time.Duration) {
	t.Helper()
	stop = e.run(t)
	done := make(chan struct{})
	var ticker sync.WaitGroup
	ticker.Go(func() {
		for {
			select {
			case <-e.looks:
				e.tick(t)
			case <-done:
				return
			}
		}
	})
	t.Cleanup(func() { close(done); ticker.Wait() })
	return stop
}

// tick rings for the listener itself and awaits the bell.
func (e *ear) tick(t *testing.T) {
	t.Helper()
	token := e.Expect()
	if ring(t, e.dsn, e.Own(), token) {
		e.Await(token)
	}
}

// ring notifies over a connection of its own; false: the server refused.
func ring(t *testing.T, dsn, channel, payload string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Logf("ring: %v", err)
		return false
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_notify($1, $2)", channel, payload); err != nil {
		t.Logf("ring: %v", err)
		return false
	}
	return true
}

// hears waits until the listener says that it hears, and checks that it does.
func (e *ear) hears(t *testing.T, queue string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case c := <-e.changes:
			if c.hearing {
				ring(t, e.dsn, "fence post", "1:0:"+queue)
			}
		case bell := <-e.bells:
			if bell.Queue == queue {
				return
			}
		case <-timeout:
			t.Fatalf("waited %v for bell %q; the log:\n%s", patience, queue, e.log)
		}
	}
}

// isDeaf waits until the listener says that it is deaf, and returns why.
func (e *ear) isDeaf(t *testing.T) error {
	t.Helper()
	for {
		if c := wait(t, e.changes, "deafness"); !c.hearing {
			return c.cause
		}
	}
}

// sessions waits until the server has n sessions of the listener: it notices
// the end of one only some time after it.
func (e *ear) sessions(t *testing.T, want int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got := e.number(t, "SELECT count(*) FROM "+mySessions)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server has %d sessions of the listener, want %d", got, want)
		}
	}
}

// kill ends the listener's session on the server.
func (e *ear) kill(t *testing.T) {
	t.Helper()
	if e.number(t, "SELECT count(pg_terminate_backend(pid)) FROM "+mySessions) == 0 {
		t.Fatal("the server has no session of the listener")
	}
}

const mySessions = "pg_stat_activity WHERE datname = current_database() AND application_name = 'ear'"

func (e *ear) number(t *testing.T, query string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), e.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// wait takes the next event from events.
func wait[T any](t *testing.T, events <-chan T, what string) T {
	t.Helper()
	select {
	case event := <-events:
		return event
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
		panic("unreachable")
	}
}

func database(t *testing.T) string {
	t.Helper()
	return pgtest.New(t, "notify", func(context.Context, string) error { return nil })
}

// drain forgets the events so far.
func drain[T any](events <-chan T) {
	for len(events) > 0 {
		<-events
	}
}

// fastPace is for tests of many attempts.
func fastPace() *peer.Pace { return peer.NewPaceOf(time.Millisecond, time.Millisecond) }

// logBuffer is a buffer for a logger of several goroutines.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// count returns how many lines contain text.
func (b *logBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for line := range strings.Lines(b.buf.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
