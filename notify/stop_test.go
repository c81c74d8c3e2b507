package notify

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fencepost-go/fencepost/internal/faultproxy"
)

// Whatever the listener is waiting for, a stop ends it promptly, says nothing,
// and closes the connection.
func TestStop(t *testing.T) {
	t.Parallel()
	type stop = func() time.Duration
	for name, prepare := range map[string]func(t *testing.T, e *ear, proxy *faultproxy.Proxy) stop{
		"before anything": func(t *testing.T, e *ear, _ *faultproxy.Proxy) stop {
			return e.runTicking(t)
		},
		"listening": func(t *testing.T, e *ear, _ *faultproxy.Proxy) stop {
			stop := e.runTicking(t)
			e.hears(t, "before")
			return stop
		},
		"refused": func(t *testing.T, e *ear, proxy *faultproxy.Proxy) stop {
			proxy.Refuse()
			stop := e.runTicking(t)
			e.isDeaf(t)
			for range 3 {
				wait(t, e.attempts, "an attempt")
			}
			return stop
		},
		"in a dial into silence": func(t *testing.T, e *ear, proxy *faultproxy.Proxy) stop {
			proxy.Stall()
			stop := e.runTicking(t)
			wait(t, e.attempts, "an attempt")
			return stop
		},
		"in LISTEN, in a silent network": func(t *testing.T, e *ear, proxy *faultproxy.Proxy) stop {
			inListen := make(chan struct{}, channels)
			proxy.OnQuery(func(string) *pgproto3.ErrorResponse {
				proxy.Stall() // the answer will be held back
				inListen <- struct{}{}
				return nil
			})
			stop := e.runTicking(t)
			wait(t, inListen, "LISTEN")
			return stop
		},
		"listening in a silent network": func(t *testing.T, e *ear, proxy *faultproxy.Proxy) stop {
			stop := e.runTicking(t)
			e.hears(t, "before")
			proxy.Stall()
			return stop
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := database(t)
			proxy := faultproxy.New(t, dsn)
			e := newEar(t, dsn, proxy, 0)
			// What a user may have chosen for long statements, and what would
			// wait for a silent server.
			e.config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
				return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: time.Minute}
			}
			stop := prepare(t, e, proxy)
			lines := e.log.count("")
			drain(e.changes)
			if took := stop(); took > soon {
				t.Errorf("stopping took %v, want at most %v", took, soon)
			}
			// Stopped while it connects, it may or may not have come to hear.
			if name != "before anything" && (e.log.count("") != lines || len(e.changes) > 0) {
				t.Errorf("the stop is reported as trouble:\n%s", e.log)
			}
			proxy.Resume() // now the server can hear of it
			e.sessions(t, 0)
		})
	}
}
