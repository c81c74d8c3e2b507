package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "guest", About: "what a worker does to a service that it is embedded in",
		Run: guestSuite,
	})
}

// The rows of the suite, in the order in which they are measured. The first is
// measured twice: how far the two are apart is what such a figure is worth.
const (
	alone      = "no worker"
	withIdle   = "a worker, idle"
	aloneAgain = "no worker, again"
	withBusy   = "a worker, 500 jobs/s"
	// The server and who enqueues are on the same machine, and cost the service
	// something too: this is that cost without a worker in the service.
	elsewhere = "500 jobs/s, worked by another process"
)

var guestRows = []string{alone, withIdle, aloneAgain, withBusy, elsewhere}

const visitRate, guestJobs = 500, 500 // a second

func guestSuite(ctx context.Context, b *Bench) error {
	if !slices.Contains(b.Peers, "fencepost") {
		return nil
	}
	const turns = 2
	lasting := time.Duration(b.Size(10)) * time.Second
	r := make(latencies)
	for round := range b.Rounds {
		if err := b.probe(ctx, "guest", round); err != nil {
			return err
		}
		if err := b.guestRound(ctx, round, turns, lasting, r); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	// How far two measurements of the same may be apart, either way.
	band := 1.0
	for _, ratio := range r.ratios(aloneAgain, alone, 99) {
		band = max(band, ratio, 1/ratio)
	}
	what := fmt.Sprintf("p99 of an HTTP handler in the same process, %d requests a second at a fixed rate from when each was to be sent, %d turns of %v; server, clients and service on one machine", visitRate, turns, lasting)
	b.reportMeasured(figures.AtMost("guest_idle", r.ratios(withIdle, alone, 99), band, "×",
		"the same without a worker; the limit is how far two runs without one were apart", "an idle worker at its defaults: "+what))
	b.reportMeasured(figures.AtMost("guest_busy", r.ratios(withBusy, alone, 99), 1.2, "×",
		fmt.Sprintf("the same without a worker and without jobs (%.3g × against the same jobs in another process)", figures.Median(r.ratios(withBusy, elsewhere, 99))),
		fmt.Sprintf("a worker at its defaults that runs %d no-op jobs of 200 B a second, done jobs kept, every commit durable: ", guestJobs)+what))
	return nil
}

// service is a service with a worker that may be started, one beside it, and
// who enqueues.
type service struct {
	guest, other, producer *wire.Child
	visitors               *visitors
	undo                   []func() error
	jobs                   int // enqueued so far
}

func (b *Bench) guestRound(ctx context.Context, round, turns int, lasting time.Duration, r latencies) (err error) {
	s := &service{}
	defer func() {
		for _, u := range slices.Backward(s.undo) {
			err = errors.Join(err, u())
		}
	}()
	if err := b.openService(ctx, s); err != nil {
		return err
	}
	// Connections are made, and both have worked before.
	for _, row := range []string{alone, withBusy, elsewhere} {
		if _, err := s.visit(ctx, row, time.Second); err != nil {
			return err
		}
	}
	if err := b.Host.Settle(ctx); err != nil {
		return err
	}
	sum := make(map[string]latency)
	for i := range turns {
		for _, row := range turn(guestRows, round+i) {
			l, err := s.visit(ctx, row, lasting)
			if err != nil {
				return fmt.Errorf("%s: %w", row, err)
			}
			if before, ok := sum[row]; ok {
				l.Merge(before.Histogram)
			}
			sum[row] = l
		}
	}
	for _, row := range guestRows {
		b.recordLatency("guest", entrant{name: row, peer: "fencepost"}, s.guest.Described.Settings, round, sum[row])
		r[row] = append(r[row], sum[row])
	}
	return nil
}

func (b *Bench) openService(ctx context.Context, s *service) error {
	dsn, drop, err := b.Host.Fresh(ctx)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, drop)
	for _, m := range []struct {
		peer string
		is   **wire.Child
	}{{"guest", &s.guest}, {"fencepost", &s.other}, {"fencepost", &s.producer}} {
		if *m.is, err = b.Start(ctx, m.peer, wire.Options{DSN: dsn, Keep: true}); err != nil {
			return err
		}
		s.undo = append(s.undo, (*m.is).Close)
	}
	s.visitors = newVisitors(s.guest.Described.Address, visitRate)
	s.undo = append(s.undo, s.visitors.close)
	return nil
}

// visit measures one row once.
func (s *service) visit(ctx context.Context, row string, lasting time.Duration) (l latency, err error) {
	worker := map[string]*wire.Child{withIdle: s.guest, withBusy: s.guest, elsewhere: s.other}[row]
	if worker == nil {
		return s.visitors.call(ctx, lasting)
	}
	if err := worker.Call(ctx, wire.DoWork, wire.Work{}, nil); err != nil {
		return l, err
	}
	if row == withIdle {
		l, err = s.visitors.call(ctx, lasting)
	} else {
		l, err = s.busy(ctx, worker, lasting)
	}
	return l, errors.Join(err, worker.Call(ctx, wire.DoStop, nil, nil))
}

// busy asks while jobs come in, from a second after the first.
func (s *service) busy(ctx context.Context, worker *wire.Child, lasting time.Duration) (latency, error) {
	p := wire.Produce{
		N: guestJobs * int((lasting + 2*time.Second).Seconds()), First: s.jobs, Bytes: 200,
		Way: "one", Clients: 8, Rate: guestJobs, Seed: uint64(s.jobs),
	}
	s.jobs += p.N
	enqueued := make(chan error, 1)
	go func() { enqueued <- s.producer.Call(ctx, wire.DoProduce, p, nil) }()
	time.Sleep(time.Second)
	l, err := s.visitors.call(ctx, lasting)
	select {
	case early := <-enqueued:
		// It is measured beside jobs all the while or not at all.
		enqueued <- early
		err = errors.Join(err, errors.New("the last job was enqueued before the last request"))
	default:
	}
	if err := errors.Join(err, <-enqueued); err != nil {
		return l, err
	}
	var w wire.Worked
	if err := worker.Call(ctx, wire.DoAwait, wire.Await{N: p.N, Seconds: patience.Seconds()}, &w); err != nil {
		return l, err
	}
	if w.Done < p.N {
		return l, fmt.Errorf("%d of %d jobs were done: the worker does not keep up", w.Done, p.N)
	}
	return l, nil
}
