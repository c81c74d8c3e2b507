package fencepost

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

// dialTimeout bounds every attempt to connect.
const dialTimeout = 5 * time.Second

// ownConfig says how to make a connection of our own: as the pool does, or as
// override says. Nothing that has session state is ever given to the pool, and
// nothing that handlers do with the pool can starve such a connection.
func (c *Client) ownConfig(ctx context.Context, role string, override *pgx.ConnConfig) (*pgx.ConnConfig, error) {
	pool := c.pool.Config() // a copy
	config := pool.ConnConfig
	if override != nil {
		config = override.Copy()
	} else if pool.BeforeConnect != nil { // such as passwords that rotate
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	if config.ConnectTimeout <= 0 || config.ConnectTimeout > dialTimeout {
		config.ConnectTimeout = dialTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "fencepost " + role
	}
	return config, nil
}

// dial opens a connection of our own.
func (c *Client) dial(ctx context.Context, role string) (*pgx.Conn, error) {
	conn, err := c.tryDial(ctx, role)
	if err != nil {
		return nil, fmt.Errorf("connect %s: %w: %w", role, claim.ErrTryAgain, err)
	}
	return conn, nil
}

func (c *Client) tryDial(ctx context.Context, role string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	config, err := c.ownConfig(ctx, role, nil)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if prepare := c.pool.Config().AfterConnect; prepare != nil { // such as SET ROLE
		if err := prepare(ctx, conn); err != nil {
			hangUp(conn)
			return nil, err
		}
	}
	return conn, nil
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
	dial func(ctx context.Context) (*pgx.Conn, error)
	mu   sync.Mutex
	conn *pgx.Conn
}

// use runs do on the connection. After an error that says that the server
// takes no writes the connection is dropped: a new one may reach the server
// that has taken over.
func (l *line) use(ctx context.Context, do func(*pgx.Conn) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || l.conn.IsClosed() {
		conn, err := l.dial(ctx)
		if err != nil {
			return err
		}
		l.conn = conn
	}
	err := do(l.conn)
	if isReadOnly(err) {
		l.hangUp()
	}
	return err
}

// close ends the connection, if there is one, after the use that is under way.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hangUp()
}

func (l *line) hangUp() {
	if l.conn != nil {
		hangUp(l.conn)
		l.conn = nil
	}
}
