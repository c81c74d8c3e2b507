package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// ledger remembers every fence and every key that a handler was ever given, on
// whatever server, and tells when one is given twice: a fence to another
// claim, a key to another job. It also remembers which jobs ran, by their
// payload, which unlike an id is never given twice.
type ledger struct {
	t      *testing.T
	mu     sync.Mutex
	fences map[int64]string
	keys   map[string]int64
	ran    map[int64]int
}

func newLedger(t *testing.T) *ledger {
	return &ledger{t: t, fences: make(map[int64]string), keys: make(map[string]int64), ran: make(map[int64]int)}
}

func (l *ledger) note(server string, job *fencepost.Job[invoice]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	claim := fmt.Sprintf("%s: invoice %d, job %d, attempt %d", server, job.Payload.Number, job.ID, job.Attempt)
	if before, twice := l.fences[job.Fence]; twice {
		l.t.Errorf("fence %d was given twice: %s; %s", job.Fence, before, claim)
	}
	l.fences[job.Fence] = claim
	if before, known := l.keys[job.Key()]; known && before != job.Payload.Number {
		l.t.Errorf("key %s was given to invoices %d and %d", job.Key(), before, job.Payload.Number)
	}
	l.keys[job.Key()] = job.Payload.Number
	l.ran[job.Payload.Number]++
}

func (l *ledger) has(from, to int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := from; n < to; n++ {
		if l.ran[n] == 0 {
			return false
		}
	}
	return true
}

// send enqueues invoices from a number up to another, one by one; what fails
// is tried again, as a producer does.
func (l *ledger) send(client *fencepost.Client, from, to int64) {
	l.t.Helper()
	for n := from; n < to; n++ {
		eventually(l.t, fmt.Sprintf("invoice %d is enqueued", n), func() bool {
			ctx, cancel := context.WithTimeout(l.t.Context(), 5*time.Second)
			defer cancel()
			_, err := client.Enqueue(ctx, fencepost.NewJob{Kind: invoice{}.Kind(), Payload: invoice{n}})
			return err == nil
		})
	}
}

// serve works the invoices of a database until the returned func is called.
func (l *ledger) serve(server, dsn string, config fencepost.Config) (client *fencepost.Client, stop func() error) {
	l.t.Helper()
	client = newClient(l.t, pgtest.Pool(l.t, dsn), config)
	fencepost.Handle(client, func(_ context.Context, job *fencepost.Job[invoice]) error {
		l.note(server, job)
		return nil
	})
	return client, work(l.t, client)
}

