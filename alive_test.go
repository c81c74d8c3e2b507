package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/faultproxy"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// crew is two worker processes with a hundred jobs each.
type crew struct {
	*testing.T
	pool    *pgxpool.Pool
	workers []*holder
	jobs    string // as they were when the last of them began
}

func startCrew(t *testing.T, dsn string, pool *pgxpool.Pool) *crew {
	t.Helper()
	c := &crew{T: t, pool: pool}
	for range 2 {
		h := startHolder(t, dsn)
		h.tells(1, "hearing true")
		enqueue(t, newClient(t, pool, fencepost.Config{}), hundred()...)
		h.tells(100, "began") // the one before has no free slot
		c.workers = append(c.workers, h)
	}
	c.jobs = c.look()
	return c
}

// look is everything about the jobs that another claim, or a reap, would
// change.
func (c *crew) look() (jobs string) {
	c.Helper()
	const sql = `SELECT count(*) || ' jobs, ' || md5(string_agg(concat_ws(' ', id, status, attempts, fence, worker_id), ',' ORDER BY id)) FROM fencepost.all_jobs`
	eventually(c, "the server answers", func() bool { // after a restart the pool has connections that are broken
		return c.pool.QueryRow(c.Context(), sql).Scan(&jobs) == nil
	})
	return jobs
}

// unharmed says that no job was taken from anybody, and no handler told so.
func (c *crew) unharmed(after string) {
	c.Helper()
	if jobs := c.look(); jobs != c.jobs {
		c.Errorf("after %s: %s; want %s", after, jobs, c.jobs)
	}
	for i, h := range c.workers {
		var told []string
		for _, line := range h.told("") {
			if line != "hearing true" && line != "hearing false" {
				told = append(told, line)
			}
		}
		if len(told) > 0 {
			c.Errorf("after %s worker %d tells of %d things, such as %q", after, i, len(told), told[0])
		}
	}
}

// Whichever connections of healthy workers are ended, all of a kind, all of a
// worker's, or any one, every 2 s for a minute, nobody is taken for dead.
func TestLostConnectionsAreNoDeath(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	c := startCrew(t, dsn, pool)
	super := admin(t, pool)
	length := time.Minute
	if os.Getenv("FENCEPOST_LONG") != "" {
		length = 5 * time.Minute
	}
	ended := 0
	for begin, round := time.Now(), 0; time.Since(begin) < length; round++ {
		which := []string{
			"application_name = 'fencepost listener'",
			"application_name = 'fencepost exchange'",
			"application_name = 'fencepost keeper'",
			"pid = (SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'fencepost %' ORDER BY random() LIMIT 1)",
			"pid = (SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencepost exchange' ORDER BY random() LIMIT 1)",
			"application_name LIKE 'fencepost %'",
		}[round%6]
		ended += count(t, super, "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND "+which+") AS x")
		time.Sleep(2 * time.Second) // the pace of the test
		c.unharmed(fmt.Sprintf("round %d, %s", round, which))
		if t.Failed() {
			break
		}
	}
	t.Logf("%d connections were ended", ended)
	eventually(t, "both workers have a lock again", func() bool { return live(t, pool) == 2 })
}

// One worker's connection with the lock is ended every few seconds, and never
// that of the one that watches it, which therefore is in no mood to be patient.
func TestALostLockIsNoDeath(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	c := startCrew(t, dsn, pool)
	super := admin(t, pool)
	var victim string
	if err := pool.QueryRow(t.Context(), "SELECT worker_id FROM fencepost.workers ORDER BY started_at LIMIT 1").Scan(&victim); err != nil {
		t.Fatal(err)
	}
	rounds := 10
	if os.Getenv("FENCEPOST_LONG") != "" {
		rounds = 100
	}
	for round := range rounds {
		eventually(t, "both workers have a lock", func() bool { return live(t, pool) == 2 })
		n := count(t, super, `SELECT count(*) FROM (SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l JOIN fencepost.workers AS w
			ON l.locktype = 'advisory' AND l.classid = w.tableoid AND l.objid = w.lock_key::oid AND l.granted
				-- Databases that are copies of one template have tables of the same oid.
				AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			WHERE w.worker_id = $1) AS x`, victim)
		if n != 1 {
			t.Fatalf("%d connections were ended, want 1", n)
		}
		time.Sleep(2300 * time.Millisecond) // the pace of the test, now before and now after a look
		c.unharmed(fmt.Sprint("round ", round))
		if t.Failed() {
			break
		}
	}
}

