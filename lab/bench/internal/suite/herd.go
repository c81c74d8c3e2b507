package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/bench/internal/crew"
	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "herd", About: "many idle processes and a job now and then: who claims, and how soon",
		Peers: []string{"floor"},
		Run:   herdSuite,
	})
}

const herdProcesses = 32

// heardRow is the loop by hand while as many sessions hear each bell as there are
// processes, and do nothing: what it costs that all of them are woken.
const heardRow = "by hand, and 31 sessions that only listen"

// claimLike is what a claim of ours looks like to pg_stat_statements, which
// puts $1 and so on where there were constants.
const claimLike = "%attempts = j.attempts +%"

func herdSuite(ctx context.Context, b *Bench) error {
	entrants := append(b.wakers(), b.chosen(entrant{heardRow, "wakefloor", wire.Options{Keep: true}})...)
	names := make([]string, len(entrants))
	for i, e := range entrants {
		names[i] = e.name
	}
	p := wire.Produce{N: b.Size(250), Rate: 5, Clients: 4}
	r := make(latencies)
	var claims []float64
	err := b.Alternate(ctx, names, func(name string, round int) error {
		e := entrants[slices.Index(names, name)]
		p.Seed = uint64(round) // the same for all
		l, settings, perJob, err := b.herd(ctx, e, p)
		if err != nil {
			return err
		}
		b.recordLatency("herd", e, settings, round, l)
		r[name] = append(r[name], l)
		if name == ownRow {
			b.Logf("  herd, %s, round %d: %.3g claims a job", name, round+1, perJob)
			b.Record(e.sample("herd", settings, round, "claims/job", perJob))
			claims = append(claims, perJob)
		}
		return nil
	})
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d processes at their defaults; %d jobs of 200 B, one each 200 ms on average at random distances; done jobs kept; every commit durable", herdProcesses, p.N)
	b.reportMeasured(figures.AtMost("herd_claims", claims, 3, "claims", "an absolute limit", "statements that claim, a job; "+what))
	b.reportMeasured(figures.AtMost("herd_wake", r.ratios(ownRow, wakeFloorRow, 99), 3, "×", "one NOTIFY and one durable claim by hand, in one process",
		"p99 from the return of Enqueue to the start of the handler; "+what))
	return nil
}

func (b *Bench) herd(ctx context.Context, e entrant, p wire.Produce) (l latency, settings string, claims float64, err error) {
	workers := 1
	if e.name == ownRow {
		workers = herdProcesses
	}
	c, err := b.couple(ctx, e, workers, wire.Work{})
	if err != nil {
		return l, "", 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.ready(ctx); err != nil {
		return l, "", 0, err
	}
	if e.name == heardRow {
		end, err := listenBeside(ctx, c.dsn, herdProcesses-1)
		if err != nil {
			return l, "", 0, err
		}
		defer end()
	}
	if err := b.Host.Settle(ctx); err != nil {
		return l, "", 0, err
	}
	database, err := databaseOf(c.dsn)
	if err != nil {
		return l, "", 0, err
	}
	before, err := b.Host.Calls(ctx, database, claimLike)
	if err != nil {
		return l, "", 0, err
	}
	if err := c.produce(ctx, p); err != nil {
		return l, "", 0, err
	}
	after, err := b.Host.Calls(ctx, database, claimLike)
	if err != nil {
		return l, "", 0, err
	}
	if err := c.stop(ctx); err != nil {
		return l, "", 0, err
	}
	if e.name == ownRow && after-before < int64(p.N/2) {
		// One may take two jobs, but this says that its text has changed.
		return l, "", 0, fmt.Errorf("%d claims of %d jobs were counted: is this what a claim looks like: %s?", after-before, p.N, claimLike)
	}
	l, err = c.pickUps(nil)
	return l, c.settings(), perJob(float64(after-before), p.N), err
}

// listenBeside opens sessions that hear the bells of the loop by hand, until end is
// called.
func listenBeside(ctx context.Context, dsn string, sessions int) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	end = func() { cancel(); all.Wait() }
	for range sessions {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			end()
			return nil, err
		}
		if _, err := conn.Exec(ctx, "LISTEN "+crew.FloorChannel); err != nil {
			end()
			return nil, errors.Join(err, conn.Close(context.Background()))
		}
		all.Go(func() {
			defer conn.Close(context.Background())
			for {
				if _, err := conn.WaitForNotification(ctx); err != nil {
					return
				}
			}
		})
	}
	return end, nil
}

// databaseOf is the name of the database that a connection string names.
func databaseOf(dsn string) (string, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return "", err
	}
	return config.Database, nil
}
