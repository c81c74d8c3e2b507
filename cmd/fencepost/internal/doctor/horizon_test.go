package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/internal/pgtest"
)

func TestOpenTransactions(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	config := w.config(w.dsn)
	holder := pgtest.Conn(t, config.ConnString())
	run(w, holder, "SET application_name = 'holder'")
	pid := fmt.Sprint("pid ", holder.PgConn().PID())

	// Without a snapshot it holds nothing but locks.
	run(w, holder, "BEGIN; SELECT 'hunter2'")
	w.want("transactions", OK)
	w.limited(func(l *limits) { l.long = 0 })
	f := w.want("transactions", Warn, pid, "(holder, user ", "idle in transaction", "it may hold locks", "idle_in_transaction_session_timeout", fmt.Sprintf("pg_terminate_backend(%d)", holder.PgConn().PID()))
	if f.Figures["pid"] != int32(holder.PgConn().PID()) || f.Figures["application_name"] != "holder" {
		t.Errorf("figures: %v", f.Figures)
	}
	run(w, holder, "ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 'hunter2'")
	w.want("transactions", Warn, pid, "no dead row that is younger can be removed")
	w.limited(func(l *limits) { l.long, l.tooLong = 0, 0 })
	w.want("transactions", Fail, pid, "no dead row")
	run(w, holder, "ROLLBACK; BEGIN; SELECT pg_current_xact_id(), 'hunter2'")
	w.want("transactions", Fail, pid)
	w.doesNotShow("hunter2")

	// Another role's is seen only with the right to.
	w.role("")
	w.want("transactions", Skip, "cannot tell for sessions of other roles", "GRANT pg_read_all_stats")
	w.doesNotShow("hunter2")
	w.script("GRANT pg_read_all_stats TO " + w.patient.Conn.RuntimeParams["role"])
	w.want("transactions", Fail, pid)
	w.patient.Conn = w.config(w.dsn)

	run(w, holder, "ROLLBACK")
	w.want("transactions", OK)

	// One that is at work.
	sleeping := make(chan error, 1)
	go func() {
		_, err := holder.Exec(w.ctx, "SELECT pg_sleep(60), 'hunter2'")
		sleeping <- err
	}()
	w.until("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1::bigint AND wait_event = 'PgSleep')", int64(holder.PgConn().PID()))
	w.want("transactions", Fail, pid, "active")
	w.doesNotShow("hunter2")
	w.script(fmt.Sprintf("SELECT pg_cancel_backend(%d)", holder.PgConn().PID()))
	<-sleeping
}

func (w *ward) doesNotShow(secret string) {
	w.Helper()
	for _, f := range w.find("transactions") {
		if text := fmt.Sprint(f); strings.Contains(text, secret) {
			w.Errorf("shows %s: %s", secret, text)
		}
	}
}

// A vacuum is a long transaction that holds nothing.
func TestAVacuumIsNoLongTransaction(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.script("INSERT INTO {{schema}}.jobs (kind, payload) SELECT 'test', to_jsonb(repeat('x', 1000)) FROM generate_series(1, 5000); DELETE FROM {{schema}}.jobs")
	vacuum, vacuumed := pgtest.Conn(t, w.dsn), make(chan error, 1)
	run(w, vacuum, "SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1")
	go func() {
		_, err := vacuum.Exec(w.ctx, filled("VACUUM {{schema}}.jobs"))
		vacuumed <- err
	}()
	w.until("SELECT EXISTS (SELECT FROM pg_stat_progress_vacuum WHERE pid = $1::bigint)", int64(vacuum.PgConn().PID()))
	w.limited(func(l *limits) { l.long, l.tooLong = 0, time.Hour })
	w.want("transactions", OK)
	w.script(fmt.Sprintf("SELECT pg_cancel_backend(%d)", vacuum.PgConn().PID()))
	if err := <-vacuumed; err == nil {
		t.Error("the vacuum ended before it was looked at, perhaps")
	}
}
