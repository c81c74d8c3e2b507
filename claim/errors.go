package claim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-go/fencepost/internal/peer"
)

var (
	// ErrLeaseLost means that the job is under another fence by now, or ended:
	// the caller's claim is over and its write changed nothing.
	ErrLeaseLost = errors.New("lease lost")

	// ErrUnknown means that a statement was sent and its answer was lost: it
	// may or may not have happened. Every statement of this package may be
	// sent again: the fence makes a second time harmless.
	ErrUnknown = errors.New("outcome unknown")

	// ErrTryAgain means that nothing happened and that the same call may work
	// later: no connection, too many connections, a deadlock, a lock timeout.
	ErrTryAgain = errors.New("try again")

	// ErrReadOnly means that the server takes no writes, as a demoted primary
	// does. The connection is of no use; a new one may reach the new primary.
	ErrReadOnly = peer.ErrReadOnly

	// ErrUnprepared means that the server session knows nothing of a statement
	// that was prepared, or knows another under its name: a pooler has changed
	// the session in between. The statement did not happen.
	ErrUnprepared = errors.New("a pooler sits between that does not carry prepared statements: connect with default_query_exec_mode=exec")

	// ErrNotFound means that there is no such job.
	ErrNotFound = errors.New("no such job")
)

// classify wraps err with the operation, and with the sentinel that says what
// the caller may do about it, if one applies.
func classify(op string, err error) error {
	if err == nil {
		return nil
	}
	if kind := kindOf(err); kind != nil {
		return fmt.Errorf("%s: %w: %w", op, kind, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// RouteError returns err, wrapped with ErrReadOnly or ErrUnprepared if that is
// what it means: the way led to the wrong server, or lost a statement. Nothing
// has happened then.
func RouteError(err error) error {
	if kind := routeOf(err); kind != nil && !errors.Is(err, kind) {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return err
}

func routeOf(err error) error {
	if errors.Is(err, pgconn.ErrReadOnlyConnection) {
		return ErrReadOnly // no server of several takes writes
	}
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return nil
	}
	switch server.Code {
	case "25006": // read_only_sql_transaction
		return ErrReadOnly
	case "42P05", "26000": // a statement of that name exists, does not exist
		return ErrUnprepared
	case "08P01": // protocol violation: that name has a statement with other parameters
		if strings.Contains(server.Message, "prepared statement") {
			return ErrUnprepared
		}
	}
	return nil
}

func kindOf(err error) error {
	for _, known := range []error{ErrLeaseLost, ErrUnknown, ErrTryAgain, ErrReadOnly, ErrUnprepared, ErrNotFound} {
		if errors.Is(err, known) {
			return nil // wrapped already
		}
	}
	if kind := routeOf(err); kind != nil {
		return kind
	}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch server.Code {
		case "40001", "40P01", "55P03", "57P03", "57014":
			// serialization failure, deadlock, lock not available, starting up
			// or in recovery, statement timeout
			return ErrTryAgain
		case "57P01", "57P02", "57P04": // the backend was ended under us
			return ErrUnknown
		}
		switch {
		case strings.HasPrefix(server.Code, "53"): // too many connections, disk full, out of memory
			return ErrTryAgain
		case strings.HasPrefix(server.Code, "08"): // a pooler lost the server
			return ErrUnknown
		}
		return nil
	}
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, pgconn.ErrConnClosed):
		// pgx calls that safe to retry. But a statement of the simple protocol,
		// such as the COMMIT of a transaction, gets it too when the connection
		// breaks before its answer comes.
		return ErrUnknown
	case errors.As(err, &connect) || pgconn.SafeToRetry(err):
		return ErrTryAgain // never sent
	}
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return ErrUnknown
	}
	if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone) {
		return nil // the caller's transaction was over before: a mistake, and nothing was sent
	}
	// A connection that breaks in the middle shows up as io errors of many
	// shapes. Whatever is not an error message of the server is not an answer.
	return ErrUnknown
}

// isLockTimeout reports an error of a statement that has waited for a row for too
// long, or in a circle.
func isLockTimeout(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && (server.Code == "55P03" || server.Code == "40P01")
}

// isDataError reports an error that one of the rows caused (class 22, data
// exception; 23, integrity constraint violation; P0, raised by somebody's
// trigger): the same again will most likely not work, and others do not have to
// suffer for it.
func isDataError(err error) bool {
	var server *pgconn.PgError
	if !errors.As(err, &server) || len(server.Code) != 5 {
		return false
	}
	class := server.Code[:2]
	return class == "22" || class == "23" || class == "P0"
}
