package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/host"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// drain is one measurement: jobs are preloaded, then one worker process works
// them.
type drain struct {
	peer string
	o    wire.Options
	p    wire.Produce
	// late, if there are any, are loaded after those of p.
	late wire.Produce
	w    wire.Work
	// arrange, if given, changes what was loaded, by the queue's own tables.
	arrange string
	// held: a snapshot from before the first claim is held until all is done.
	held bool
	// limit ends it; what was stored by then counts. Default: 20 s.
	limit time.Duration
	// wal: read what was written to the log, which takes some seconds.
	wal bool
}

// jobs is how many are loaded.
func (how drain) jobs() int { return how.p.N + how.late.N }

const (
	drainLimit = 20 * time.Second
	watchEvery = int64(time.Millisecond)
)

// drained is what one drain has come to.
type drained struct {
	settings string // as the queue describes them

	jobs int           // whose outcome was stored in time, by the queue's tables
	took time.Duration // from the start of the first handler until they were
	rate float64       // jobs/s

	// startUp is from the order to work until the start of the first handler.
	// It is not part of took, for no queue: it is paid once, whatever the
	// number of jobs. A first claim of many jobs at once hides in it.
	startUp time.Duration

	// Processor time from the order to work until the last outcome was stored.
	server, client time.Duration

	handled       int     // handlers that have returned, until the worker had stopped
	allocs, bytes float64 // in the worker's runtime, until then, for each of them; 0 on Node

	enqueued, worked host.WAL // if asked for

	windows []float64 // jobs/s in each window of handlers, if they were asked for
}

// cpu is the processor time of a job on both sides, in microseconds.
func (d drained) cpu() float64 { return d.each(d.server + d.client) }

// each is so much time for each job, in microseconds.
func (d drained) each(t time.Duration) float64 {
	return perJob(float64(t)/float64(time.Microsecond), d.jobs)
}

// perJob shares a total among jobs. Among none it is 0, as everything is that
// was not measured.
func perJob(total float64, jobs int) float64 {
	if jobs == 0 {
		return 0
	}
	return total / float64(jobs)
}

// span works out what was done in the time from the start of the first handler
// (0: none has started) to end, after the order to work had been given at began.
func (d *drained) span(began, first, end int64) {
	if first == 0 {
		first = end
	}
	d.startUp = time.Duration(first - began)
	d.took = time.Duration(end - first)
	if d.jobs > 0 && d.took > 0 {
		d.rate = float64(d.jobs) / d.took.Seconds()
	}
}

// course works out the rate in each window of handlers.
func (d *drained) course(size int, first int64, full []int64) {
	for _, at := range full {
		d.windows = append(d.windows, float64(size)/time.Duration(at-first).Seconds())
		first = at
	}
}

// drain measures one.
func (b *Bench) drain(ctx context.Context, how drain) (d drained, err error) {
	if how.limit == 0 {
		how.limit = drainLimit
	}
	dsn, drop, err := b.Host.Fresh(ctx)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	how.o.DSN = dsn
	if d.enqueued, err = b.load(ctx, how); err != nil {
		return d, err
	}
	ledger, err := openLedger(ctx, how.peer, dsn)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, ledger.close()) }()
	if how.arrange != "" {
		if _, err := ledger.conn.Exec(ctx, how.arrange); err != nil {
			return d, fmt.Errorf("arrange the jobs: %w", err)
		}
	}
	if err := ledger.tidy(ctx); err != nil {
		return d, err
	}
	if how.held {
		held, failed := holdSnapshot(ctx, dsn)
		if failed != nil {
			return d, failed
		}
		defer func() { err = errors.Join(err, held.release()) }()
	}
	err = b.unload(ctx, how, ledger, &d)
	return d, err
}

// load enqueues the jobs, from a process of its own: one that works starts with
// an empty heap and makes its own connections.
func (b *Bench) load(ctx context.Context, how drain) (w host.WAL, err error) {
	child, err := b.Start(ctx, how.peer, how.o)
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, child.Close()) }()
	from, err := b.position(ctx, how.wal) // the schema is there
	if err != nil {
		return w, err
	}
	if err := child.Call(ctx, wire.DoProduce, how.p, nil); err != nil {
		return w, err
	}
	if how.late.N > 0 {
		if err := child.Call(ctx, wire.DoProduce, how.late, nil); err != nil {
			return w, err
		}
	}
	return b.written(ctx, how.wal, from)
}

// unload works the jobs.
func (b *Bench) unload(ctx context.Context, how drain, ledger *ledger, d *drained) (err error) {
	child, err := b.Start(ctx, how.peer, how.o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, child.Close()) }()
	d.settings = child.Described.Settings
	if err := b.Host.Settle(ctx); err != nil {
		return err
	}
	from, err := b.position(ctx, how.wal)
	if err != nil {
		return err
	}
	var before, after wire.Usage
	if err := child.Call(ctx, wire.DoUsage, nil, &before); err != nil {
		return err
	}
	idle, err := b.used(child.PID())
	if err != nil {
		return err
	}

	began := wire.Now()
	if err := child.Call(ctx, wire.DoWork, how.w, nil); err != nil {
		return err
	}
	end := began + int64(how.limit)
	await := wire.Await{N: how.jobs(), Seconds: time.Duration(end - wire.Now()).Seconds()}
	if err := child.Call(ctx, wire.DoAwait, await, nil); err != nil {
		return err
	}
	// Handlers that have returned are not enough: their outcomes may be on the
	// way still.
	stored, left, err := ledger.emptied(ctx, end)
	if err != nil {
		return err
	}
	busy, err := b.used(child.PID())
	if err != nil {
		return err
	}

	var worked wire.Worked
	if err := child.Call(ctx, wire.DoStop, nil, &worked); err != nil {
		return err
	}
	if err := child.Call(ctx, wire.DoUsage, nil, &after); err != nil {
		return err
	}
	if d.worked, err = b.written(ctx, how.wal, from); err != nil {
		return err
	}
	d.jobs = how.jobs() - left
	d.span(began, worked.First, stored)
	d.server, d.client = busy.server-idle.server, busy.client-idle.client
	d.handled = worked.Done
	d.allocs = perJob(float64(after.Allocs-before.Allocs), d.handled)
	d.bytes = perJob(float64(after.Bytes-before.Bytes), d.handled)
	d.course(how.w.Window, worked.First, worked.Windows)
	return nil
}

// processor is the time that both sides have used.
type processor struct{ server, client time.Duration }

func (b *Bench) used(pid int) (p processor, err error) {
	if p.client, err = host.ProcessCPU(pid); err != nil {
		return p, err
	}
	p.server, err = b.Host.CPU()
	return p, err
}

func (b *Bench) position(ctx context.Context, wanted bool) (host.Position, error) {
	if !wanted {
		return "", nil
	}
	return b.Host.Position(ctx)
}

func (b *Bench) written(ctx context.Context, wanted bool, from host.Position) (host.WAL, error) {
	to, err := b.position(ctx, wanted)
	if err != nil {
		return host.WAL{}, err
	}
	return b.Host.WAL(ctx, from, to)
}

// until sleeps until the time of wire.Now.
func until(at int64) { time.Sleep(time.Duration(at - wire.Now())) }
