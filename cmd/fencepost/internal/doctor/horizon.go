package doctor

import (
	"context"
	"fmt"
)

// worst bounds how many offenders of a kind are named.
const worst = 5

const whatTheHorizonIs = "until it ends, no dead row that is younger can be removed, and claims step over them"

// transactions lists the longest open ones of this database. One that holds a
// snapshot or has written keeps dead rows of the queue alive. Vacuum does not.
//
// The text of queries is not read: it may hold secrets.
func transactions(ctx context.Context, e *exam) ([]Finding, error) {
	rows, err := ask[struct {
		PID               int32
		State, Name, User string
		Age               float64
		Holds             bool
		Of                int
	}](ctx, e, `
		SELECT a.pid, coalesce(a.state, ''), coalesce(a.application_name, ''), coalesce(a.usename::text, ''),
		       extract(epoch FROM clock_timestamp() - a.xact_start)::float8,
		       a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL,
		       count(*) OVER ()::int
		FROM pg_stat_activity AS a
		WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
		  AND a.backend_type IN ('client backend', 'background worker') AND a.leader_pid IS NULL
		  AND a.xact_start < clock_timestamp() - $1::float8 * interval '1 second'
		  AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum AS v WHERE v.pid = a.pid)
		ORDER BY a.xact_start
		LIMIT $2::bigint`, e.limits.long.Seconds(), worst)
	if err != nil {
		return nil, err
	}
	var list []Finding
	for _, r := range rows {
		f := figures{
			"pid": r.PID, "state": r.State, "application_name": r.Name, "user": r.User,
			"age_seconds": r.Age, "holds_horizon": r.Holds, "of": r.Of,
		}
		message := fmt.Sprintf("pid %d (%s, user %s): %s, transaction open for %s", r.PID, r.Name, r.User, r.State, span(r.Age))
		end := fmt.Sprintf("SELECT pg_terminate_backend(%d), if nobody needs it", r.PID)
		if r.State == "idle in transaction" || r.State == "idle in transaction (aborted)" {
			end += "; see why its program does not commit, and set idle_in_transaction_session_timeout"
		}
		switch {
		case !r.Holds:
			list = append(list, but(Warn, f, message+"; it may hold locks", end))
		case r.Age < e.limits.tooLong.Seconds():
			list = append(list, but(Warn, f, message+"; "+whatTheHorizonIs, end))
		default:
			list = append(list, but(Fail, f, message+"; "+whatTheHorizonIs, end))
		}
	}
	hidden, err := askOne[struct {
		May      bool
		Sessions int
	}](ctx, e, `
		SELECT pg_has_role('pg_read_all_stats', 'USAGE'),
		       (SELECT count(*)::int FROM pg_stat_activity AS a
		        WHERE a.datname = current_database() AND a.usesysid IS NOT NULL AND NOT pg_has_role(a.usesysid, 'USAGE'))`)
	if err != nil {
		return list, err
	}
	if !hidden.May && hidden.Sessions > 0 {
		list = append(list, but(Skip, figures{"hidden": hidden.Sessions},
			fmt.Sprintf("cannot tell for sessions of other roles, of which there are %d: missing right pg_read_all_stats", hidden.Sessions),
			"GRANT pg_read_all_stats TO this role, or pg_monitor"))
	}
	if len(list) == 0 {
		list = append(list, ok(nil, "none has been open for more than %s", span(e.limits.long.Seconds())))
	}
	return list, nil
}

// prepared transactions of two-phase commit outlive their session, and
// restarts.
func prepared(ctx context.Context, e *exam) ([]Finding, error) {
	rows, err := ask[struct {
		GID, Owner string
		Age        float64
		Of         int
	}](ctx, e, `
		SELECT p.gid, p.owner::text, extract(epoch FROM clock_timestamp() - p.prepared)::float8, count(*) OVER ()::int
		FROM pg_prepared_xacts AS p
		WHERE p.database = current_database() AND p.prepared < clock_timestamp() - $1::float8 * interval '1 second'
		ORDER BY p.prepared
		LIMIT $2::bigint`, e.limits.long.Seconds(), worst)
	if err != nil {
		return nil, err
	}
	var list []Finding
	for _, r := range rows {
		verdict := Warn
		if r.Age >= e.limits.tooLong.Seconds() {
			verdict = Fail
		}
		list = append(list, but(verdict, figures{"gid": r.GID, "owner": r.Owner, "age_seconds": r.Age, "of": r.Of},
			fmt.Sprintf("transaction %s of %s, prepared %s ago, is neither committed nor rolled back; %s", r.GID, r.Owner, span(r.Age), whatTheHorizonIs),
			fmt.Sprintf("COMMIT PREPARED %s or ROLLBACK PREPARED %s, as its coordinator says", literal(r.GID), literal(r.GID))))
	}
	if len(list) == 0 {
		list = append(list, ok(nil, "none has been waiting for more than %s", span(e.limits.long.Seconds())))
	}
	return list, nil
}

// slots and standbys hold the horizon by the oldest transaction that a standby
// still needs; how long that is in time the server does not know.
func slots(ctx context.Context, e *exam) ([]Finding, error) {
	rows, err := ask[struct {
		Name   string
		Slot   bool
		Active bool
		Age    int64
		Of     int
	}](ctx, e, `
		SELECT h.name, h.slot, h.active, h.age, count(*) OVER ()::int
		FROM (
		    SELECT s.slot_name::text, true, s.active, age(s.xmin)::bigint FROM pg_replication_slots AS s WHERE s.xmin IS NOT NULL
		    UNION ALL
		    -- Standbys without a slot that say what they need (hot_standby_feedback).
		    SELECT coalesce(r.application_name, ''), false, true, age(r.backend_xmin)::bigint FROM pg_stat_replication AS r WHERE r.backend_xmin IS NOT NULL
		) AS h (name, slot, active, age)
		WHERE NOT h.active OR h.age > $1::bigint
		ORDER BY h.age DESC
		LIMIT $2::bigint`, e.limits.slotAge, worst)
	if err != nil {
		return nil, err
	}
	var list []Finding
	for _, r := range rows {
		f := figures{"name": r.Name, "slot": r.Slot, "active": r.Active, "xmin_age": r.Age, "of": r.Of}
		held := fmt.Sprintf("is %d transactions behind; no dead row that is younger can be removed", r.Age)
		switch {
		case !r.Slot:
			list = append(list, but(Warn, f, fmt.Sprintf("standby %s %s", r.Name, held), "end the long query there, or turn hot_standby_feedback off"))
		case r.Active:
			list = append(list, but(Warn, f, fmt.Sprintf("replication slot %s %s", r.Name, held), "end the long query on its standby, or turn hot_standby_feedback off there"))
		default:
			verdict := Warn
			if r.Age > e.limits.slotAge {
				verdict = Fail
			}
			list = append(list, but(verdict, f, fmt.Sprintf("replication slot %s, which nobody uses, %s", r.Name, held),
				fmt.Sprintf("start its standby, or SELECT pg_drop_replication_slot(%s)", literal(r.Name))))
		}
	}
	if len(list) == 0 {
		list = append(list, ok(nil, "no replication slot and no standby holds old rows"))
	}
	return list, nil
}
