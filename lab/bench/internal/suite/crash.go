package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "crash", About: "a worker is killed with jobs at work, another one is idle",
		Run: crashSuite,
	})
}

const (
	crashJobs = 100
	// Kills in a round: how soon one is noticed depends on its moment.
	crashKills = 3
	crashLimit = 90 * time.Second
)

func crashSuite(ctx context.Context, b *Bench) error {
	if !slices.Contains(b.Peers, "fencepost") {
		return nil
	}
	kills := crashKills
	if b.Small {
		kills = 1
	}
	var slowest []float64
	for round := range b.Rounds {
		worst := 0.0
		for kill := range kills {
			// At another place between two looks of the idle worker.
			late, settings, err := b.crash(ctx, 3*time.Second+time.Duration(kill)*700*time.Millisecond)
			if err != nil {
				return fmt.Errorf("round %d, kill %d: %w", round+1, kill+1, err)
			}
			first, last := slices.Min(late), slices.Max(late)
			b.Logf("  round %d, kill %d: the first job ran again %.2f s later, the last %.2f s", round+1, kill+1, first, last)
			record := func(figure string, value float64) {
				b.Record(figures.Sample{Subject: "crash", Who: "fencepost", Row: ownRow, Settings: settings, Round: round, Figure: figure, Value: value})
			}
			record("first run again, s", first)
			record("median run again, s", figures.Median(late))
			record("last run again, s", last)
			worst = max(worst, last)
		}
		slowest = append(slowest, worst)
	}
	b.Report(figures.AtMost("crash", slowest, 5, "s", "an absolute limit",
		fmt.Sprintf("from SIGKILL of a process with %d running jobs until the last of them had started again in another, idle one; "+
			"the slowest of %d kills in each round; %d slots each, all else at its defaults", crashJobs, kills, crashJobs)))
	return nil
}

// crash kills a worker and says after how many seconds each of its jobs had
// started again in the other, which had been idle for the given time.
func (b *Bench) crash(ctx context.Context, idle time.Duration) (late []float64, settings string, err error) {
	dsn, drop, err := b.Host.Fresh(ctx)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, drop()) }()
	o := wire.Options{DSN: dsn, Keep: true, Slots: crashJobs}
	victim, err := b.Start(ctx, "fencepost", o)
	if err != nil {
		return nil, "", err
	}
	killed := false
	defer func() {
		if closed := victim.Close(); !killed { // of a dead one: that it is dead
			err = errors.Join(err, closed)
		}
	}()
	if err := victim.Call(ctx, wire.DoWork, wire.Work{Sleep: time.Hour}, nil); err != nil {
		return nil, "", err
	}
	if err := victim.Call(ctx, wire.DoProduce, wire.Produce{N: crashJobs, Bytes: 200, Way: "many", Batch: crashJobs}, nil); err != nil {
		return nil, "", err
	}
	if err := b.running(ctx, dsn, crashJobs); err != nil {
		return nil, "", err
	}
	heir, err := b.Start(ctx, "fencepost", o)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, heir.Close()) }()
	if err := heir.Call(ctx, wire.DoWork, wire.Work{Log: true}, nil); err != nil {
		return nil, "", err
	}
	until(wire.Now() + int64(idle))

	at := wire.Now()
	if err := victim.Signal(syscall.SIGKILL); err != nil {
		return nil, "", err
	}
	killed = true
	if err := heir.Call(ctx, wire.DoAwait, wire.Await{N: crashJobs, Seconds: crashLimit.Seconds()}, nil); err != nil {
		return nil, "", err
	}
	var worked wire.Worked
	if err := heir.Call(ctx, wire.DoStop, nil, &worked); err != nil {
		return nil, "", err
	}
	if len(worked.Starts) < crashJobs {
		return nil, "", fmt.Errorf("%d of %d jobs ran again in %v", len(worked.Starts), crashJobs, crashLimit)
	}
	for _, start := range worked.Starts {
		late = append(late, time.Duration(start-at).Seconds())
	}
	return late, heir.Described.Settings, nil
}

// running waits until so many jobs run.
func (b *Bench) running(ctx context.Context, dsn string, n int) (err error) {
	l, err := openLedger(ctx, "fencepost", dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	for limit := wire.Now() + int64(drainLimit); ; until(wire.Now() + 10*watchEvery) {
		var running int
		if err := l.conn.QueryRow(ctx, "SELECT count(*) FROM fencepost.jobs WHERE status = 'running'").Scan(&running); err != nil {
			return err
		}
		if running == n {
			return nil
		}
		if wire.Now() > limit {
			return fmt.Errorf("%d of %d jobs run after %v", running, n, drainLimit)
		}
	}
}
