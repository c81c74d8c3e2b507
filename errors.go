package fencepost

import (
	"errors"
	"time"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
	"github.com/fencepost-go/fencepost/migrations"
)

var (
	// ErrLeaseLost means that a job is under another fence by now, or has
	// ended: what the caller wanted to write about it has changed nothing. It
	// is also the cause of a handler's context when its lease is over.
	ErrLeaseLost = claim.ErrLeaseLost

	// ErrNotFound means that there is no such job.
	ErrNotFound = claim.ErrNotFound

	// ErrReadOnly means that the server takes no writes: it is a standby, or was
	// the primary until a failover. Nothing was changed.
	//
	// The client's pool has been reset, at most once a second: idle connections
	// are closed, the others when they are given back. What the client sends
	// through the pool by itself has then been tried once more. In a transaction
	// of the caller's (In, CompleteTx, InSQL, CompleteSQLTx) only the caller can
	// do that, by beginning another one. If the error stays, the connection
	// string does not lead to the primary: name all servers and
	// target_session_attrs, as in host=a,b target_session_attrs=read-write, or a
	// name that follows the primary.
	//
	// Other connections are the caller's. A sql.DB has those of the pool if
	// pgx's stdlib.OpenDBFromPool made it; any other keeps its own, also to a
	// server that was demoted, for as long as SetConnMaxLifetime lets it: for
	// ever by default, so set that to a minute or so. Only errors of pgx are
	// recognised, also through its database/sql driver; not those of others.
	ErrReadOnly = claim.ErrReadOnly

	// ErrInvalid means that a job, or another argument, was refused before any
	// SQL. The message says which and what about it.
	ErrInvalid = errors.New("invalid")

	// ErrSchema means that the tables do not fit this program. The message
	// says which command to run.
	ErrSchema = migrations.ErrSchema

	// ErrTimeout is the cause of a handler's context when the job ran longer
	// than its timeout.
	ErrTimeout = dispatcher.ErrTimeout

	// ErrStopping is the cause of a handler's context when Run is stopping and
	// the time for draining is over.
	ErrStopping = dispatcher.ErrStopping

	// ErrCancelled is the cause of a handler's context when an operator has
	// cancelled the job, with Client.Cancel or "fencepost cancel".
	ErrCancelled = dispatcher.ErrCancelled

	// ErrStuck means that Run returned although handlers were still running:
	// they ignored the end of their context. Their jobs have been handed back
	// if the database could be reached. The message names them.
	ErrStuck = dispatcher.ErrStuck
)

// Cancel returns an error that, returned by a handler, ends the job as
// cancelled: it is called off and not tried again. The reason may be nil.
func Cancel(reason error) error { return dispatcher.Cancel(reason) }

// Dead returns an error that, returned by a handler, ends the job as dead at
// once: no attempt can help. The reason may be nil.
func Dead(reason error) error { return dispatcher.Dead(reason) }

// RetryAfter returns an error that, returned by a handler, fails the attempt
// and sets the pause before the next one, instead of Config.RetryDelay. On the
// last attempt the job is dead.
func RetryAfter(pause time.Duration, reason error) error {
	return dispatcher.RetryAfter(pause, reason)
}

// Snooze returns an error that, returned by a handler, puts the job back for
// the given time without counting the attempt, however often.
func Snooze(pause time.Duration) error { return dispatcher.Snooze(pause) }
