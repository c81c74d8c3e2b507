package crew

import (
	"database/sql"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// answered says what is known after a call of the queue that returned err.
func answered(err error) history.Phase {
	if err == nil {
		return history.OK
	}
	if errors.Is(err, fencepost.ErrLeaseLost) {
		return history.Refusal
	}
	for _, nothing := range []error{claim.ErrTryAgain, claim.ErrReadOnly, claim.ErrUnprepared, fencepost.ErrInvalid} {
		if errors.Is(err, nothing) {
			return history.Failed
		}
	}
	return committed(err)
}

// committed says what is known after a COMMIT, or a statement that is a
// transaction of its own, that returned err. Nothing but the server's word that
// it was rolled back, or that nothing was sent, proves that nothing has
// happened.
func committed(err error) history.Phase {
	var server *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case err == nil:
		return history.OK
	case errors.Is(err, pgconn.ErrConnClosed):
		// pgx calls that safe to retry, and returns it from a COMMIT whose
		// connection broke before the answer came.
		return history.Unknown
	case errors.Is(err, pgx.ErrTxCommitRollback), errors.Is(err, sql.ErrTxDone), pgconn.SafeToRetry(err), errors.As(err, &connect):
		return history.Failed
	// FATAL ends a session that may have committed just before, and class 08 is
	// a pooler that speaks of its own connection to the server.
	case errors.As(err, &server) && server.SeverityUnlocalized == "ERROR" && !strings.HasPrefix(server.Code, "08"):
		return history.Failed
	}
	return history.Unknown
}
