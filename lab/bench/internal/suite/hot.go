package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/migrations"
)

// hot runs every hot statement of Fencepost on one session, which tells its
// plans.
type hot struct {
	pool  *pgxpool.Pool
	heard *plansHeard
	table *claim.Table
}

const (
	hotLease  = time.Minute
	hotWorker = "me"
)

func openHot(ctx context.Context, dsn string) (*hot, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	h := &hot{heard: &plansHeard{}, table: claim.In(fencepost.DefaultSchema)}
	config.MaxConns = 1
	config.ConnConfig.OnNotice = h.heard.notice
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sqlExplainAll)
		return err
	}
	if h.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *hot) close() error {
	h.pool.Close()
	return nil
}

// fill makes the tables and the given number of jobs.
func (h *hot) fill(ctx context.Context, n int) error {
	if err := h.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := migrations.Up(ctx, c.Conn(), fencepost.DefaultSchema)
		return err
	}); err != nil {
		return err
	}
	for _, sql := range []string{
		"ALTER TABLE fencepost.jobs DISABLE TRIGGER bell",
		// Who has never analysed the table must not have it done meanwhile.
		"ALTER TABLE fencepost.jobs SET (autovacuum_enabled = off)",
		"ALTER TABLE fencepost.finished SET (autovacuum_enabled = off)",
		"ALTER TABLE fencepost.claims SET (autovacuum_enabled = off)",
	} {
		if _, err := h.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if _, err := h.pool.Exec(ctx, sqlPlansJobs, n); err != nil {
		return err
	}
	if _, err := h.pool.Exec(ctx, sqlPlansClaims); err != nil {
		return err
	}
	if _, err := h.pool.Exec(ctx, sqlPlansFinished, n/5); err != nil {
		return err
	}
	for _, sql := range []string{
		`INSERT INTO fencepost.workers (worker_id, lock_key, server_start)
			SELECT 'worker ' || n, n, pg_postmaster_start_time() FROM generate_series(0, 199) AS n`,
		"ALTER TABLE fencepost.jobs ENABLE ALWAYS TRIGGER bell",
	} {
		if _, err := h.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// run runs them and returns their plans.
func (h *hot) run(ctx context.Context) ([]explained, error) {
	if _, err := h.heard.take(); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"tick", h.tick},
		{"claim and end", h.work},
		{"operate", h.operate},
		{"enqueue", h.enqueue},
	} {
		if err := s.run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return h.heard.take()
}

// tick does what happens because time has passed. Nobody holds the locks of the
// other workers, so they are silent, and the next tick takes their jobs.
func (h *hot) tick(ctx context.Context) error {
	if _, err := h.table.Register(ctx, h.pool, claim.Worker{ID: hotWorker}, true); err != nil {
		return err
	}
	r := claim.TickRequest{
		Queues: []string{fencepost.DefaultQueue, "other"}, Reap: true, Worker: hotWorker, Own: "own", Token: "token",
	}
	ticked, err := h.table.Tick(ctx, h.pool, r)
	if err != nil {
		return err
	}
	r.Dead = ticked.Silent[:min(len(ticked.Silent), 1)]
	r.Kinds = []string{"kind 1", "kind 2"}
	if _, err := h.table.Tick(ctx, h.pool, r); err != nil {
		return err
	}
	r.Dead, r.Worker = nil, ""
	if _, err := h.table.Tick(ctx, h.pool, r); err != nil {
		return err
	}
	if _, _, err := h.table.Adopt(ctx, h.pool, 0); err != nil {
		return err
	}
	if _, err := h.table.Prune(ctx, h.pool); err != nil {
		return err
	}
	_, err = h.table.Sweep(ctx, h.pool)
	return err
}

// work claims jobs in every way and ends them in every way.
func (h *hot) work(ctx context.Context) error {
	marks := claim.NewMarks()
	ask := func(kinds ...string) claim.Request {
		return claim.Request{
			Queue: fencepost.DefaultQueue, Kinds: kinds, Limit: 100, Look: marks.Look(fencepost.DefaultQueue, time.Now()),
		}
	}
	first := ask()
	claimed, err := h.table.Claim(ctx, h.pool, first, hotLease, hotWorker)
	if err != nil {
		return err
	}
	if len(claimed.Rows) < 100 {
		return fmt.Errorf("%d jobs claimed", len(claimed.Rows))
	}
	marks.Learn(first, time.Now(), claimed)
	leases := leasesOf(claimed.Rows)
	if _, err := h.table.Extend(ctx, h.pool, leases, hotLease); err != nil {
		return err
	}
	if _, err := h.table.Check(ctx, h.pool, leases); err != nil {
		return err
	}
	if err := h.table.Progress(ctx, h.pool, leases[0], json.RawMessage(`{"at": 1}`)); err != nil {
		return err
	}
	if err := pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error { return h.table.CompleteTx(ctx, tx, leases[0]) }); err != nil {
		return err
	}
	results, next, err := h.table.Exchange(ctx, h.pool, endings(claimed.Rows[1:]), []claim.Request{ask(), ask("kind 1", "kind 2")}, hotLease, hotWorker)
	if err != nil {
		return err
	}
	if err := allStored(results); err != nil {
		return err
	}
	if results, err = h.table.Finish(ctx, h.pool, endings(slices.Concat(next[0].Rows, next[1].Rows))); err != nil {
		return err
	}
	return allStored(results)
}

