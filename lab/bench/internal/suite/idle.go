package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/host"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "idle", About: "what a process costs that has nothing to do, and how soon it picks up the next job",
		Peers: []string{"floor"},
		Run:   idleSuite,
	})
}

// idlePool makes a pool of pgx close what nobody uses, so that the connections
// that are left are those that the queue holds. Looking for them costs the
// process something, so not each second.
const idlePool = "&pool_max_conn_idle_time=1s&pool_health_check_period=5s"

// idleQueues are those that the process works.
var idleQueues = []string{"one", "two", "three"}

// idled is what a process has cost, a minute, and how soon the next job was
// picked up.
type idled struct {
	statements, wal, worker, server float64 // wal without page images; both times in milliseconds
	connections                     float64 // at most
	next                            latency
	settings                        string
}

func idleSuite(ctx context.Context, b *Bench) error {
	entrants := b.chosen(entrant{ownRow, "fencepost", wire.Options{Keep: true, Queues: idleQueues}})
	for _, e := range b.others() {
		e.o.Queues = idleQueues
		entrants = append(entrants, e)
	}
	floor := b.chosen(entrant{wakeFloorRow, "wakefloor", wire.Options{Keep: true}})
	var names []string
	for _, e := range slices.Concat(entrants, floor) {
		names = append(names, e.name)
	}
	lasting := time.Duration(b.Size(300)) * time.Second
	var own []idled
	var floors []float64
	err := b.Alternate(ctx, names, func(name string, round int) error {
		if name == wakeFloorRow {
			l, settings, err := b.woken(ctx, floor[0], wire.Produce{N: b.Size(200), Rate: 5, Clients: 1, Seed: uint64(round)})
			if err != nil {
				return err
			}
			b.recordLatency("idle", floor[0], settings, round, l)
			floors = append(floors, l.ms(99))
			return nil
		}
		e := entrants[slices.Index(names, name)]
		i, err := b.idle(ctx, e, lasting)
		if err != nil {
			return err
		}
		b.recordIdle(e, round, i)
		if name == ownRow {
			own = append(own, i)
		}
		return nil
	})
	if err != nil {
		return err
	}
	what := fmt.Sprintf("one process at its defaults that works three queues without a job, for %v; every commit durable", lasting)
	each := func(of func(idled) float64) (rounds []float64) {
		for _, i := range own {
			rounds = append(rounds, of(i))
		}
		return rounds
	}
	most := func(target string, of func(idled) float64, limit float64, unit, counted string) {
		b.reportMeasured(figures.AtMost(target, each(of), limit, unit, "an absolute limit", counted+": "+what))
	}
	most("idle_statements", func(i idled) float64 { return i.statements }, 3, "/min", "all statements of clients in the database")
	most("idle_connections", func(i idled) float64 { return i.connections }, 2, "", "the most at one time, without those of the embedder's pool that nobody uses")
	most("idle_wal", func(i idled) float64 { return i.wal }, 400, "B/min", "all that the log grew by, without page images and without autovacuum")
	most("idle_cpu", func(i idled) float64 { return i.worker }, 30, "ms/min", "processor time of the process")
	b.reportMeasured(figures.AtMost("idle_next", figures.Ratios(each(func(i idled) float64 { return i.next.ms(100) }), floors), 1.5, "×",
		"the p99 of one NOTIFY and one durable claim by hand", "from the return of Enqueue to the start of the handler of the first job after it: "+what))
	return nil
}

