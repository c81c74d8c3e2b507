//go:build unix

package main

import (
	"context"
	"fmt"
	"os/exec"
	"testing"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// B98: a worker of either generation dies on the newest schema, and its job comes
// back, whichever is left. Old programs write no claims, and look for leases in
// the whole table.
func TestDeathsDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	for version := 1; version < migrations.Latest; version++ {
		t.Run(fmt.Sprint("from ", version), func(t *testing.T) {
			t.Parallel()
			deathsDuringAnUpgrade(t, version)
		})
	}
}

func deathsDuringAnUpgrade(t *testing.T, version int) {
	older := oldCode(t, version)
	newer, err := exec.LookPath("fencepost")
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t, pgtest.New(t, "empty", func(context.Context, string) error { return nil }), t.TempDir()}
	f.mustRun(newer, "migrate", "up")
	ran := func(name, id string, n int) {
		t.Helper()
		f.until(fmt.Sprintf("run %d of job %s, in the %s worker", n, id, name), func() bool { return f.runs()[name][id] == n })
	}
	back := func(what, id string) {
		t.Helper()
		f.until(what, func() bool {
			return f.sql("SELECT EXISTS (SELECT FROM fencepost.jobs WHERE status = 'ready' AND attempts = 1 AND last_error ~ '^(lease of )?worker' AND id = " + id + ")")[0] == "true"
		})
	}
	// The shortest lease, and a look each second.
	often := []string{"--lease", "2s", "--poll", "1s", "--kind"}
	slow, none := append(often, "slow"), append(often, "none")

	// A new worker is there first, and has walked through the table for jobs that
	// no claim names before there is one. Programs that have a row in workers, and
	// say nothing of claims there, make it look again; of those without a row only
	// another walk can know.
	stopNew, _ := f.hire(newer, newOne, none...)
	_, killOld := f.hire(older, oldOne, slow...)
	id := f.mustRun(newer, "enqueue", "slow")
	ran(oldOne, id, 1)
	if version == 1 {
		stopNew()
		stopNew, _ = f.hire(newer, newOne, none...)
	}
	killOld()
	back("the new worker gives back what the old one had", id)
	stopNew()

	// Among old ones.
	_, killOld = f.hire(older, oldOne, slow...)
	ran(oldOne, id, 2)
	killOld()
	stopOld, _ := f.hire(older, oldOne, slow...)
	ran(oldOne, id, 3)
	f.mustRun(newer, "cancel", id)
	stopOld()

	// A new one dies, and an old one is left.
	_, killNew := f.hire(newer, newOne, slow...)
	id = f.mustRun(older, "enqueue", "slow")
	ran(newOne, id, 1)
	killNew()
	stopOld, _ = f.hire(older, oldOne, slow...)
	ran(oldOne, id, 1)

	// The next new one finds that job too, and puts away what has ended.
	stopNew, _ = f.hire(newer, newOne, none...)
	const named = "SELECT EXISTS (SELECT FROM fencepost.claims AS c JOIN fencepost.jobs AS j ON j.id = ANY (c.ids) AND j.status = 'running' AND j.worker_id = c.worker_id)"
	f.until("the old worker's job is in a claim", func() bool { return f.sql(named)[0] == "true" })
	f.mustRun(newer, "cancel", id)
	f.until("all claims are closed", func() bool { return f.sql("SELECT count(*) FROM fencepost.claims")[0] == "0" })
	stopOld()
	stopNew()
}
