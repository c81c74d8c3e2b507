package crew

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/internal/torture"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// evenMix has as many jobs of each kind, but few of those that take long.
func evenMix() script.Mix {
	mix := make(script.Mix)
	for kind := range kinds {
		mix[kind] = 1
	}
	mix[script.Long], mix[script.Deaf], mix[script.SlowTx] = 0.2, 0.1, 0.2
	return mix
}

func workerOf(dsn, dir string) script.Assignment {
	return script.Assignment{
		Role: script.Worker, Name: "worker-1.1", Dir: dir, DSN: dsn, Seed: 1,
		Lease: 3 * time.Second, Poll: 2 * time.Second, SoftStop: time.Second, HardStop: 9 * time.Second, // the deaf need 8
		Slots: map[string]int{script.Main: 40, script.Side: 10, script.Bin: 10}, MaxConns: 20,
	}
}

func producerOf(dsn, dir string) script.Assignment {
	return script.Assignment{
		Role: script.Producer, Name: "producer-1.1", Dir: dir, DSN: dsn, Seed: 2,
		Rate: 60, Mix: evenMix(),
	}
}

func zombieOf(dsn, dir string) script.Assignment {
	return script.Assignment{Role: script.Zombie, Name: "zombie-1.1", Dir: dir, DSN: dsn, Seed: 3}
}

func operatorOf(dsn, dir string) script.Assignment {
	return script.Assignment{Role: script.Operator, Name: "operator-1.1", Dir: dir, DSN: dsn, Seed: 4}
}

var replayVerbs = []string{
	"done", "retry", "dead", "cancelled", "snooze", "release", "return",
	"extend", "check", "complete", "progress", "effect",
}

// allSeen says what a run has not shown yet: each kind, way and verb.
func allSeen(events []history.Event) string {
	missing := make(map[string]bool)
	for kind := range kinds {
		missing["start "+kind] = true
	}
	for via := range vias {
		missing["enqueue "+via] = true
	}
	for _, verb := range replayVerbs {
		missing["replay "+verb] = true
	}
	for _, verb := range []string{"retry", "cancel", "release", "delete"} {
		missing["operate "+verb] = true
	}
	missing["progress"] = true
	missing["enqueue parent"], missing["rolled back"], missing["cancelled"], missing["refused"] = true, true, true, true
	for _, e := range events {
		switch {
		case e.Op == history.Start:
			delete(missing, "start "+e.Kind)
		case e.Op == history.Enqueue && e.Phase == history.OK:
			delete(missing, "enqueue "+e.Via)
		case e.Op == history.Enqueue && e.Note == "rolled back":
			delete(missing, e.Note)
		case e.Op == history.Progress && e.Result != "":
			delete(missing, "progress")
		case (e.Op == history.Replay || e.Op == history.Operate) && e.Phase == history.OK:
			delete(missing, string(e.Op)+" "+e.Verb)
		case e.Op == history.Refused || e.Op == history.Cancelled:
			delete(missing, string(e.Op))
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(missing)), ", ")
}

// together lets tests run at the same time that mostly wait, unless the one tap
// of the process would hear them all.
func together(t *testing.T) {
	if !torture.On {
		t.Parallel()
	}
}

func TestTheCrewAtWork(t *testing.T) {
	together(t)
	dsn := database(t)
	dir := t.TempDir()
	events := playAll(t, dsn, dir, workerOf(dsn, dir), func(t *testing.T) {
		namesAre(t, dsn, "fencepost exchange", "fencepost keeper", "fencepost listener",
			"operator-1.1", "producer-1.1", "worker-1.1", "zombie-1.1")
	})
	namesAre(t, dsn) // nothing is left
	for _, e := range events {
		if e.Phase == history.Unknown || e.Error != "" && e.Op == history.Enqueue && e.Via != "parent" {
			t.Errorf("without a fault: %+v", e)
		}
	}
}

func TestBehindAPooler(t *testing.T) {
	together(t)
	s := pgtest.Server(t, pg.Options{})
	direct := s.URL("postgres")
	if err := prepare(t.Context(), direct); err != nil {
		t.Fatal(err)
	}
	pooled := pgtest.Pooler(t, s, "transaction", 40)("postgres")
	dir := t.TempDir()
	worker := workerOf(pooled, dir)
	worker.ListenDSN = direct
	playAll(t, pooled, dir, worker, func(*testing.T) {})
}

// playAll has all roles play until all that they can do has been seen, and
// returns what they have written, after it was looked through.
func playAll(t *testing.T, dsn, dir string, worker script.Assignment, meanwhile func(*testing.T)) []history.Event {
	t.Helper()
	all := []*actor{act(t, worker)}
	until(t, dir, shown("the worker", func(e history.Event) bool { return e.Op == history.Hello }))
	for _, a := range []script.Assignment{producerOf(dsn, dir), zombieOf(dsn, dir), operatorOf(dsn, dir)} {
		all = append(all, act(t, a))
	}
	until(t, dir, allSeen)
	meanwhile(t)
	for _, a := range all[1:] { // the worker last
		a.end(t)
	}
	all[0].end(t)

	events, err := history.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	callsEnd(t, events)
	handlersEnd(t, events)
	replaysAreRefused(t, events)
	progressIsFound(t, events)
	rowsAre(t, dsn, events)
	return events
}

