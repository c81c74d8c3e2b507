package suite

import (
	"slices"
	"strings"
	"testing"
)

// Every hot statement's plan is heard, and a bad one among them would be seen.
func TestPlansAreHeard(t *testing.T) {
	t.Parallel()
	b := open(t)
	plans, err := b.plans(t.Context(), 5_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{
		"CROSS JOIN LATERAL", "AS verb", "SET lease_until", "pg_notify", "SET progress", "e.keep_until <", "INSERT INTO \"fencepost\".claims", "DELETE FROM \"fencepost\".claims", "j.ctid >=", "pg_try_advisory_xact_lock_shared",
		"INSERT INTO \"fencepost\".jobs",
	} {
		for _, state := range []string{"never analysed", "analysed"} {
			if !slices.ContainsFunc(plans, func(e explained) bool { return e.state == state && strings.Contains(e.Text, words) }) {
				t.Errorf("%s: no plan with %q", state, words)
			}
		}
	}

	dsn, drop, err := b.Host.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := drop(); err != nil {
			t.Error(err)
		}
	}()
	h, err := openHot(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	if err := h.fill(t.Context(), 5_000); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sql           string
		scans, wholes bool
	}{
		{"SELECT payload FROM fencepost.jobs LIMIT 1", true, true},
		{"SELECT count(*) FROM unnest('{1}'::bigint[]) AS u (id) JOIN fencepost.jobs AS j ON j.id = u.id WHERE j.id = ANY ('{1,2}')", true, false},
		{"SELECT count(id) FROM fencepost.jobs WHERE id > 0 OR id < 9", true, true},
		{"SELECT min(id) FROM fencepost.jobs", false, false},
		{"SELECT payload FROM fencepost.jobs WHERE id = 1", false, false},
		{"SELECT count(*) FROM fencepost.finished", false, false},
	} {
		if _, err := h.heard.take(); err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{"SET enable_mergejoin = off", "SET enable_nestloop = off", c.sql, "RESET ALL", sqlExplainAll} {
			if _, err := h.pool.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		heard, err := h.heard.take()
		if err != nil || len(heard) != 1 {
			t.Fatalf("%d plans of %s, %v", len(heard), c.sql, err)
		}
		scans, wholes := heard[0].Plan.scans("jobs"), heard[0].Plan.wholes("jobs")
		if len(scans) > 0 != c.scans || len(wholes) > 0 != c.wholes {
			t.Errorf("%s: %v, %v", c.sql, scans, wholes)
		}
	}
}
