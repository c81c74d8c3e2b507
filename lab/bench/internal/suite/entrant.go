package suite

import (
	"context"
	"slices"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// entrant is a queue with the settings with which it takes part.
type entrant struct {
	name string // of its row, such as "fencepost, kept"
	peer string
	o    wire.Options
}

// chosen are those whose peer was chosen.
func (b *Bench) chosen(entrants ...entrant) []entrant {
	return slices.DeleteFunc(entrants, func(e entrant) bool { return !slices.Contains(b.Peers, e.family()) })
}

// family is the peer under the name by which one chooses it: there are two
// floors, one for each question.
func (e entrant) family() string {
	if e.peer == "wakefloor" {
		return "floor"
	}
	return e.peer
}

// sample is a figure of the entrant in a round.
func (e entrant) sample(subject, settings string, round int, figure string, value float64) figures.Sample {
	return figures.Sample{
		Subject: subject, Who: e.family(), Row: e.name, Best: e.o.Best, Settings: settings,
		Round: round, Figure: figure, Value: value,
	}
}

// results are the drains of each entrant, one a round.
type results map[string][]drained

// drainAll lets the entrants drain, in turning order. how says what, but for
// the peer and its options.
func (b *Bench) drainAll(ctx context.Context, subject string, entrants []entrant, how drain) (results, error) {
	r := make(results)
	names := make([]string, len(entrants))
	for i, e := range entrants {
		names[i] = e.name
	}
	err := b.Alternate(ctx, names, func(name string, round int) error {
		e := entrants[slices.Index(names, name)]
		how.peer, how.o = e.peer, e.o
		d, err := b.drain(ctx, how)
		if err != nil {
			return err
		}
		if round == 0 {
			b.Logf("  %s: %s", name, d.settings)
		}
		cut := ""
		if d.jobs < how.p.N {
			cut = ", cut"
		}
		b.Logf("  %s, round %d: %.0f jobs/s (%d in %.1f s%s), %.1f µs of processor a job", name, round+1, d.rate, d.jobs, d.took.Seconds(), cut, d.cpu())
		b.recordDrain(subject, e, round, d)
		r[name] = append(r[name], d)
		return nil
	})
	return r, err
}

func (b *Bench) recordDrain(subject string, e entrant, round int, d drained) {
	record := func(figure string, value float64) {
		b.Record(e.sample(subject, d.settings, round, figure, value))
	}
	record("jobs/s", d.rate)
	record("jobs", float64(d.jobs))
	record("start-up ms", float64(d.startUp.Microseconds())/1000)
	record("CPU, µs/job", d.cpu())
	record("server CPU, µs/job", d.each(d.server))
	record("client CPU, µs/job", d.each(d.client))
	if d.allocs > 0 {
		record("objects/job", d.allocs)
		record("bytes/job", d.bytes)
	}
	if d.worked.Bytes > 0 {
		record("WAL, B/job", d.enqueuedBytes()+d.workedBytes())
		record("WAL to enqueue, B/job", d.enqueuedBytes())
		record("WAL to work, B/job", d.workedBytes())
		record("images to work, B/job", perJob(float64(d.worked.Images), d.jobs))
		record("commits/job", d.commits())
	}
}

// each is a figure of each round of an entrant.
func (r results) each(name string, figure func(drained) float64) (rounds []float64) {
	for _, d := range r[name] {
		rounds = append(rounds, figure(d))
	}
	return rounds
}

// ratios divides a figure of one entrant by that of another, round by round.
func (r results) ratios(a, b string, figure func(drained) float64) []float64 {
	return figures.Ratios(r.each(a, figure), r.each(b, figure))
}

// reportMeasured reports a line, if who it needs was chosen.
func (b *Bench) reportMeasured(l figures.Line) {
	if l.N > 0 {
		b.Report(l)
	}
}

func rate(d drained) float64 { return d.rate }