// idle lets a process have nothing to do.
func (b *Bench) idle(ctx context.Context, e entrant, lasting time.Duration) (i idled, err error) {
	dsn, drop, err := b.Host.Fresh(ctx)
	if err != nil {
		return i, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	database, err := databaseOf(dsn)
	if err != nil {
		return i, err
	}
	e.o.DSN = dsn
	if e.name == ownRow { // the others hold what they need in their pools
		e.o.DSN += idlePool
	}
	worker, err := b.Start(ctx, e.peer, e.o)
	if err != nil {
		return i, err
	}
	defer func() { err = errors.Join(err, worker.Close()) }()
	i.settings = worker.Described.Settings
	if err := worker.Call(ctx, wire.DoWork, wire.Work{Log: true}, nil); err != nil {
		return i, err
	}
	// Who has worked has no first time before him.
	e.o.DSN = dsn
	for n, queue := range idleQueues {
		if _, err := b.once(ctx, e, n, queue); err != nil {
			return i, err
		}
	}
	if err := worker.Call(ctx, wire.DoAwait, wire.Await{N: len(idleQueues), Seconds: patience.Seconds()}, nil); err != nil {
		return i, err
	}
	autovacuum, err := b.Host.WithoutAutovacuum(ctx)
	if err != nil {
		return i, err
	}
	defer func() { err = errors.Join(err, autovacuum()) }()
	ledger, err := openLedger(ctx, e.peer, dsn)
	if err != nil {
		return i, err
	}
	if err := errors.Join(ledger.tidy(ctx), ledger.close()); err != nil {
		return i, err
	}
	if err := b.Host.Hush(ctx); err != nil {
		return i, err
	}
	time.Sleep(10 * time.Second) // what is left of it all has been done
	if err := b.rest(ctx, database, worker.PID(), lasting, &i); err != nil {
		return i, err
	}

	next := len(idleQueues)
	returned, err := b.once(ctx, e, next, idleQueues[0])
	if err != nil {
		return i, err
	}
	if err := worker.Call(ctx, wire.DoAwait, wire.Await{N: next + 1, Seconds: patience.Seconds()}, nil); err != nil {
		return i, err
	}
	var worked wire.Worked
	if err := worker.Call(ctx, wire.DoStop, nil, &worked); err != nil {
		return i, err
	}
	if worked.Starts[next] == 0 {
		return i, fmt.Errorf("the job after the pause was not run in %v", patience)
	}
	i.next = newLatency()
	return i, i.next.add(worked.Starts[next] - returned)
}

// once enqueues one job from a process that is there for no longer.
func (b *Bench) once(ctx context.Context, e entrant, n int, queue string) (returned int64, err error) {
	child, err := b.Start(ctx, e.peer, e.o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, child.Close()) }()
	var out wire.Produced
	if err := child.Call(ctx, wire.DoProduce, wire.Produce{N: 1, First: n, Bytes: 200, Way: "one", Queue: queue, Log: true}, &out); err != nil {
		return 0, err
	}
	return out.Returned[0], nil
}

// rest measures what it costs to do nothing.
func (b *Bench) rest(ctx context.Context, database string, pid int, lasting time.Duration, i *idled) error {
	if err := b.Host.Settle(ctx); err != nil {
		return err
	}
	from, err := b.Host.Position(ctx)
	if err != nil {
		return err
	}
	before, err := b.Host.Read(ctx, database)
	if err != nil {
		return err
	}
	cpu, err := host.ProcessCPU(pid)
	if err != nil {
		return err
	}
	for end := wire.Now() + int64(lasting); wire.Now() < end; until(min(end, wire.Now()+int64(10*time.Second))) {
		n, err := b.Host.Connections(ctx, database)
		if err != nil {
			return err
		}
		i.connections = max(i.connections, float64(n))
	}
	used, err := host.ProcessCPU(pid)
	if err != nil {
		return err
	}
	after, err := b.Host.Read(ctx, database)
	if err != nil {
		return err
	}
	to, err := b.Host.Position(ctx)
	if err != nil {
		return err
	}
	wal, err := b.Host.WAL(ctx, from, to)
	if err != nil {
		return err
	}
	minutes, spent := lasting.Minutes(), after.Sub(before)
	i.statements, i.wal = float64(spent.Statements)/minutes, float64(wal.Plain())/minutes
	i.worker, i.server = float64((used-cpu).Milliseconds())/minutes, float64(spent.CPU.Milliseconds())/minutes
	return nil
}

// woken is an open loop of jobs for one that sleeps in between.
func (b *Bench) woken(ctx context.Context, e entrant, p wire.Produce) (l latency, settings string, err error) {
	c, err := b.couple(ctx, e, 1, wire.Work{})
	if err != nil {
		return l, "", err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.ready(ctx); err != nil {
		return l, "", err
	}
	if err := b.Host.Settle(ctx); err != nil {
		return l, "", err
	}
	if err := c.produce(ctx, p); err != nil {
		return l, "", err
	}
	if err := c.stop(ctx); err != nil {
		return l, "", err
	}
	l, err = c.pickUps(nil)
	return l, c.settings(), err
}

func (b *Bench) recordIdle(e entrant, round int, i idled) {
	b.Logf("  idle, %s, round %d: a minute: %.3g statements, %.3g B of WAL, %.3g ms of processor, the server %.3g ms; %.0f connections; the next job after %.3g ms",
		e.name, round+1, i.statements, i.wal, i.worker, i.server, i.connections, i.next.ms(100))
	record := func(figure string, value float64) { b.Record(e.sample("idle", i.settings, round, figure, value)) }
	record("statements/min", i.statements)
	record("WAL B/min", i.wal)
	record("worker CPU ms/min", i.worker)
	record("server CPU ms/min", i.server)
	record("connections", i.connections)
	record("next job ms", i.next.ms(100))
}
