package peer

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrReadOnly means that the server at the other end takes no writes. Nothing
// is ever announced there either.
var ErrReadOnly = errors.New("the server takes no writes")

// Server is what a new connection is told about its other end.
type Server struct {
	// Pooled: a pooler sits between, which may give each transaction a server
	// session of another client. What belongs to a session, such as a prepared
	// statement, a lock or a setting, must not be left there.
	Pooled bool
}

// One statement, whose answer is about one server session. The read-only
// state is that of a transaction that has not been told otherwise.
const sqlGreeting = `SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', pg_backend_pid()`

// Greet asks who is at the other end of a new connection. It wraps ErrReadOnly
// if that is a server in recovery, such as the old primary under a name that
// still leads to it, or one that was made read-only; the connection is of no
// use then.
//
// On a connection of ours alone the server is told to look, by keepalives,
// whether we are still there.
//
// A pooler is known by the process id in its first answer, which it makes up.
func Greet(ctx context.Context, conn *pgx.Conn) (Server, error) {
	pid, err := ask(ctx, conn)
	if err != nil {
		return Server{}, fmt.Errorf("greet the server: %w", err)
	}
	server := Server{Pooled: pid != int64(conn.PgConn().PID())}
	if !server.Pooled {
		if err := keepAlive(ctx, conn); err != nil {
			return Server{}, fmt.Errorf("greet the server: %w", err)
		}
	}
	return server, nil
}

// Ping looks whether a connection still stands, and wraps ErrReadOnly if the
// server at its other end takes no writes any more: one that was demoted
// answers an empty statement as before.
func Ping(ctx context.Context, conn *pgx.Conn) error {
	if _, err := ask(ctx, conn); err != nil {
		return fmt.Errorf("ping the server: %w", err)
	}
	return nil
}

// ask returns the process id of the server session, or an error that wraps
// ErrReadOnly.
func ask(ctx context.Context, conn *pgx.Conn) (pid int64, err error) {
	var recovery, readOnly bool
	// Without a named statement, whatever the connection's mode is.
	err = conn.QueryRow(ctx, sqlGreeting, pgx.QueryExecModeExec).Scan(&recovery, &readOnly, &pid)
	switch {
	case err != nil:
		return 0, err
	case recovery:
		return 0, fmt.Errorf("%w: it is a standby", ErrReadOnly)
	case readOnly:
		return 0, fmt.Errorf("%w: its transactions are read-only", ErrReadOnly)
	}
	return pid, nil
}

// PreferPrimary makes a connection to one of several servers, or to a name
// with several addresses, find the one that takes writes, unless the config
// says itself which one it wants.
func PreferPrimary(config *pgx.ConnConfig) {
	if config.ValidateConnect == nil {
		config.ValidateConnect = takesWrites
	}
}

// takesWrites lets a connection through whose server takes writes. It is
// pgconn.ValidateConnectTargetSessionAttrsReadWrite, which panics when a server
// or a pooler that is about to go answers without a row.
func takesWrites(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, "SHOW transaction_read_only").ReadAll()
	switch {
	case err != nil:
		return err
	case len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 1:
		return errors.New("the server does not say whether it takes writes")
	case string(results[0].Rows[0][0]) == "on":
		return pgconn.ErrReadOnlyConnection
	}
	return nil
}

// Servers returns how many servers the config names.
func Servers(config *pgx.ConnConfig) int {
	type address struct {
		host string
		port uint16
	}
	all := map[address]bool{{config.Host, config.Port}: true}
	for _, f := range config.Fallbacks { // one server may be there twice, with and without TLS
		all[address{f.Host, f.Port}] = true
	}
	return len(all)
}

// IsReadOnly reports that a connection was refused because no server that was
// tried takes writes.
func IsReadOnly(err error) bool {
	return errors.Is(err, ErrReadOnly) || errors.Is(err, pgconn.ErrReadOnlyConnection)
}
