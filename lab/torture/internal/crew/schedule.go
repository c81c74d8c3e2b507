package crew

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// transaction is what a producer does at one moment: one to five jobs, each
// with its row, in one of several ways.
type transaction struct {
	at       time.Duration // after the beginning of the load
	via      string
	orders   []order
	rowsLast bool          // the jobs before their rows, not after
	lull     time.Duration // between the two
	hold     time.Duration // open for that long after both, before its end
	rollback bool          // that is the plan
}

// mostOrders is in one transaction; half as many, and a half, on average.
const mostOrders = 5

// vias are the ways to enqueue beside a row, with their shares.
var vias = script.Mix{
	"go":     0.40, // client.In a transaction of pgx
	"rr":     0.10, // the same in REPEATABLE READ
	"stdlib": 0.10, // client.InSQL, a transaction of database/sql
	"sql":    0.15, // a plain INSERT
	"func":   0.15, // SELECT fencepost.enqueue(…)
	"copy":   0.05, // COPY
	"bulk":   0.05, // client.In(tx).EnqueueCopy
}

var (
	queues     = script.Mix{script.Main: 0.75, script.Side: 0.15, script.Bin: 0.10}
	priorities = map[int]float64{-2: 0.05, -1: 0.15, 0: 0.60, 1: 0.15, 2: 0.05}
)

// schedule is the load of one producer, one transaction after the other. Seed,
// rate, share of bursts, mix and name decide all of it.
type schedule struct {
	rng  *rand.Rand
	name string
	mix  script.Mix
	n    int // jobs so far

	mean time.Duration // between two transactions outside of bursts; 0: there are none
	at   time.Duration // of the next of them

	bursts   time.Duration // between two bursts, on average; 0: there are none
	begin    time.Duration // of the newest
	bursting []transaction // what is left of it
}

func newSchedule(name string, seed uint64, rate, inBursts float64, mix script.Mix) (*schedule, error) {
	if rate <= 0 {
		return nil, fmt.Errorf("a rate of %v jobs a second", rate)
	}
	if inBursts < 0 || inBursts > 1 {
		return nil, fmt.Errorf("a share of %v in bursts", inBursts)
	}
	if len(mix) == 0 {
		mix = script.DefaultMix
	}
	for kind := range mix {
		if kinds[kind] == nil {
			return nil, fmt.Errorf("there is no kind %q", kind)
		}
	}
	s := &schedule{
		rng:    rand.New(rand.NewPCG(seed, seed)),
		name:   name,
		mix:    mix,
		bursts: betweenBursts(inBursts, rate),
	}
	rest := rate
	if s.bursts > 0 {
		rest -= (rush + followers) / s.bursts.Seconds()
		s.begin = time.Duration(s.rng.Int64N(int64(s.bursts)))
		s.bursting = s.burst(s.begin)
	}
	if rest > rate/1000 { // and not what is left of 0 by rounding
		s.mean = time.Duration((mostOrders + 1) / 2. / rest * float64(time.Second))
		s.at = s.pause()
	}
	return s, nil
}

// pause is the time between two transactions outside of bursts.
func (s *schedule) pause() time.Duration { return time.Duration(s.rng.ExpFloat64() * float64(s.mean)) }

// transaction returns one of so many jobs.
func (s *schedule) transaction(at time.Duration, jobs int) transaction {
	t := transaction{
		at:       at,
		via:      pick(s.rng, vias),
		rowsLast: s.chance(0.5),
		rollback: s.chance(0.05),
	}
	if s.chance(0.03) {
		t.hold = millis(s.between(1000, 5000))
	}
	for range jobs {
		s.n++
		o := s.order(fmt.Sprintf("%s-%d", s.name, s.n))
		if t.via == "copy" {
			o.delay = 0 // COPY cannot ask the database what time it is
		}
		t.orders = append(t.orders, o)
	}
	return t
}

func (s *schedule) order(token string) order {
	o := order{
		Order:    script.Order{Token: token, Millis: s.between(0, 20)},
		kind:     pick(s.rng, s.mix),
		queue:    pick(s.rng, queues),
		priority: pick(s.rng, priorities),
	}
	if s.chance(0.1) {
		o.delay = millis(s.between(200, 4000))
	}
	switch o.kind {
	case script.Long:
		o.Millis = s.between(1000, 12_000)
	case script.Deaf:
		o.Millis = s.between(2000, 8000)
	case script.SlowTx:
		o.Millis = s.between(1000, 8000)
	case script.Fail:
		o.Times = s.between(1, 3)
		if s.chance(0.1) { // never works, and is dead in the end
			o.Times, o.max = 100, s.between(1, script.FewAttempts)
		}
	case script.Later:
		o.Times, o.Delay = s.between(1, 3), s.between(100, 1500)
	case script.Snooze:
		o.Times, o.Delay = s.between(1, 4), s.between(100, 1500)
	case script.Parent:
		o.Times = s.between(1, 4)
	case script.Fenced:
		o.Times, o.Millis = s.between(0, 2), s.between(0, 300)
	case script.Killer:
		o.max = 3
	}
	return o
}

func (s *schedule) chance(p float64) bool { return s.rng.Float64() < p }

// between includes both ends.
func (s *schedule) between(low, high int) int { return low + s.rng.IntN(high-low+1) }

// pick chooses by the shares, which need not add up to 1.
func pick[K string | int](rng *rand.Rand, shares map[K]float64) K {
	keys := slices.Sorted(maps.Keys(shares)) // a map has no order that a seed could repeat
	all := 0.
	for _, k := range keys {
		all += shares[k]
	}
	x := rng.Float64() * all
	for _, k := range keys {
		if x -= shares[k]; x < 0 {
			return k
		}
	}
	return keys[len(keys)-1]
}
