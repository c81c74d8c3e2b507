package fencepost_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
)

// The database's clock steps forward by more than a lease under a running job.
// The tick that finds out must not have reaped the job already.
func TestAStepOfTheDatabasesClockDoublesNoJob(t *testing.T) {
	t.Parallel()
	dsn, plain := database(t)
	admin := admin(t, plain)
	script := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	script(`CREATE SCHEMA stepped;
		CREATE TABLE stepped.step (by interval);
		INSERT INTO stepped.step VALUES ('0');
		CREATE FUNCTION stepped.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
			AS 'SELECT pg_catalog.clock_timestamp() + by FROM stepped.step';
		GRANT USAGE ON SCHEMA stepped TO ` + workerRole + `;
		GRANT SELECT ON stepped.step TO ` + workerRole)
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["search_path"] = "stepped, pg_catalog" // theirs comes before the server's own
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()

	var log logged
	client := newClient(t, pool, fencepost.Config{
		PollInterval: never,
		Logger:       slog.New(slog.NewTextHandler(&log, nil)),
	})
	began, release := make(chan struct{}, 10), make(chan struct{})
	fencepost.HandleKind(client, "k", func(ctx context.Context, _ *fencepost.Job[json.RawMessage]) error {
		began <- struct{}{}
		<-release
		return nil
	})
	id := enqueue(t, client, fencepost.NewJob{Kind: "k"})[0]
	stop := work(t, client)
	receive(t, began, "the handler")
	eventually(t, "notifications are heard", func() bool { return log.count("notifications are heard") > 0 })

	script(`UPDATE stepped.step SET by = '1 minute'`)
	// A new connection of the listener's is followed by a tick at once.
	script(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencepost listener'`)
	eventually(t, "the step is seen", func() bool { return log.count("clock has stepped") > 0 })
	if n := count(t, admin, "SELECT count(*) FROM fencepost.jobs WHERE status = 'running' AND attempts = 1"); n != 1 {
		t.Error("the running job was taken from its worker")
	}
	close(release)
	if info := ended(t, client, id); info.Status != fencepost.StatusDone || info.Attempts != 1 {
		t.Errorf("job %+v", info)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
