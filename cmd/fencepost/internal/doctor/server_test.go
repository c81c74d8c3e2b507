package doctor

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

func TestVersionsOfTheServer(t *testing.T) {
	t.Parallel()
	for number, want := range map[int]Verdict{
		90624: Fail, 130014: Fail, 140000: OK, 150018: OK, 180004: OK, 189999: OK, 190000: Warn,
	} {
		if got := judgeVersion(number, "x"); got.Verdict != want {
			t.Errorf("%d: %+v; want %s", number, got, want)
		}
	}
}

func TestReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.script("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$")
	w.want("writable", Fail, "default_transaction_read_only is on")
	w.want("wake", OK) // LISTEN and NOTIFY write nothing
}

func TestSettingsOfTheRole(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	with := func(name, value string) {
		w.patient.Conn = w.config(w.dsn)
		w.patient.Conn.RuntimeParams[name] = value
	}
	for _, test := range []struct {
		name, value string
		want        Verdict
		words       string
	}{
		{"default_transaction_isolation", "serializable", Warn, "default_transaction_isolation is serializable"},
		{"default_transaction_isolation", "repeatable read", Warn, "repeatable read"},
		{"statement_timeout", "2s", Warn, "statement_timeout is 2000 ms"},
		{"statement_timeout", "5s", OK, ""},
		{"idle_in_transaction_session_timeout", "100", Warn, "idle_in_transaction_session_timeout is 100 ms"},
		{"idle_session_timeout", "1h", Warn, "idle_session_timeout is 3600000 ms"},
		{"synchronous_commit", "off", OK, "synchronous_commit is off"},
		{"synchronous_commit", "on", OK, "suit workers"},
	} {
		with(test.name, test.value)
		w.want("settings", test.want, test.words)
	}
	if value[bool](w, "SELECT current_setting('server_version_num')::int >= 170000") {
		with("transaction_timeout", "3s")
		w.want("settings", Warn, "transaction_timeout is 3000 ms")
	}
}

// What is set for the whole server needs one of its own.
func TestSettingsOfTheServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{Settings: map[string]string{
		"max_connections": "14", "superuser_reserved_connections": "3", "max_prepared_transactions": "5", "autovacuum": "off",
	}})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	w := on(t, server.URL("postgres"))

	w.want("autovacuum", Warn, "autovacuum is off on this server")

	w.want("connections", OK, "of 11 connections")
	for range 9 {
		pgtest.Conn(t, w.dsn)
	}
	w.want("connections", Warn, "of 11 connections")

	w.want("prepared", OK)
	w.script("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'it''s mine'")
	w.want("prepared", OK) // not for long yet
	w.limited(func(l *limits) { l.long = 0 })
	w.want("prepared", Warn, "transaction it's mine of postgres", "ROLLBACK PREPARED 'it''s mine'")
	w.limited(func(l *limits) { l.long, l.tooLong = 0, 0 })
	w.want("prepared", Fail, "it's mine")
	w.script("ROLLBACK PREPARED 'it''s mine'")
	w.want("prepared", OK)
}

// Slots and standbys that hold old rows: a real standby that says what it
// needs, with a slot and without, and then none.
func TestSlotsHoldTheHorizon(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	standby, err := server.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			if err := standby.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	w := on(t, server.URL("postgres"))
	w.want("slots", OK)
	w.limited(func(l *limits) { l.slotAge = 0 })

	reader := pgtest.Conn(t, standby.URL("postgres"))
	alter := func(sql string) {
		for _, s := range []string{sql, "SELECT pg_reload_conf()"} {
			if _, err := reader.Exec(w.ctx, s); err != nil {
				t.Fatal(err)
			}
		}
	}
	alter("ALTER SYSTEM SET wal_receiver_status_interval = 1")
	alter("ALTER SYSTEM SET hot_standby_feedback = on")
	tx, err := reader.BeginTx(w.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(w.ctx, "SELECT count(*) FROM pg_class"); err != nil {
		t.Fatal(err)
	}
	grow := func() { w.script("SELECT pg_current_xact_id(); SELECT pg_current_xact_id()") }
	w.until("SELECT EXISTS (SELECT FROM pg_stat_replication WHERE backend_xmin IS NOT NULL)")
	grow()
	w.want("slots", Warn, "standby ", "transactions behind")

	w.script("SELECT pg_create_physical_replication_slot('ours')")
	if err := tx.Rollback(w.ctx); err != nil {
		t.Fatal(err)
	}
	alter("ALTER SYSTEM SET primary_slot_name = 'ours'")
	w.until("SELECT EXISTS (SELECT FROM pg_replication_slots WHERE xmin IS NOT NULL AND active)")
	grow()
	w.until("SELECT EXISTS (SELECT FROM pg_replication_slots WHERE xmin IS NOT NULL AND active)")

	stopped = true
	if err := standby.Stop(); err != nil {
		t.Fatal(err)
	}
	w.until("SELECT EXISTS (SELECT FROM pg_replication_slots WHERE xmin IS NOT NULL AND NOT active)")
	grow()
	w.want("slots", Fail, "replication slot ours, which nobody uses", "pg_drop_replication_slot('ours')")
	w.patient.limits = nil
	w.want("slots", Warn, "replication slot ours, which nobody uses")
	w.script("SELECT pg_drop_replication_slot('ours')")
	w.want("slots", OK)
}