func leasesOf(rows []claim.Row) (leases []claim.Lease) {
	for _, row := range rows {
		leases = append(leases, row.Lease())
	}
	return leases
}

// endings end claims in all ways in turn, and close each with its last job.
func endings(rows []claim.Row) (outcomes []claim.Outcome) {
	verbs := []claim.Verb{claim.Done, claim.Retry, claim.Dead, claim.Cancelled, claim.Snooze, claim.Release, claim.Return}
	for i, row := range rows {
		o := claim.Outcome{Lease: row.Lease(), Verb: verbs[i%len(verbs)], Delay: time.Hour, Error: "an error"}
		if i+1 == len(rows) || rows[i+1].Claim != row.Claim {
			o.Closes = row.Claim
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

func allStored(results []claim.Result) error {
	if slices.ContainsFunc(results, func(r claim.Result) bool { return r != claim.Stored }) {
		return fmt.Errorf("outcomes: %v", results)
	}
	return nil
}

// operate does what operators do with jobs that they name: some that run, and
// some that wait.
func (h *hot) operate(ctx context.Context) error {
	claimed, err := h.table.Claim(ctx, h.pool, claim.Request{Queue: fencepost.DefaultQueue, Limit: 40}, hotLease, hotWorker)
	if err != nil {
		return err
	}
	if len(claimed.Rows) < 40 {
		return fmt.Errorf("%d jobs claimed", len(claimed.Rows))
	}
	var ids []int64
	for _, row := range claimed.Rows {
		ids = append(ids, row.ID)
	}
	if _, err := h.table.Get(ctx, h.pool, ids[0]); err != nil {
		return err
	}
	for _, verb := range []func(context.Context, claim.DB, []int64) ([]claim.Did, error){
		h.table.Cancel, h.table.Retry, h.table.Release, h.table.Delete,
	} {
		if _, err := verb(ctx, h.pool, ids[:30]); err != nil {
			return err
		}
	}
	_, err = h.table.Release(ctx, h.pool, ids[30:])
	return err
}

func (h *hot) enqueue(ctx context.Context) error {
	client, err := fencepost.New(h.pool, fencepost.Config{})
	if err != nil {
		return err
	}
	jobs := make([]fencepost.NewJob, 100)
	for i := range jobs {
		jobs[i] = fencepost.NewJob{Kind: "kind 1", Payload: i}
	}
	if _, err := client.Enqueue(ctx, jobs[0]); err != nil {
		return err
	}
	_, err = client.Enqueue(ctx, jobs...)
	return err
}
