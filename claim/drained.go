package claim

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Teller is who tells the other processes of a queue that nothing is left in it.
type Teller struct {
	Kinds, Worker uint64 // stand for the kinds that it can run, and for itself
}

// sqlDrained tells the others, on the channel of the bells, that of the jobs of
// queue $1 and kinds $2 none is left that is due: so that those who have heard
// the same bell need not look too. It follows a claim, in its transaction, and
// so tells of nothing that may not come true.
//
// It looks for itself, at all jobs. So whatever was not taken keeps it silent: a
// job that was locked, one for which there was no slot, one below a mark, one of
// a paused queue. And what it says holds of its own snapshot, which it sends
// along: a bell that was rung by a transaction that is over in it is settled,
// any other is not. $3 is who tells. It also says when the next job is due, for
// the alarms of those who now have no reason to ask.
//
// A transaction that has changed nothing tells nothing: it found out too late to
// be of use, and need not be committed with the lock that a notification takes. Nor
// does one whose snapshot is too large for a notification, which may have 8000
// bytes, or when notifications pile up: that would fail the claim.
const sqlDrained = `
SELECT pg_notify({{channel}}, 'drained:' || s.seen || ':' || $3::text || ':'
                              || coalesce((extract(epoch FROM n.run_at) * 1000000)::bigint, 0) || ':' || $1::text)
FROM (SELECT min(m.run_at) AS run_at
      FROM ` + sqlPriorities + `
      CROSS JOIN LATERAL (
          SELECT r.run_at
          FROM {{schema}}.jobs AS r
          WHERE r.queue = $1::text AND r.priority = p.priority AND r.status = 'ready' AND ` + sqlUnspent + `
            AND ($2::text[] IS NULL OR r.kind = ANY ($2::text[]))
          ORDER BY r.run_at, r.id
          LIMIT 1
      ) AS m) AS n
CROSS JOIN (SELECT pg_current_snapshot()::text AS seen) AS s
WHERE coalesce(n.run_at > clock_timestamp(), true)
  AND pg_current_xact_id_if_assigned() IS NOT NULL
  AND octet_length(s.seen) <= 4000 AND octet_length($1::text) <= 128
  AND pg_notification_queue_usage() <= 0.5`

// announce queues what a claim tells the others. Only one that has itself looked at
// all jobs does: if that costs much it is rationed, and so is the second look.
func (t *Table) announce(b *pgx.Batch, r Request) {
	if r.tells() {
		b.Queue(t.sql(sqlDrained), r.Queue, r.Kinds, fmt.Sprintf("%016x:%016x", r.Teller.Kinds, r.Teller.Worker))
	}
}

func (r Request) tells() bool {
	return r.Teller != Teller{} && r.Look.depth == whole && !r.Look.untouched
}
