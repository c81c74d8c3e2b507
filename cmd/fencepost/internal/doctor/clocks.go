package doctor

import (
	"context"
	"fmt"
	"time"
)

// clock compares the server's clock with this machine's, by the shortest of
// three round trips: it was read somewhere between sending and answer.
//
// Only the database's clock decides anything; ours dates the run_at that a
// producer computes, and logs.
func clock(ctx context.Context, e *exam) ([]Finding, error) {
	const tolerance = 2 * time.Second
	best, ahead := time.Hour, time.Duration(0)
	for range 3 {
		conn, err := e.connection(ctx)
		if err != nil {
			return nil, err
		}
		var micros int64
		start := time.Now()
		err = bounded(ctx, func(ctx context.Context) error {
			return conn.QueryRow(ctx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").Scan(&micros)
		})
		trip := time.Since(start)
		if err != nil {
			return nil, err
		}
		if trip < best {
			best, ahead = trip, time.UnixMicro(micros).Sub(start.Round(0).Add(trip/2))
		}
	}
	return []Finding{judgeClock(ahead, best/2, tolerance)}, nil
}

func judgeClock(ahead, doubt, tolerance time.Duration) Finding {
	f := figures{"server_ahead_ms": millis(ahead), "doubt_ms": millis(doubt)}
	which, off := "ahead of", ahead
	if ahead < 0 {
		which, off = "behind", -ahead
	}
	if off-doubt > tolerance {
		return but(Warn, f, fmt.Sprintf("the server's clock is %s %s this machine's", span(off.Seconds()), which),
			"let both follow NTP; leases and due times are by the server's clock, a run_at that a producer computes is by its own")
	}
	return ok(f, "the server's clock is within %.1f ms of this machine's", millis(off+doubt))
}

// sqlNewestFence finds the newest fence, which is a time in microseconds since
// 1970. There is no index on it, so it is looked for where new ones are: jobs
// of the newest claims, and the newest ids and the longest kept among live and
// ended jobs. It misses a job with an old id that was claimed
// late and ended before 1000 others with newer ones. One at the end of the range
// comes from no clock; see demand.
const sqlNewestFence = `
SELECT coalesce(max(f.fence), 0), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM (
    (SELECT j.fence FROM {{schema}}.jobs AS j
     WHERE j.id = ANY (ARRAY(SELECT k.id FROM {{schema}}.claims AS c CROSS JOIN LATERAL unnest(c.ids) AS k (id)
                             ORDER BY c.id DESC LIMIT 1000)))
    UNION ALL
    (SELECT j.fence FROM {{schema}}.jobs AS j ORDER BY j.id DESC LIMIT 1000)
    UNION ALL
    (SELECT e.fence FROM {{schema}}.finished AS e ORDER BY e.id DESC LIMIT 1000)
    UNION ALL
    (SELECT e.fence FROM {{schema}}.finished AS e ORDER BY e.keep_until DESC LIMIT 1000)
) AS f
WHERE f.fence < 4611686018427387902`

// fences asks whether the clock has passed every fence that it gave. If not,
// the next claims of jobs that a failover or a restore has taken back could
// get a fence, and new jobs a Key, that was given before.
func fences(ctx context.Context, e *exam) ([]Finding, error) {
	s, err := askOne[struct{ Fence, Now int64 }](ctx, e, sqlNewestFence)
	if err != nil {
		return nil, err
	}
	ahead := time.Duration(s.Fence-s.Now) * time.Microsecond
	if s.Fence-s.Now > int64(100*365*24*time.Hour/time.Microsecond) { // made by hand; it would overflow
		ahead = 100 * 365 * 24 * time.Hour
	}
	f := figures{"newest_fence": fmt.Sprint(s.Fence)}
	if s.Fence > 0 {
		f["ahead_seconds"] = ahead.Seconds()
	}
	message := fmt.Sprintf("the newest fence is %s ahead of the server's clock", span(ahead.Seconds()))
	const remedy = "set the server's clock, and let nothing claim or enqueue until then: after a failover or a restore, fences and keys could be given a second time"
	switch {
	case ahead > time.Minute:
		return []Finding{but(Fail, f, message, remedy)}, nil
	case ahead > time.Second: // fences are moved on by hand-backs, but not by that much
		return []Finding{but(Warn, f, message, remedy)}, nil
	default:
		return []Finding{ok(f, "the server's clock has passed every fence that was looked at")}, nil
	}
}
