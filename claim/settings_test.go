package claim_test

import (
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost/claim"
)

// Claims and outcomes commit durably, whatever the role's default; a stronger
// setting stays. The settings end with the transaction.
func TestCommitsAreDurable(t *testing.T) {
	t.Parallel()
	healthy := setUp(t)
	if _, err := healthy.conn.PgConn().Exec(healthy.ctx, `
		CREATE TABLE seen (what text, setting text, jit text, lock_timeout text, plan text);
		CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO seen VALUES (TG_OP || ' ' || TG_TABLE_NAME, current_setting('synchronous_commit'),
				current_setting('jit'), current_setting('lock_timeout'), current_setting('plan_cache_mode'));
			RETURN NULL;
		END $$;
		CREATE TRIGGER look AFTER UPDATE OR DELETE ON fencepost.jobs FOR EACH ROW EXECUTE FUNCTION look();
		CREATE TRIGGER look AFTER DELETE ON fencepost.finished FOR EACH ROW EXECUTE FUNCTION look()`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ role, want, edit string }{
		"off":          {"off", "on", "'on'"},
		"local":        {"local", "on", "'on'"},
		"on":           {"on", "on", "'on'"},
		"remote_write": {"remote_write", "remote_write", "'on'"},
		"remote_apply": {"remote_apply", "remote_apply", "'on'"},
		"not set":      {"off", "off", "'off'"}, // the guard cut out
	} {
		t.Run(name, func(t *testing.T) {
			b := healthy.fresh(t).with(claim.Mutant(t, schema, claim.SQLSettings, "THEN 'on' ELSE", "THEN "+test.edit+" ELSE"))
			b.exec("TRUNCATE seen")
			b.exec("SELECT set_config('synchronous_commit', $1::text, false)", test.role)
			b.exec("INSERT INTO {{schema}}.queues VALUES ('default', '1 microsecond')")
			b.insert(2)
			row := b.takeOne(lease)
			if _, err := b.Extend(b.ctx, b.conn, []claim.Lease{row.Lease()}, lease); err != nil {
				t.Fatal(err)
			}
			b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: claim.Done})
			b.finish(claim.Stored, claim.Outcome{Lease: b.takeOne(lease).Lease(), Verb: claim.Retry})
			if n, err := b.Prune(b.ctx, b.conn); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			b.exec("TRUNCATE {{schema}}.jobs")
			b.inState(7, "running")
			for _, step := range []string{"release running", "cancel ready", "retry cancelled", "delete ready"} {
				verb, status, _ := strings.Cut(step, " ")
				b.operate(verb, 7, "done", status)
			}
			expect(b, "DELETE finished,DELETE jobs,UPDATE jobs", "SELECT string_agg(DISTINCT what, ',' ORDER BY what) FROM seen")
			expect(b, test.want, "SELECT string_agg(DISTINCT setting, ',') FROM seen")
			expect(b, "off", "SELECT string_agg(DISTINCT jit, ',') FROM seen")
			expect(b, "1s", "SELECT string_agg(DISTINCT lock_timeout, ',') FROM seen")
			expect(b, "force_custom_plan,force_generic_plan", "SELECT string_agg(DISTINCT plan, ',' ORDER BY plan) FROM seen")
			expect(b, test.role, "SELECT current_setting('synchronous_commit')")
			expect(b, "0", "SELECT current_setting('lock_timeout')")
			expect(b, "auto", "SELECT current_setting('plan_cache_mode')")
		})
	}
}

// The caller's own transaction keeps the caller's settings.
func TestCompleteTxLeavesSettingsAlone(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.insert(1)
	row := b.takeOne(lease)
	tx := b.open()
	if _, err := tx.Exec(b.ctx, "SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '7s'"); err != nil {
		t.Fatal(err)
	}
	if err := b.CompleteTx(b.ctx, tx, row.Lease()); err != nil {
		t.Fatal(err)
	}
	var commit, timeout string
	if err := tx.QueryRow(b.ctx, "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')").Scan(&commit, &timeout); err != nil {
		t.Fatal(err)
	}
	if commit != "off" || timeout != "7s" {
		t.Errorf("settings %s, %s after CompleteTx", commit, timeout)
	}
	b.commit(tx)
}
