package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// autovacuum is what removes dead rows; it needs the counts of them.
func autovacuum(ctx context.Context, e *exam) ([]Finding, error) {
	s, err := askOne[struct{ On, Counts bool }](ctx, e, `
		SELECT current_setting('autovacuum')::bool, current_setting('track_counts')::bool`)
	if err != nil {
		return nil, err
	}
	off, err := ask[struct{ Table string }](ctx, e, `
		SELECT t.relname::text
		FROM pg_namespace AS n JOIN pg_class AS t ON t.relnamespace = n.oid, pg_options_to_table(t.reloptions) AS o
		WHERE n.nspname = $1::text AND o.option_name = 'autovacuum_enabled' AND NOT o.option_value::bool
		ORDER BY 1`, e.Schema)
	if err != nil {
		return nil, err
	}
	var list []Finding
	if !s.On || !s.Counts {
		list = append(list, but(Warn, figures{"autovacuum": s.On, "track_counts": s.Counts},
			"autovacuum is off on this server: dead rows pile up, and claims get slower",
			"set autovacuum and track_counts to on in postgresql.conf, and reload it"))
	}
	for _, t := range off {
		list = append(list, but(Warn, figures{"table": t.Table}, fmt.Sprintf("autovacuum is off for %s: dead rows pile up, and claims get slower", t.Table),
			"ALTER TABLE "+pgx.Identifier{e.Schema, t.Table}.Sanitize()+" RESET (autovacuum_enabled)"))
	}
	if len(list) == 0 {
		list = append(list, ok(nil, "on, for the queue's tables too"))
	}
	return list, nil
}

// deadRows are counted by the server's statistics, which are estimates.
func deadRows(ctx context.Context, e *exam) ([]Finding, error) {
	rows, err := ask[struct {
		Table      string
		Live, Dead int64
		Vacuumed   *float64
	}](ctx, e, `
		SELECT s.relname::text, s.n_live_tup, s.n_dead_tup,
		       extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::float8
		FROM pg_stat_user_tables AS s
		WHERE s.schemaname = $1::text
		ORDER BY s.n_dead_tup DESC, 1`, e.Schema)
	if err != nil {
		return nil, err
	}
	var list []Finding
	var fine []string
	for _, r := range rows {
		last := "never"
		f := figures{"table": r.Table, "live": r.Live, "dead": r.Dead, "vacuumed_seconds_ago": r.Vacuumed}
		if r.Vacuumed != nil {
			last = span(*r.Vacuumed) + " ago"
		}
		if r.Dead >= e.limits.deadRows && r.Dead > r.Live {
			list = append(list, but(Warn, f, fmt.Sprintf("%s: about %d dead rows beside %d live ones, last vacuumed %s", r.Table, r.Dead, r.Live, last),
				"see to what the checks autovacuum, transactions, prepared and slots say; then VACUUM "+pgx.Identifier{e.Schema, r.Table}.Sanitize()+
					"; docs/operations.md has settings for a busy queue"))
		} else if r.Table == "jobs" || r.Table == "finished" {
			fine = append(fine, fmt.Sprintf("%s %d dead, %d live, vacuumed %s", r.Table, r.Dead, r.Live, last))
		}
	}
	if len(list) == 0 {
		list = append(list, ok(nil, "about: %s", strings.Join(fine, "; ")))
	}
	return list, nil
}

// notifications wait in one queue of the whole server until every session that
// listens has read them. Bells are silent from a half on, so that a full one
// makes no enqueue fail.
func notifications(ctx context.Context, e *exam) ([]Finding, error) {
	s, err := askOne[struct{ Usage float64 }](ctx, e, "SELECT pg_notification_queue_usage()::float8")
	if err != nil {
		return nil, err
	}
	f := figures{"usage": s.Usage}
	message := fmt.Sprintf("the server's notification queue is %.0f %% full", s.Usage*100)
	const remedy = "end the session that listens and does not read: most often it is one with a long open transaction, in any database"
	switch {
	case s.Usage > 0.5:
		return []Finding{but(Fail, f, message+": bells are silent, jobs wait for polling", remedy)}, nil
	case s.Usage > 0.1:
		return []Finding{but(Warn, f, message+"; from 50 % on bells are silent", remedy)}, nil
	default:
		return []Finding{ok(f, "%s", message)}, nil
	}
}
