package fencepost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/peer"
)

// dialTimeout bounds every attempt to connect.
const dialTimeout = 5 * time.Second

// ownConfig says how to make a connection of our own: as the pool does, or as
// override says. Nothing that has session state is ever given to the pool, and
// nothing that handlers do with the pool can starve such a connection.
//
// It sends no start-up parameter but application_name, which poolers know.
func (c *Client) ownConfig(ctx context.Context, role string, override *pgx.ConnConfig) (*pgx.ConnConfig, error) {
	pool := c.pool.Config() // a copy
	config, route := pool.ConnConfig, &c.route
	if override != nil {
		config, route = override.Copy(), &c.listenRoute
	} else if pool.BeforeConnect != nil { // such as passwords that rotate
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "fencepost " + role
	}
	route.Take(ctx, config, dialTimeout)
	return config, nil
}

// dial opens a connection of our own to a server that takes writes, and says
// what is to be known of the way there.
func (c *Client) dial(ctx context.Context, role string) (*pgx.Conn, peer.Server, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, server, err := c.tryDial(ctx, role)
	if err == nil && server.Pooled {
		c.metPooler(ctx)
		if needsSession(conn.Config().DefaultQueryExecMode) { // which is fixed when a connection is made
			hangUp(conn)
			conn, server, err = c.tryDial(ctx, role)
		}
	}
	if err != nil {
		if peer.IsReadOnly(err) {
			err = fmt.Errorf("%w: %w", claim.ErrReadOnly, err)
		}
		return nil, peer.Server{}, fmt.Errorf("connect %s: %w: %w", role, claim.ErrTryAgain, err)
	}
	return conn, server, nil
}

func (c *Client) tryDial(ctx context.Context, role string) (*pgx.Conn, peer.Server, error) {
	config, err := c.ownConfig(ctx, role, nil)
	if err != nil {
		return nil, peer.Server{}, err
	}
	if c.unprepared.Load() && needsSession(config.DefaultQueryExecMode) {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, peer.Server{}, err
	}
	if prepare := c.pool.Config().AfterConnect; prepare != nil { // such as SET ROLE
		if err := prepare(ctx, conn); err != nil {
			hangUp(conn)
			return nil, peer.Server{}, err
		}
	}
	server, err := peer.Greet(ctx, conn)
	if err != nil {
		hangUp(conn)
		return nil, peer.Server{}, err
	}
	return conn, server, nil
}

// hangUp closes a connection, politely if the peer answers at once.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // there is nothing left to do about it
}

// line is one long-lived connection of our own: dialled when it is first used,
// and again after it broke. One use at a time.
type line struct {
	client *Client
	role   string
	// opened is called with each new connection before its first use. After an
	// error of it the connection is closed and the use fails. Nothing that
	// belongs to a session may be left on one that is pooled. nil: nothing to do.
	opened func(context.Context, *pgx.Conn, peer.Server) error

	up atomic.Bool // there is a connection, and no use has broken it so far as we know

	mu           sync.Mutex
	used         time.Time // when a use last worked
	pace         *peer.Pace
	conn         *pgx.Conn
	saidReadOnly bool // since a use last worked
}

func (c *Client) newLine(role string) *line {
	return &line{client: c, role: role, pace: peer.NewPace()}
}

// use runs do on the connection. After an error that says that the server
// takes no writes the connection is dropped: a new one may reach the server
// that has taken over. New ones are made at a pace.
func (l *line) use(ctx context.Context, do func(*pgx.Conn) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.connect(ctx)
	if err == nil {
		l.up.Store(true)
		err = do(l.conn)
	}
	switch {
	case err == nil:
		l.used = time.Now()
		l.pace.Lived()
		l.saidReadOnly = false
	case errors.Is(err, claim.ErrReadOnly):
		l.hangUp()
		l.client.metReadOnly() // handlers may use the pool without us
		if !l.saidReadOnly {
			l.saidReadOnly = true
			l.client.config.Logger.ErrorContext(ctx, "the server takes no writes; connecting again until one does. After a failover the connection string has to lead to the new primary: "+
				"by a name that follows it, or by naming all servers, as in host=a,b", "error", err)
		}
	case errors.Is(err, claim.ErrUnprepared): // a pooler that hides well
		l.hangUp()
		l.client.metPooler(ctx)
	}
	l.up.Store(l.conn != nil && !l.conn.IsClosed())
	return err
}

// connect makes sure that there is a connection.
func (l *line) connect(ctx context.Context) error {
	if l.conn != nil && !l.conn.IsClosed() {
		return nil
	}
	if err := l.pace.Wait(ctx); err != nil {
		return fmt.Errorf("connect %s: %w: %w", l.role, claim.ErrTryAgain, err)
	}
	conn, server, err := l.client.dial(ctx, l.role)
	if err != nil {
		return err
	}
	l.conn = conn
	if l.opened != nil {
		if err := l.opened(ctx, conn, server); err != nil {
			l.hangUp()
			return err
		}
	}
	return nil
}

// ping looks whether the connection still stands, to a server that takes
// writes, and makes a new one if not, unless it has been used within the given
// time or is in use. It returns when to look next.
func (l *line) ping(ctx context.Context, every time.Duration) (next time.Duration, err error) {
	if !l.mu.TryLock() {
		return every, nil
	}
	left := every - time.Since(l.used)
	broken := l.conn == nil || l.conn.IsClosed()
	l.mu.Unlock()
	if left > 0 && !broken {
		return left, nil
	}
	return every, l.use(ctx, func(conn *pgx.Conn) error { return peer.Ping(ctx, conn) })
}

// useIfUp is use, if there is a connection that nobody uses.
func (l *line) useIfUp(do func(*pgx.Conn) error) error {
	if !l.mu.TryLock() {
		return nil
	}
	defer l.mu.Unlock()
	if l.conn == nil || l.conn.IsClosed() {
		return nil
	}
	return do(l.conn)
}

// close ends the connection, if there is one, after the use that is under way.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && !l.conn.IsClosed() {
		l.pace = peer.NewPace() // the next one is no repair: it need not wait
	}
	l.hangUp()
}

func (l *line) hangUp() {
	if l.conn != nil {
		hangUp(l.conn)
		l.conn = nil
	}
}
