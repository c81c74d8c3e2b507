package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Plan says what to measure, and for how long.
type Plan struct {
	Config *pgxpool.Config // the way to the database
	Listen *pgx.ConnConfig // the way of what listens; nil: the same
	// Prepare: statements may have names where no pooler sits between, as they
	// have in a service that uses pgx at its defaults.
	Prepare bool
	// Time is how long to measure in all. Making and dropping the schema comes
	// on top.
	Time time.Duration
	// Progress is told, a few times a second, what is being measured and how
	// many seconds of how many are over.
	Progress func(what string, done, total int)

	grace time.Duration // for tests; 0: the usual one
}

// usualGrace is how much longer than Plan.Time a run may take: on a server that
// is slow, or does not answer any more.
const usualGrace = time.Minute

// Least and Most bound Plan.Time.
const (
	Least = 3 * time.Second
	Most  = 10 * time.Minute
)

// Jobs is how many jobs and rows a run makes at most, all measurements
// together.
const Jobs = 3*mostRows + mostBulk + mostLaps

const (
	mostRows = 50_000 // of a measurement that makes one at a time
	mostBulk = 100_000
	mostLaps = openRate * int(Most/time.Second) // of both open loops
)

// measurements are made in this order; the queue is idle first and loaded
// later.
var measurements = []struct {
	name  string
	share int // of the time
	make  func(*stage, context.Context, time.Duration) error
}{
	{"round trip", 1, (*stage).roundTrip},
	{"commit", 3, (*stage).commit},
	{"notify", 2, (*stage).notify},
	{"floor", 5, (*stage).floor},
	{"wake", 6, (*stage).wake},
	{"enqueue, 1 client", 3, (*stage).one},
	{"enqueue, 16 clients", 3, (*stage).sixteen},
	{"bulk", 2, (*stage).bulk},
	{"drain", 5, (*stage).drain},
}

// Run measures. Whatever happens, it drops what it has made before it returns,
// also when ctx ends; if it cannot, the error names what is left.
func Run(ctx context.Context, p Plan) (seen Seen, err error) {
	s, err := build(ctx, p)
	if err != nil {
		return Seen{}, err
	}
	defer func() { err = errors.Join(err, s.strike()) }()
	limit := p.Time + cmp.Or(p.grace, usualGrace)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not over after %v: the server is too slow, or does not answer", limit))
	defer cancel()
	shares := 0
	for _, m := range measurements {
		shares += m.share
	}
	began, total := time.Now(), int(p.Time.Seconds())
	for _, m := range measurements {
		stop := every(200*time.Millisecond, func() {
			p.Progress(m.name, min(int(time.Since(began).Seconds()), total), total)
		})
		err := m.make(s, ctx, p.Time*time.Duration(m.share)/time.Duration(shares))
		stop()
		if ctx.Err() != nil { // which is why, whatever the error says
			return Seen{}, fmt.Errorf("broken off while measuring %s: %w", m.name, context.Cause(ctx))
		}
		if err != nil {
			return Seen{}, fmt.Errorf("measure %s: %w", m.name, err)
		}
	}
	return s.seen, nil
}

// every calls do now and again until the func that it returns is called, which
// waits for it.
func every(pause time.Duration, do func()) (stop func()) {
	quit, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for tick := time.NewTicker(pause); ; {
			do()
			select {
			case <-tick.C:
			case <-quit:
				tick.Stop()
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-over
	}
}

// oneByOne does something again and again until the time is up, and returns
// how long each took: one at least. The first few, which prepare statements, do
// not count.
func oneByOne(ctx context.Context, limit time.Duration, most int, do func(n int) error) ([]time.Duration, time.Duration, error) {
	const warm = 3
	for n := range warm {
		if err := do(n); err != nil {
			return nil, 0, err
		}
	}
	var took []time.Duration
	began := time.Now()
	for last := began; (len(took) == 0 || last.Sub(began) < limit) && len(took) < most && ctx.Err() == nil; {
		if err := do(warm + len(took)); err != nil {
			return nil, 0, err
		}
		now := time.Now()
		took, last = append(took, now.Sub(last)), now
	}
	return took, time.Since(began), ctx.Err()
}
