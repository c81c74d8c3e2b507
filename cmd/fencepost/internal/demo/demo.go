package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/migrations"
)

// Run tells the story of Fencepost. The report is whole when the error is nil;
// whether the promises were kept, its field OK and its method Broken tell.
func Run(ctx context.Context, p Plan) (r Report, err error) {
	err = onStage(ctx, p, false, func(ctx context.Context, s *stage, c *crew) error {
		client, err := fencepost.New(s.pool, fencepost.Config{Schema: s.schema})
		if err != nil {
			return err
		}
		err = s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			_, err := migrations.Up(ctx, conn.Conn(), s.schema)
			return err
		})
		if err != nil {
			return err
		}
		t := &tale{Plan: p, stage: s, crew: c, client: client, report: &r, ended: newProgress(p, s, sqlEnded)}
		if err := t.oneIdleWorker(ctx); err != nil {
			return err
		}
		return t.manyBusyWorkers(ctx)
	})
	r.OK = err == nil && len(r.Broken()) == 0
	return r, err
}

const sqlEnded = `SELECT count(*) FROM {{schema}}.finished WHERE kind = 'invoice'`

// tale is one telling of the story.
type tale struct {
	Plan
	stage  *stage
	crew   *crew
	client *fencepost.Client
	report *Report
	ended  *progress

	killedAt time.Time // by the database's clock
}

// oneIdleWorker measures how fast an idle worker is, and what it costs.
func (t *tale) oneIdleWorker(ctx context.Context) error {
	w, err := t.crew.hire(ctx)
	if err != nil {
		return err
	}
	t.Tell(fmt.Sprintf("one idle worker: %d single jobs, then nothing for %.0f s", t.Probes, idleWindow(t.Poll).Seconds()))
	took, err := pickup(ctx, t.crew, w, t.client, t.Probes)
	if err != nil {
		return err
	}
	t.report.PickupP50 = milliseconds(percentile(took, 0.50))
	t.report.PickupP99 = milliseconds(percentile(took, 0.99))
	cost, err := idle(ctx, t.stage, t.crew, w, t.Poll)
	if err != nil {
		return err
	}
	t.report.IdleStatements, t.report.IdleWALBytes = cost.statements, cost.walBytes
	return t.crew.dismiss(ctx)
}

// manyBusyWorkers works the invoices, with a kill and a pause in the middle.
func (t *tale) manyBusyWorkers(ctx context.Context) (err error) {
	t.Tell(fmt.Sprintf("%d producers, %d invoices: half by the Go API, half by plain INSERT", producers, t.Jobs))
	t.report.Enqueued, err = load(ctx, t.Plan, inTransaction(t.stage, t.client), inPlainSQL(t.stage, sqlPlain))
	if err != nil {
		return err
	}
	t.Tell(fmt.Sprintf("%d workers", t.Workers))
	workers, err := t.crew.hireMany(ctx, t.Workers)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return t.pauseOne(groupCtx, workers[0]) })
	group.Go(func() error { return t.killOne(groupCtx, workers[1:]) })
	group.Go(func() error { return t.ended.watch(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := t.crew.dismiss(ctx); err != nil {
		return err
	}
	t.report.LateRefused = t.crew.late()
	err = t.stage.tally(ctx, t.report, t.killedAt)
	t.report.RecoverySeconds = math.Round(t.report.RecoverySeconds*100) / 100
	return err
}

// pauseOne freezes a worker with jobs in hand, early, so that the others have
// enough to do meanwhile; and lets it go on when its leases are over.
func (t *tale) pauseOne(ctx context.Context, w *worker) error {
	if err := t.ended.reach(ctx, t.Jobs/10); err != nil {
		return err
	}
	victims, err := t.stage.pause(ctx, w, held)
	if err != nil {
		return err
	}
	t.Tell(fmt.Sprintf("worker %s is frozen while it holds %d", w.name, victims))
	if err := t.stage.robbed(ctx, w, held); err != nil {
		return err
	}
	if err := resume(w.os); err != nil {
		return err
	}
	t.Tell(fmt.Sprintf("the leases of worker %s are over, its jobs are taken; it wakes up and goes on", w.name))
	err = until(ctx, "a late outcome to be refused", func() (bool, error) { return t.crew.late() > 0, nil })
	if errors.Is(err, errNoPatience) {
		return nil // the report says so
	}
	return err
}

// killOne kills a worker with jobs in hand, late: a job that comes back after
// a death queues up behind all that are due by then, and the time that they
// take is no part of the recovery.
func (t *tale) killOne(ctx context.Context, workers []*worker) error {
	if err := t.ended.reach(ctx, t.Jobs*4/5); err != nil {
		return err
	}
	for _, w := range workers {
		victims, at, err := t.stage.kill(ctx, t.crew, w, held)
		if err != nil {
			return err
		}
		next, err := t.crew.hire(ctx)
		if err != nil {
			return err
		}
		t.Tell(fmt.Sprintf("worker %s is killed while it holds %d; worker %s takes its place", w.name, victims, next.name))
		if victims > 0 {
			t.killedAt = at
			return nil
		}
	}
	return errors.New("no worker could be killed with jobs in hand")
}
