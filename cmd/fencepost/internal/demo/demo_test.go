package demo

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// short is a plan that leaves room for the troubles in a few seconds.
func short(t *testing.T) Plan {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Plan{
		DatabaseURL: pgtest.New(t, "demo", func(context.Context, string) error { return nil }),
		Command:     []string{self, workerArgument},
		Jobs:        1500, Workers: 3, Lease: 2 * time.Second, Poll: time.Second,
		Effort: 20 * time.Millisecond, Probes: 20,
		Tell:     func(line string) { t.Log(line) },
		Progress: func(string, int, int) {},
	}
}

func TestStoryKeepsItsPromises(t *testing.T) {
	t.Parallel()
	p := short(t)
	r, err := Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	for _, line := range r.Broken() {
		t.Error(line)
	}
	if !r.OK || r.Enqueued != p.Jobs || r.Done != p.Jobs || r.Dead != 0 {
		t.Errorf("enqueued %d, done %d, dead %d, ok %v; want %d, %[5]d, 0, true", r.Enqueued, r.Done, r.Dead, r.OK, p.Jobs)
	}
	// The lease of the killed worker, and the first pause after a failure.
	if least := p.Lease.Seconds() / 2; r.RecoverySeconds < least || r.RecoverySeconds > 20 {
		t.Errorf("recovered after %v s; want between %v and 20", r.RecoverySeconds, least)
	}
	// On a busy machine the handler may begin before the producer is told of
	// its commit, which counts as 0; not always.
	if r.PickupP50 < 0 || r.PickupP99 <= 0 || r.PickupP50 > r.PickupP99 {
		t.Errorf("pick-up p50 %v ms, p99 %v ms", r.PickupP50, r.PickupP99)
	}
	if r.IdleStatements <= 0 || r.IdleWALBytes <= 0 {
		t.Errorf("idle: %v statements and %v bytes a minute", r.IdleStatements, r.IdleWALBytes)
	}
	nothingLeft(t, p)
}

func TestNaiveStoryShowsItsFaults(t *testing.T) {
	t.Parallel()
	p := short(t)
	r, err := RunNaive(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if !r.OK || r.DoubleClaims == 0 || r.LateOverwrites == 0 {
		t.Errorf("%d double claims, %d late overwrites, ok %v; want more of both", r.DoubleClaims, r.LateOverwrites, r.OK)
	}
	nothingLeft(t, p)
}

// A story that is broken off while a worker is frozen leaves nothing behind.
func TestInterruptedStoryLeavesNothing(t *testing.T) {
	t.Parallel()
	p := short(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	enough := errors.New("enough")
	p.Tell = func(line string) {
		if strings.Contains(line, "is frozen") {
			cancel(enough)
		}
	}
	if _, err := Run(ctx, p); !errors.Is(err, enough) {
		t.Errorf("error %v; want %v", err, enough)
	}
	nothingLeft(t, p)
}

// A worker that ends though nobody ended it fails the story at once.
func TestWorkerThatEndsByItselfEndsTheStory(t *testing.T) {
	t.Parallel()
	p := short(t)
	p.Command = []string{p.Command[0], "-no-such-flag"}
	_, err := RunNaive(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), "ended by itself") || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("error %v; want one that quotes the worker", err)
	}
	nothingLeft(t, p)
}

// nothingLeft looks for what a story may have left: sessions mean processes,
// and the schema.
func nothingLeft(t *testing.T, p Plan) {
	t.Helper()
	conn := pgtest.Conn(t, p.DatabaseURL)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	schemas, err := conn.Query(ctx, `SELECT nspname FROM pg_namespace WHERE nspname LIKE 'fencepost\_demo\_%'`)
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(schemas, pgx.RowTo[string])
	if err != nil || len(left) > 0 {
		t.Errorf("schemas left: %q (error %v)", left, err)
	}
	err = until(ctx, "all sessions to end", func() (bool, error) {
		var n int
		err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'fencepost%' AND pid <> pg_backend_pid()`).Scan(&n)
		return n == 0, err
	})
	if err != nil {
		t.Error(err)
	}
}
