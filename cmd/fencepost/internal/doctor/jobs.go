package doctor

import (
	"context"
	"fmt"
	"strings"
)

// sqlExpired finds them as a tick does, by their claims. What a tick could not
// take is put off by a second, so it looks a little further. Of jobs that no claim
// names, as those of old programs, it knows nothing.
const sqlExpired = `
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(j.lease_until)), 0)::float8
FROM {{schema}}.jobs AS j
WHERE j.id = ANY (ARRAY(SELECT k.id FROM {{schema}}.claims AS c CROSS JOIN LATERAL unnest(c.ids) AS k (id)
                        WHERE c.look_at < (SELECT clock_timestamp() + interval '2 seconds')
                        ORDER BY c.look_at LIMIT 10000))
  AND j.status = 'running' AND j.lease_until < (SELECT clock_timestamp())`

// leases that are over are taken by the next tick of any worker. Of jobs at most
// 10,000 are looked at.
func leases(ctx context.Context, e *exam) ([]Finding, error) {
	s, err := askOne[struct {
		Jobs int64
		Age  float64
	}](ctx, e, sqlExpired)
	if err != nil {
		return nil, err
	}
	f := figures{"expired": s.Jobs, "oldest_seconds": s.Age}
	message := fmt.Sprintf("over, and their jobs not taken by anybody: %d, the oldest for %s", s.Jobs, span(s.Age))
	switch {
	case s.Jobs == 0:
		return []Finding{ok(f, "none is over")}, nil
	case s.Age < 60:
		return []Finding{but(Warn, f, message, "nothing, if a worker runs: the next tick of any takes them, at most one poll interval later")}, nil
	default:
		return []Finding{but(Fail, f, message,
			"start a worker: any one takes them. If one runs, see its log, and the check transactions: a row that an open transaction holds is not taken")}, nil
	}
}

const sqlAttempts = `
SELECT count(*), count(*) FILTER (WHERE x.attempts >= 3),
       coalesce((array_agg(x.id::text ORDER BY x.attempts DESC, x.id) FILTER (WHERE x.attempts >= 3))[1:5], '{}')
FROM (SELECT j.id, j.attempts FROM {{schema}}.jobs AS j ORDER BY j.id LIMIT $1::bigint) AS x`

// attempts looks at the oldest jobs: one that has failed often has been there
// for long.
func attempts(ctx context.Context, e *exam) ([]Finding, error) {
	const oldest = 10_000
	s, err := askOne[struct {
		Seen, Jobs int64
		IDs        []string
	}](ctx, e, sqlAttempts, oldest)
	if err != nil {
		return nil, err
	}
	of := ""
	if s.Seen == oldest {
		of = fmt.Sprintf(" (of the %d oldest)", oldest)
	}
	f := figures{"jobs": s.Jobs, "looked_at": s.Seen, "ids": s.IDs}
	if s.Jobs > 0 {
		return []Finding{but(Warn, f, fmt.Sprintf("in the third attempt or later%s: %d, such as %s", of, s.Jobs, strings.Join(s.IDs, ", ")),
			"see last_error: fencepost show "+s.IDs[0])}, nil
	}
	return []Finding{ok(f, "no live job%s is in its third attempt or later", of)}, nil
}

const sqlDeadJobs = `
SELECT count(*), count(*) FILTER (WHERE x.status = 'dead')
FROM (SELECT f.status FROM {{schema}}.finished AS f
      WHERE f.keep_until BETWEEN (SELECT clock_timestamp() + interval '29 days') AND (SELECT clock_timestamp() + interval '31 days')
      ORDER BY f.keep_until DESC LIMIT $1::bigint) AS x`

// deadJobs are kept for 30 days, so those of the last day are the ones that
// are kept for more than 29; of rows that are kept for so long at most 10,000
// are looked at.
func deadJobs(ctx context.Context, e *exam) ([]Finding, error) {
	const most = 10_000
	s, err := askOne[struct{ Seen, Dead int64 }](ctx, e, sqlDeadJobs, most)
	if err != nil {
		return nil, err
	}
	least := ""
	if s.Seen == most {
		least = "at least "
	}
	if s.Dead > 0 {
		return []Finding{ok(figures{"dead_last_day": s.Dead}, "%s%d died in the last day; fencepost list --status dead shows them", least, s.Dead)}, nil
	}
	return []Finding{ok(figures{"dead_last_day": s.Dead}, "none died in the last day")}, nil
}
