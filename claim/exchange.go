package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrApart means that the server refuses an exchange because of some part of
// it, and does not say which. Nothing happened, and what is sent apart, by
// Finish and Claim, may work.
var ErrApart = errors.New("refused because of a part of it")

// Exchange is Finish and then a Claim for each of the requests, in one round
// trip and one commit: whoever has work to do always has both to say, and a
// commit is what either costs most.
//
// All of it happens or nothing does. Nothing that it brings counts before its
// commit is confirmed, so after an error there are no results and no rows. If
// the error wraps ErrUnknown it may have happened all the same: outcomes may be
// sent again, and what was claimed comes back when its lease is over. If it
// wraps ErrApart nothing has.
func (t *Table) Exchange(
	ctx context.Context, db DB, outcomes []Outcome, requests []Request, lease time.Duration, worker string,
) ([]Result, []Claimed, error) {
	b := onTrip(t, db)
	told := &answers{}
	if len(outcomes) > 0 {
		told = t.tell(b, outcomes, false)
	}
	all := make([]*asked, len(requests))
	for i, r := range requests {
		all[i] = t.ask(b, r, lease, worker)
	}
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		if refused(err) {
			err = fmt.Errorf("%w: %w", ErrApart, err)
		}
		return nil, nil, classify("exchange", err)
	}
	claimed := make([]Claimed, len(requests))
	for i, a := range all {
		claimed[i] = a.claimed()
	}
	return told.results, claimed, nil
}

// refused reports an error that the server has answered a batch with and after
// which the session is as good as before: the batch was rolled back.
func refused(err error) bool {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return false
	}
	kind := kindOf(err)
	return kind == nil || errors.Is(kind, ErrTryAgain)
}