// A process that is stopped for 0.6 of a lease keeps its jobs: its sessions
// live, and what it has missed it makes up for in time.
func TestAPauseIsNoDeath(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	c := startCrew(t, dsn, pool)
	c.workers[0].signal(sigStop)
	time.Sleep(18 * time.Second) // of 30, the default lease
	c.workers[0].signal(sigCont)
	ends := count(t, pool, "SELECT extract(epoch FROM max(lease_until))::int FROM fencepost.jobs")
	eventually(t, "all leases are extended", func() bool {
		return count(t, pool, "SELECT extract(epoch FROM min(lease_until))::int FROM fencepost.jobs") > ends
	})
	c.unharmed("a pause of 18 s")
}

// A server that is restarted, by its operator or after a crash, has no locks:
// until everybody has come back, nobody is dead.
func TestARestartOfTheServerIsNoDeath(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{Durable: true})
	dsn := server.URL("postgres")
	if err := migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	c := startCrew(t, dsn, pgtest.Pool(t, dsn))
	restart := func(mode string) {
		if err := server.Shutdown(mode); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for what, fault := range map[string]func(){
		"a fast restart":       func() { restart("fast") },
		"an immediate restart": func() { restart("immediate") },
		"a crash of a session": func() {
			victim := count(t, c.pool, "SELECT pid FROM pg_stat_activity WHERE application_name = 'fencepost exchange' LIMIT 1")
			if err := killSession(victim); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, h := range c.workers {
			h.told("")
		}
		fault()
		for _, h := range c.workers {
			h.tells(1, "hearing false")
			h.tells(1, "hearing true")
		}
		c.look() // the pool is well again
		eventually(t, "both workers have a lock again", func() bool { return live(t, c.pool) == 2 })
		time.Sleep(12 * time.Second) // longer than the longest grace
		c.unharmed(what)
	}
}

// A worker whose network has gone silent, while the server still has its
// sessions, keeps its jobs until their lease ends; others take them then, and
// not before.
func TestASilentNetworkIsNoDeath(t *testing.T) {
	t.Parallel()
	dsn, direct := database(t)
	proxy := faultproxy.New(t, dsn)
	const lease = 8 * time.Second // longer than it takes to be noticed
	died := make(chan string, 10)
	config := fencepost.Config{Lease: lease, Observer: fencepost.Observer{Died: func(worker string, _ int) { died <- worker }}}
	silent, other := newClient(t, poolThrough(t, dsn, proxy), config), newClient(t, direct, config)
	began, release := hold(silent)
	attempts, releaseOther := hold(other)
	enqueue(t, other, fencepost.NewJob{Kind: "hold"})
	work(t, silent)
	receive(t, began, "the job")
	eventually(t, "the worker is registered", func() bool { return live(t, direct) == 1 })
	work(t, other)
	defer close(release)
	defer close(releaseOther)

	proxy.Stall()
	if attempt := receive(t, attempts, "the second attempt"); attempt != 2 {
		t.Errorf("attempt %d runs elsewhere, want the second", attempt)
	}
	if n := count(t, direct, "SELECT count(*) FROM fencepost.jobs WHERE last_error LIKE 'lease of worker % ran out in attempt 1 of 20'"); n != 1 {
		t.Error("the job was not taken because its lease was over")
	}
	if len(died) > 0 {
		t.Errorf("%s is taken for dead", <-died)
	}
	proxy.Resume()
}

// A process that lives, but whose connections were ended and that cannot make
// others, is taken for dead: nobody could tell the difference. Its jobs run
// elsewhere, and as soon as it is back its handlers are told, long before the
// end of its lease.
func TestAProcessThatIsCutOffLosesItsJobs(t *testing.T) {
	t.Parallel()
	dsn, direct := database(t)
	proxy := faultproxy.New(t, dsn)
	died := make(chan string, 10)
	config, states := hearing(fencepost.Config{Lease: time.Hour, SoftStop: -1, Observer: fencepost.Observer{Died: func(worker string, _ int) { died <- worker }}})
	cut, other := newClient(t, poolThrough(t, dsn, proxy), config), newClient(t, direct, config)
	began, ended := make(chan int, 10), make(chan error, 10)
	for _, client := range []*fencepost.Client{cut, other} {
		fencepost.HandleKind(client, "k", func(ctx context.Context, job *fencepost.Job[json.RawMessage]) error {
			began <- job.Attempt
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		})
	}
	enqueue(t, other, fencepost.NewJob{Kind: "k"})
	work(t, cut)
	receive(t, began, "the job")
	await(t, states, true)
	work(t, other)
	await(t, states, true)

	proxy.Refuse()
	proxy.Cut()
	if attempt := receive(t, began, "the second attempt"); attempt != 2 {
		t.Errorf("attempt %d runs, want the second", attempt)
	}
	receive(t, died, "the death")
	if len(ended) > 0 {
		t.Errorf("the first attempt has ended before it could know: %v", <-ended)
	}
	proxy.Accept(t)
	if cause := receive(t, ended, "the end of the first attempt"); !errors.Is(cause, fencepost.ErrLeaseLost) {
		t.Errorf("cause %v, want ErrLeaseLost", cause)
	}
}
