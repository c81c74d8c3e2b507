package check

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// Sample is what one look at the tables has shown while the run went on.
type Sample struct {
	At      time.Time // the database's clock
	Running int       // jobs
	Unnamed []Unnamed // those of them that no claim names in time
}

// Unnamed is a job that runs, and whose lease could end without anybody's looking.
type Unnamed struct {
	Job, Fence int64
	Worker     string
	Lease      time.Time
}

// sqlSample asks of each job that runs whether a row of claims names it that is
// looked into before its lease ends. What a tick could not reap, because somebody
// holds it, is looked at again after a second.
const sqlSample = `
SELECT clock_timestamp(), j.id, j.fence, j.worker_id, j.lease_until, EXISTS (
    SELECT FROM (SELECT unnest(c.ids) AS id, c.look_at FROM fencepost.claims AS c) AS k
    WHERE k.id = j.id AND k.look_at <= greatest(j.lease_until, clock_timestamp() + interval '1 second'))
FROM fencepost.jobs AS j WHERE j.status = 'running'`

// Look takes a sample, in one snapshot.
func Look(ctx context.Context, db witness.DB) (s Sample, err error) {
	rows, err := db.Query(ctx, sqlSample)
	if err != nil {
		return s, err
	}
	var u Unnamed
	var named bool
	_, err = pgx.ForEachRow(rows, []any{&s.At, &u.Job, &u.Fence, &u.Worker, &u.Lease, &named}, func() error {
		s.Running++
		if !named {
			s.Unnamed = append(s.Unnamed, u)
		}
		return nil
	})
	return s, err
}

// named: each job that runs is named by a claim that is looked into in time. No
// index knows of leases: of a job that is not, nobody would ever see that its
// worker is gone.
func named(ix *index, f *finding) {
	for _, s := range ix.Samples {
		f.Checked += s.Running
		for _, u := range s.Unnamed {
			f.violated("no claim names a job that runs", Step{
				ix.at(s.At.UnixNano() - ix.Offset), "database",
				fmt.Sprintf("job=%d running fence=%d worker=%s lease until %.3f s, in no row of claims with a look_at before that",
					u.Job, u.Fence, u.Worker, ix.at(u.Lease.UnixNano()-ix.Offset).Seconds()),
			})
		}
	}
}
