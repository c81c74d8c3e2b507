package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// sqlExtend moves the leases of claims $1, $2 to $3 microseconds from now, and
// returns those that are no longer the caller's.
//
// It skips rows that somebody holds, such as a handler's own open CompleteTx:
// waiting for one would let the leases of all others run out. A row that was
// missed is lost only when a plain read shows it under another fence.
const sqlExtend = `
WITH o AS MATERIALIZED (
    SELECT o.id, o.fence FROM unnest($1::bigint[], $2::bigint[]) AS o (id, fence)
), l AS MATERIALIZED (
    SELECT j.id, j.lease_until
    FROM (SELECT o.id, o.fence FROM o ORDER BY o.id) AS o
    CROSS JOIN LATERAL (
        SELECT j.id, j.lease_until
        FROM {{schema}}.jobs AS j
        WHERE j.id = o.id AND j.fence = o.fence
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS j
), moved AS (
    UPDATE {{schema}}.jobs AS j SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
    WHERE j.id = ANY (ARRAY(SELECT l.id FROM l))
      -- A job that somebody has made ready by hand under the same fence has no
      -- lease; giving it one is an error, which would cost all others theirs.
      AND j.status <> 'ready'
    RETURNING j.id, j.fence
), sooner AS (
    -- Where the server's clock was set back, a lease ends earlier now than it did.
    -- Then its claim is to be looked into earlier too, and that is said by the
    -- look. Whoever holds it looks into it already.
    UPDATE {{schema}}.claims AS c SET look_at = clock_timestamp()
    WHERE c.id = ANY (ARRAY(
        SELECT k.id FROM {{schema}}.claims AS k
        WHERE (SELECT max(l.lease_until) > clock_timestamp() + $3::bigint * interval '1 microsecond' FROM l)
          AND k.ids && ARRAY(SELECT l.id FROM l)
        FOR UPDATE SKIP LOCKED))
)
SELECT o.id, o.fence, ` + sqlReason + `, false
FROM o
WHERE ` + sqlLost + `
  -- With the fence: one process may hold a job under a new fence while it still
  -- asks for the old one.
  AND NOT EXISTS (SELECT FROM moved AS m WHERE m.id = o.id AND m.fence = o.fence)`

// sqlLost says that the claim o is over and that its holder has not ended it.
// As scalars, not NOT EXISTS, which the planner may turn into one hash of the
// whole table.
const sqlLost = `(SELECT true FROM {{schema}}.jobs AS j WHERE j.id = o.id AND j.fence = o.fence AND j.status <> 'ready') IS NULL
  -- Ended under this very fence: the claim is over, but nobody took it away.
  AND (SELECT true FROM {{schema}}.finished AS f WHERE f.id = o.id AND f.fence = o.fence LIMIT 1) IS NULL`

// sqlReason is why: nothing but the cancellation of a running job leaves it
// cancelled under the next fence.
const sqlReason = `CASE
           WHEN (SELECT true FROM {{schema}}.finished AS f
                 WHERE f.id = o.id AND f.fence = o.fence + 1 AND f.status = 'cancelled' LIMIT 1) THEN 'cancelled'
           WHEN ` + sqlGone + ` THEN 'gone'
           ELSE 'taken'
       END`

// sqlCheck returns those of the claims $1, $2 that are no longer the caller's.
// Since it writes nothing a standby answers it too, which may not know of a
// claim yet.
const sqlCheck = `
SELECT o.id, o.fence, ` + sqlReason + `, pg_is_in_recovery()
FROM unnest($1::bigint[], $2::bigint[]) AS o (id, fence)
WHERE ` + sqlLost

// Extend moves the end of each lease to the given time from now, and returns
// those claims that are over without their holder's doing. A row that somebody
// holds at the moment is left for the next time.
func (t *Table) Extend(ctx context.Context, db DB, leases []Lease, lease time.Duration) ([]Loss, error) {
	return t.losses(ctx, db, "extend", sqlExtend, leases, lease.Microseconds())
}

// Check returns what Extend would, and extends nothing.
func (t *Table) Check(ctx context.Context, db DB, leases []Lease) ([]Loss, error) {
	return t.losses(ctx, db, "check leases", sqlCheck, leases)
}

func (t *Table) losses(ctx context.Context, db DB, op, statement string, leases []Lease, args ...any) (lost []Loss, err error) {
	ids, fences := make([]int64, len(leases)), make([]int64, len(leases))
	for i, l := range leases {
		ids[i], fences[i] = l.ID, l.Fence
	}
	b := inOneGo(t)
	b.Queue(t.sql(statement), append([]any{ids, fences}, args...)...).Query(func(rows pgx.Rows) (err error) {
		lost, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Loss, err error) {
			var standby bool
			err = row.Scan(&l.ID, &l.Fence, &l.Reason, &standby)
			if err == nil && standby {
				err = fmt.Errorf("%w: it is a standby", ErrReadOnly)
			}
			return l, err
		})
		return err
	})
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return nil, classify(op, err)
	}
	return lost, nil
}

// sqlProgress stores what the holder of claim $1, $2 wants its next attempt to
// know.
const sqlProgress = `
UPDATE {{schema}}.jobs AS j SET progress = $3::text::jsonb
WHERE j.id = $1::bigint AND j.fence = $2::bigint
RETURNING j.id`

// Progress stores a JSON document with the job for its later attempts to read.
// It returns ErrLeaseLost, and has changed nothing, if the claim is over.
func (t *Table) Progress(ctx context.Context, db DB, l Lease, progress json.RawMessage) error {
	rows, err := db.Query(ctx, t.sql(sqlProgress), l.ID, l.Fence, string(progress))
	if err == nil {
		var found []int64
		found, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		if err == nil && len(found) == 0 {
			err = ErrLeaseLost
		}
	}
	if err != nil {
		return classify(fmt.Sprintf("progress of job %d", l.ID), err)
	}
	return nil
}
