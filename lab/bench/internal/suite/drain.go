package suite

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/figures"
	"github.com/fencepost-go/fencepost/lab/bench/internal/host"
	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

func init() {
	All = append(All, Suite{
		Name: "drain", About: "no-op jobs preloaded, then worked as fast as it goes", Quick: true,
		Peers: []string{"river", "graphile"},
		Run:   drainSuite,
	})
}

// drained is what one drain has cost.
type drained struct {
	rate    float64 // jobs/s
	server  time.Duration
	client  time.Duration
	jobs    int
	wal     int64 // without full-page images
	commits int64
	allocs  float64 // objects a job, in the worker
	bytes   float64
	windows []float64 // jobs/s in each window
}

// drain preloads jobs for the peer and lets one worker process work them, for
// at most 20 s.
func (b *Bench) drain(ctx context.Context, peer string, o wire.Options, p wire.Produce, w wire.Work) (d drained, err error) {
	dsn, drop, err := b.Host.Fresh(ctx)
	if err != nil {
		return d, err
	}
	defer func() { err = join(err, drop()) }()
	o.DSN = dsn
	child, err := b.Start(ctx, peer, o)
	if err != nil {
		return d, err
	}
	defer func() { err = join(err, child.Close()) }()
	before, err := b.Host.Read(ctx, database(dsn))
	if err != nil {
		return d, err
	}
	if err := child.Call(ctx, wire.DoProduce, p, nil); err != nil {
		return d, err
	}
	loaded, err := b.Host.Read(ctx, database(dsn))
	if err != nil {
		return d, err
	}
	if err := b.Host.Settle(ctx); err != nil {
		return d, err
	}
	var usage, after wire.Usage
	if err := child.Call(ctx, wire.DoUsage, nil, &usage); err != nil {
		return d, err
	}
	start, err := b.Host.Read(ctx, database(dsn))
	if err != nil {
		return d, err
	}
	client, err := host.ProcessCPU(child.PID())
	if err != nil {
		return d, err
	}
	began := wire.Now()
	if err := child.Call(ctx, wire.DoWork, w, nil); err != nil {
		return d, err
	}
	if err := child.Call(ctx, wire.DoAwait, wire.Await{N: p.N, Seconds: 20}, nil); err != nil {
		return d, err
	}
	var worked wire.Worked
	if err := child.Call(ctx, wire.DoStop, nil, &worked); err != nil {
		return d, err
	}
	// The end is when the last outcome was stored, which is before Stop returns:
	// so a queue that says "done" before it has stored anything gains nothing.
	took := time.Duration(wire.Now() - began)
	clientAfter, err := host.ProcessCPU(child.PID())
	if err != nil {
		return d, err
	}
	end, err := b.Host.Read(ctx, database(dsn))
	if err != nil {
		return d, err
	}
	if err := child.Call(ctx, wire.DoUsage, nil, &after); err != nil {
		return d, err
	}
	if worked.Done == 0 {
		return d, fmt.Errorf("no job was done")
	}
	used, loading := end.Sub(start), loaded.Sub(before)
	n := float64(worked.Done)
	d = drained{
		rate: n / took.Seconds(), server: used.CPU, client: clientAfter - client, jobs: worked.Done,
		wal: used.WAL - used.FPIBytes + loading.WAL - loading.FPIBytes, commits: used.Commits,
		allocs: float64(after.Allocs-usage.Allocs) / n, bytes: float64(after.Bytes-usage.Bytes) / n,
	}
	last := worked.First
	for _, at := range worked.Windows {
		d.windows = append(d.windows, float64(w.Window)/time.Duration(at-last).Seconds())
		last = at
	}
	return d, nil
}

func database(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(u.Path, "/")
}

func drainSuite(ctx context.Context, b *Bench) error {
	n := b.Size(200_000)
	rates := make(map[string][]float64)
	err := b.Alternate(ctx, []string{"fencepost", "river"}, func(name string, round int) error {
		d, err := b.drain(ctx, name, wire.Options{Best: true, Keep: true},
			wire.Produce{N: n, Bytes: 200, Way: "copy", Batch: 10_000}, wire.Work{})
		if err != nil {
			return err
		}
		rates[name] = append(rates[name], d.rate)
		b.Record(figures.Sample{Subject: "drain", Who: name, Settings: "best, kept", Round: round, Figure: "jobs/s", Value: d.rate})
		b.Logf("  %s, round %d: %.0f jobs/s", name, round+1, d.rate)
		return nil
	})
	if err != nil {
		return err
	}
	b.Report(figures.AtLeast("drain_keep", figures.Ratios(rates["fencepost"], rates["river"]), 2.8, "×", "River at its best",
		fmt.Sprintf("%d no-op jobs of 200 B, kept; every commit durable", n)))
	return nil
}