// namesAre looks at the names of all other sessions of the database, each once.
// A session needs a moment to end after its connection.
func namesAre(t *testing.T, dsn string, want ...string) {
	t.Helper()
	var names []string
	for range 50 {
		names = texts(t, dsn, `
SELECT DISTINCT application_name FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY 1`)
		if slices.Equal(names, want) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("sessions are named %q, want %q", names, want)
}

// texts asks over a connection of its own, of which nothing is left.
func texts(t *testing.T, dsn, query string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// callsEnd: each call has one return, and none is without.
func callsEnd(t *testing.T, events []history.Event) {
	t.Helper()
	open := make(map[string]history.Op)
	for _, e := range events {
		call := fmt.Sprint(e.Proc, " ", e.N)
		switch {
		case e.Phase == "":
		case e.Phase == history.Call:
			open[call] = e.Op
		case open[call] != e.Op:
			t.Errorf("%s of %q, which is no call under way", e.Op, call)
		default:
			delete(open, call)
		}
	}
	if len(open) > 0 {
		t.Errorf("calls without a return: %v", open)
	}
}

// handlersEnd: each start has one end, unless it would have ended the process,
// and says what it has seen in between.
func handlersEnd(t *testing.T, events []history.Event) {
	t.Helper()
	open := make(map[history.Ref]int)
	claimOf := func(e history.Event) history.Ref { return history.Ref{Job: e.Job, Fence: e.Fence} }
	for _, e := range events {
		switch e.Op {
		case history.Start:
			if e.Kind != script.Killer && (e.Kind != script.Exit || e.Attempt > 1) {
				open[claimOf(e)]++
			}
			if e.Job == 0 || e.Fence == 0 || e.Attempt == 0 || e.Max == 0 || e.Queue == "" || e.Token == "" {
				t.Errorf("a start without all that it is about: %+v", e)
			}
		case history.Seen:
			if e.Result != "row" || e.DB == 0 {
				t.Errorf("job without its business row: %+v", e)
			}
		case history.End:
			open[claimOf(e)]--
			if e.Verb == "" || e.Verb == "snooze" && e.Delay == 0 {
				t.Errorf("an end without all that it is about: %+v", e)
			}
		}
	}
	for c, n := range open {
		if n != 0 {
			t.Errorf("job %d under fence %d: starts minus ends are %d", c.Job, c.Fence, n)
		}
	}
}

func replaysAreRefused(t *testing.T, events []history.Event) {
	t.Helper()
	results := make(map[string]int)
	for _, e := range events {
		if e.Op == history.Replay && e.Phase == history.OK {
			results[e.Result]++
		}
	}
	t.Logf("answers to the zombie: %v", results)
	for r := range results {
		if !slices.Contains([]string{lost, gone, refused}, r) {
			t.Errorf("%d times a stale claim was answered %q", results[r], r)
		}
	}
}

// rowsAre: what was acknowledged is there, and nothing else.
func rowsAre(t *testing.T, dsn string, events []history.Event) {
	t.Helper()
	want := make(map[string]bool)
	for _, e := range events {
		if e.Op == history.Enqueue && e.Phase == history.OK {
			for _, r := range e.Refs {
				want[r.Token] = true
			}
		}
	}
	for _, token := range texts(t, dsn, `SELECT token FROM shop.orders`) {
		if !want[token] {
			t.Errorf("a row of order %s, which was not acknowledged", token)
		}
		delete(want, token)
	}
	if len(want) > 0 {
		t.Errorf("acknowledged and not there: %v", want)
	}
}

func TestTheCrewGoesOnAfterItsConnectionsHaveEnded(t *testing.T) {
	together(t)
	dsn := database(t)
	dir := t.TempDir()
	all := []*actor{act(t, workerOf(dsn, dir))}
	until(t, dir, shown("the worker", func(e history.Event) bool { return e.Op == history.Hello }))
	for _, a := range []script.Assignment{producerOf(dsn, dir), zombieOf(dsn, dir), operatorOf(dsn, dir)} {
		all = append(all, act(t, a))
	}
	conn := pgtest.Conn(t, dsn)
	var since int64
	progress := func(events []history.Event) string {
		missing := map[history.Op]bool{
			history.Enqueue: true, history.Replay: true, history.Operate: true, history.Complete: true, history.Effect: true,
		}
		for _, e := range events {
			if e.At > since && e.Phase == history.OK {
				delete(missing, e.Op)
			}
		}
		if len(missing) > 0 {
			return fmt.Sprint(missing)
		}
		return ""
	}
	for range 3 {
		until(t, dir, progress)
		_, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		if err != nil {
			t.Fatal(err)
		}
		since = history.Now()
	}
	until(t, dir, progress)
	for _, a := range all[1:] {
		a.end(t)
	}
	all[0].end(t)
	events, err := history.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	callsEnd(t, events)
	handlersEnd(t, events)
	replaysAreRefused(t, events)
}

func TestAGuardIsTakenAwayOnlyWithTheTag(t *testing.T) {
	none := func(int) {}
	a := script.Assignment{Role: script.Zombie, Name: "zombie", Dir: t.TempDir(), DSN: "host=nowhere", Break: "no such guard"}
	if err := Run(t.Context(), a, none); err == nil {
		t.Error("a guard that does not exist was taken away")
	}
	a.Break = string(torture.FinishFence)
	if torture.On {
		return
	}
	if err := Run(t.Context(), a, none); err == nil {
		t.Error("a guard was taken away without the tag")
	}
}
