package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/fencepost-go/fencepost/internal/peer"
)

// attemptLimit bounds each of: finding out how to connect, connecting to one
// address, and LISTEN on a new connection.
const attemptLimit = 5 * time.Second

var (
	errNoAnswer = fmt.Errorf("LISTEN was not answered within %v", attemptLimit)
	errNoCancel = errors.New("the listener has no statement that is worth a cancel request")
)

// session is one connection of the listener. pgx and pgxlisten wait on it
// without a limit; giveUp is how to end that from outside.
type session struct {
	conn   *pgx.Conn
	server peer.Server
	setup  *time.Timer // gives up when LISTEN takes too long

	mu    sync.Mutex
	cause error // why it was given up; nil: it was not
}

// ours marks the context of a dial that we make ourselves.
type ours struct{}

// connect opens a session. The config that it is given is left as it is.
func connect(ctx context.Context, connConfig func(context.Context) (*pgx.ConnConfig, error)) (*session, error) {
	asking, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	config, err := connConfig(asking)
	if err != nil {
		return nil, err
	}
	config = config.Copy()

	// With a handler of somebody else, or of an earlier connection, pgx would
	// give that the notifications and us none.
	config.OnNotification = nil
	// An ended context must end a wait at once, whatever the config prefers
	// for its own statements.
	config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
	}
	// For each connection that breaks, pgx dials another in the background to
	// cancel the statement in flight, for up to 15 s in a silent network.
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if ctx.Value(ours{}) == nil {
			return nil, errNoCancel
		}
		return dial(ctx, network, address)
	}
	if config.ConnectTimeout == 0 || config.ConnectTimeout > attemptLimit {
		config.ConnectTimeout = attemptLimit
	}

	// The timeout of the config does not cover the look-up of names.
	addresses := time.Duration(1 + len(config.Fallbacks))
	ctx, cancelDial := context.WithTimeout(context.WithValue(ctx, ours{}, true), addresses*attemptLimit)
	defer cancelDial()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	greeting, cancelGreeting := context.WithTimeout(ctx, attemptLimit)
	defer cancelGreeting()
	server, err := peer.Greet(greeting, conn)
	if err != nil {
		_ = conn.Close(greeting) // there is nothing left to do about it
		// In a silent network pgx would wait for the server for another 15 s.
		_ = conn.PgConn().Conn().Close()
		<-conn.PgConn().CleanupDone()
		return nil, err
	}
	s := &session{conn: conn, server: server}
	s.setup = time.AfterFunc(attemptLimit, func() { s.giveUp(errNoAnswer) })
	return s, nil
}

// giveUp makes whoever waits on the connection fail at once. It never blocks
// and may be called at any time from any goroutine. Only reading is ended, so
// that the server can still be told goodbye if it is there to hear it.
func (s *session) giveUp(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = cause
		_ = s.conn.PgConn().Conn().SetReadDeadline(time.Unix(1, 0)) // fails only if the connection is over anyway
	}
}

// end closes what pgxlisten has closed already, in so far as that was left to
// the background, and waits for it. It returns why the session was given up.
func (s *session) end() error {
	s.setup.Stop()
	_ = s.conn.PgConn().Conn().Close() // usually the second time
	<-s.conn.PgConn().CleanupDone()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}