// both names two servers in one connection string: the first, then the second.
func both(t *testing.T, first, second *pg.Server) string {
	t.Helper()
	a, err := url.Parse(first.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := url.Parse(second.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	q := a.Query()
	for _, name := range []string{"host", "port"} {
		q.Set(name, q.Get(name)+","+b.Query().Get(name))
	}
	a.RawQuery = q.Encode()
	return a.String()
}

// super returns a pool of the superuser on one server.
func super(t *testing.T, s *pg.Server) *pgxpool.Pool { return pgtest.Pool(t, s.URL("postgres")) }

func script(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// cutOff makes a standby lose whatever the primary commits from now on.
func cutOff(t *testing.T, standby *pgxpool.Pool) {
	t.Helper()
	script(t, standby, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
	eventually(t, "the standby is cut off", func() bool {
		return count(t, standby, "SELECT count(*) FROM pg_stat_wal_receiver") == 0
	})
}

func promote(t *testing.T, standby *pgxpool.Pool) {
	t.Helper()
	script(t, standby, "SELECT pg_promote()")
	eventually(t, "the standby is a primary", func() bool {
		return count(t, standby, "SELECT pg_is_in_recovery()::int") == 0
	})
}

// A primary dies, and its asynchronous standby, which lacks the last commits,
// takes over. Clients that know both servers go on by themselves; ids are given
// a second time; no fence and no key is; and who still runs a job of the time
// that was lost changes nothing.
func TestFailoverToAStandbyThatLacksTheLastCommits(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t, pg.Options{Durable: true})
	if err := migrate(t.Context(), primary.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	standby, err := primary.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	dsn := pgtest.As(t, both(t, primary, standby), workerRole)
	l := newLedger(t)
	refused := make(chan int64, 100)
	release := make(chan struct{})
	began := make(chan int64, 10)
	config := fencepost.Config{Lease: 2 * time.Second, PollInterval: time.Second}
	config.Observer.Refused = func(job, _ int64) { refused <- job }
	client := newClient(t, pgtest.Pool(t, dsn), config)
	fencepost.Handle(client, func(_ context.Context, job *fencepost.Job[invoice]) error {
		l.note("one", job)
		return nil
	})
	fencepost.HandleKind(client, "stubborn", func(_ context.Context, job *fencepost.Job[invoice]) error {
		l.note("one", job)
		began <- job.ID
		<-release
		return nil
	})
	work(t, client)
	// The standby first: whoever takes what answers is on the wrong server.
	_, _ = l.serve("two", pgtest.As(t, both(t, standby, primary), workerRole)+"&target_session_attrs=read-write", fencepost.Config{Lease: 2 * time.Second, PollInterval: time.Second})

	l.send(client, 100, 120)
	eventually(t, "the jobs before have run", func() bool { return l.has(100, 120) })
	on, after := super(t, primary), super(t, standby)
	eventually(t, "the standby has caught up", func() bool {
		var lsn string
		if err := on.QueryRow(t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&lsn); err != nil {
			t.Fatal(err)
		}
		return count(t, after, "SELECT (pg_last_wal_replay_lsn() >= $1::pg_lsn)::int", lsn) == 1
	})
	cutOff(t, after)

	// What nobody will know of: enqueued, claimed and done.
	firstLost := count(t, on, "SELECT max(id) + 1 FROM fencepost.all_jobs")
	l.send(client, 200, 220)
	eventually(t, "the jobs that will be lost have run", func() bool { return l.has(200, 220) })
	stubborn := enqueue(t, client, fencepost.NewJob{Kind: "stubborn", Payload: raw(`{"number": 299}`)})[0]
	if id := receive(t, began, "the stubborn job"); id != stubborn {
		t.Fatalf("job %d began, want %d", id, stubborn)
	}
	if err := primary.Shutdown("immediate"); err != nil {
		t.Fatal(err)
	}
	promote(t, after)
	// Sequences are ahead of what was replayed by up to 32: take that away, so
	// that ids do repeat.
	script(t, after, fmt.Sprintf("ALTER TABLE fencepost.jobs ALTER COLUMN id RESTART WITH %d", firstLost))

	l.send(client, 300, 340)
	eventually(t, "the jobs after have run", func() bool { return l.has(300, 340) })
	if n := count(t, after, "SELECT count(*) FROM fencepost.finished WHERE (payload->>'number')::int BETWEEN 200 AND 299"); n != 0 {
		t.Errorf("%d jobs of the lost time are there: nothing was lost", n)
	}
	if n := count(t, after, "SELECT count(*) FROM fencepost.all_jobs WHERE id = $1", stubborn); n != 1 {
		t.Errorf("%d jobs have the id %d of a lost one, want 1", n, stubborn)
	}
	close(release)
	// Others may be refused as well, of claims that were lost before their
	// outcomes were stored.
	for receive(t, refused, "the outcome of the lost claim is refused") != stubborn {
	}
}

// Servers that begin from the same data: two standbys that are promoted alike,
// to timelines of one number; a copy that is restored from an earlier time; and
// tables that are restored into another server. Jobs that are waiting there and
// new ones are claimed on each in turn.
func TestServersWithACommonPastGiveNoFenceTwice(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), primary.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	config := fencepost.Config{PollInterval: time.Second}
	l := newLedger(t)
	producer := newClient(t, super(t, primary), config)
	l.send(producer, 100, 110) // they wait, on every server alike

	add := func(s *pg.Server, err error) *pg.Server {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	restored := add(primary.Clone(t.Context()))
	if err := restored.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := add(primary.Standby(t.Context()))
	two := add(primary.Standby(t.Context()))
	timeline := make(map[string]int)
	for name, s := range map[string]*pg.Server{"one": one, "two": two} {
		pool := super(t, s)
		cutOff(t, pool)
		promote(t, pool)
		script(t, pool, "CHECKPOINT")
		timeline[name] = count(t, pool, "SELECT timeline_id FROM pg_control_checkpoint()")
	}
	if timeline["one"] != timeline["two"] {
		t.Errorf("timelines %v, want the same", timeline)
	}

	from := int64(1000)
	for _, s := range []struct {
		name   string
		server *pg.Server
	}{{"primary", primary}, {"restored", restored}, {"one", one}, {"two", two}} {
		pool := super(t, s.server)
		if n := count(t, pool, "SELECT count(*) FROM fencepost.jobs WHERE status = 'ready'"); n != 10 {
			t.Errorf("%s has %d jobs that wait, want 10", s.name, n)
		}
		client, stop := l.serve(s.name, pgtest.As(t, s.server.URL("postgres"), workerRole), config)
		l.send(client, from, from+20)
		eventually(t, "the jobs of "+s.name+" have run", func() bool {
			return l.has(from, from+20) && count(t, pool, "SELECT count(*) FROM fencepost.jobs") == 0
		})
		if err := stop(); err != nil {
			t.Error(err)
		}
		from += 1000
	}
	for n := int64(100); n < 110; n++ {
		if l.ran[n] != 4 {
			t.Errorf("invoice %d ran %d times, want once on each server", n, l.ran[n])
		}
	}

	// The tables of one server, in another whose sequence begins anew.
	elsewhere := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), elsewhere.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	source, target := super(t, two), super(t, elsewhere)
	stranger := newClient(t, source, config)
	l.send(stranger, 9000, 9010)
	for _, table := range []string{"jobs", "finished"} {
		var rows string
		if err := source.QueryRow(t.Context(), "SELECT json_agg(j)::text FROM fencepost."+table+" AS j").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if _, err := target.Exec(t.Context(), "INSERT INTO fencepost."+table+" SELECT r.* FROM json_populate_recordset(NULL::fencepost."+table+", $1::text::json) AS r", rows); err != nil {
			t.Fatal(err)
		}
	}
	script(t, target, "SELECT setval(pg_get_serial_sequence('fencepost.jobs', 'id'), (SELECT max(id) FROM fencepost.all_jobs))")
	client, _ := l.serve("elsewhere", pgtest.As(t, elsewhere.URL("postgres"), workerRole), config)
	l.send(client, 9500, 9520)
	eventually(t, "the restored jobs and new ones have run", func() bool { return l.has(9000, 9010) && l.has(9500, 9520) })
}

// A server that turns read-only while connections to it stay open, as one does
// that was demoted: they are given up, and work goes on when a server takes
// writes again (B83).
func TestReadOnlyServerIsLeft(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	var log logged
	config, states := hearing(fencepost.Config{PollInterval: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	client := newClient(t, pgtest.Pool(t, pgtest.As(t, server.URL("postgres"), workerRole)), config)
	ran := echo(client)
	work(t, client)
	await(t, states, true)
	enqueue(t, client, fencepost.NewJob{Kind: "echo"})
	receive(t, ran, "a job before")
	on := pgtest.Pool(t, server.URL("postgres")+"&default_transaction_read_only=off")
	script(t, on, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	accepted := 0
	eventually(t, "an enqueue is refused", func() bool {
		_, err := client.Enqueue(t.Context(), fencepost.NewJob{Kind: "echo"})
		if err == nil {
			accepted++ // by a session that did not know yet; the worker's may
		}
		return errors.Is(err, fencepost.ErrReadOnly)
	})
	eventually(t, "it is said what to do", func() bool { return log.count("connecting again until one does") > 0 })
	script(t, on, "ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
	eventually(t, "an enqueue works", func() bool {
		_, err := client.Enqueue(t.Context(), fencepost.NewJob{Kind: "echo"})
		return err == nil
	})
	for range accepted + 1 {
		receive(t, ran, "a job that was accepted")
	}
	if n := log.count("connecting again until one does"); n > 2 { // one for each of two connections
		t.Errorf("it was said %d times:\n%s", n, log.text.String())
	}
}

// Why the fence is taken from a clock: with a plain counter in its place a job
// that was claimed on a server, and again on a copy of it from before, has one
// fence for two claims.
func TestAPlainCounterGivesAFenceTwice(t *testing.T) {
	t.Parallel()
	for _, counter := range []bool{true, false} {
		t.Run(map[bool]string{true: "plain counter", false: "as it is"}[counter], func(t *testing.T) {
			t.Parallel()
			server := pgtest.Server(t, pg.Options{})
			if err := migrate(t.Context(), server.URL("postgres")); err != nil {
				t.Fatal(err)
			}
			on := super(t, server)
			if counter {
				script(t, on,
					"CREATE FUNCTION count_fence() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.fence := OLD.fence + 1; RETURN NEW; END $$",
					"CREATE TRIGGER count_fence BEFORE UPDATE ON fencepost.jobs FOR EACH ROW WHEN (NEW.fence > OLD.fence + 1) EXECUTE FUNCTION count_fence()")
			}
			id := enqueue(t, newClient(t, on, fencepost.Config{}), fencepost.NewJob{Payload: invoice{1}})[0]
			restored, err := server.Clone(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := restored.Stop(); err != nil {
					t.Error(err)
				}
			})
			if err := restored.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			var fences []int64
			for _, s := range []*pg.Server{server, restored} {
				client := newClient(t, super(t, s), fencepost.Config{PollInterval: time.Second})
				claimed := make(chan int64, 10)
				fencepost.Handle(client, func(_ context.Context, job *fencepost.Job[invoice]) error {
					claimed <- job.Fence
					return nil
				})
				stop := work(t, client)
				fences = append(fences, receive(t, claimed, "the job"))
				ended(t, client, id)
				if err := stop(); err != nil {
					t.Error(err)
				}
			}
			if twice := fences[0] == fences[1]; twice != counter {
				t.Errorf("fences %v", fences)
			}
		})
	}
}
