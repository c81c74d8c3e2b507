package run

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/report"
)

// describe fills in what took part, and how far apart the two clocks are.
func (r *one) describe(ctx context.Context, result *report.Run) error {
	result.Machine = report.Machine{
		OS:     runtime.GOOS + "/" + runtime.GOARCH,
		CPU:    fact("/proc/cpuinfo", "model name"),
		Cores:  runtime.NumCPU(),
		Memory: memory(),
	}
	result.Versions.Go = runtime.Version()
	result.Versions.Fencepost = commit(ctx)
	result.Settings = report.Settings{
		Workers: r.Workers,
		Slots:   r.Slots,
		Lease:   r.Lease.Seconds(),
		Poll:    r.Poll.Seconds(),
	}
	b := &pgx.Batch{}
	b.Queue(`SELECT current_setting('server_version')`).QueryRow(func(row pgx.Row) error { return row.Scan(&result.Versions.PostgreSQL) })
	b.Queue(`SELECT json_object_agg(name, setting) FROM pg_settings WHERE name = ANY ($1)`,
		[]string{"max_connections", "max_notify_queue_pages"}).QueryRow(func(row pgx.Row) error { return row.Scan(&result.Settings.Server) })
	b.Queue(`SELECT current_setting('fsync')`).QueryRow(func(row pgx.Row) error { return row.Scan(&result.Settings.Fsync) })
	b.Queue(`SELECT current_setting('synchronous_commit')`).QueryRow(func(row pgx.Row) error { return row.Scan(&result.Settings.SynchronousCommit) })
	if err := r.stage.Admin().SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	var err error
	r.offset, err = r.compareClocks(ctx)
	return err
}

// compareClocks finds how far the database's clock is ahead of the history's:
// by the quickest of some answers.
func (r *one) compareClocks(ctx context.Context) (ahead int64, err error) {
	best := int64(time.Minute)
	for range 20 {
		var now time.Time
		sent := history.Now()
		if err := r.stage.Admin().QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
			return 0, err
		}
		if took := history.Now() - sent; took < best {
			best, ahead = took, now.UnixNano()-(sent+took/2)
		}
	}
	return ahead, nil
}

// sameClocks refuses to judge a run in which somebody has set the machine's
// clock: the database's times cannot be compared with the histories' then.
func (r *one) sameClocks(ctx context.Context) error {
	now, err := r.compareClocks(ctx)
	if err != nil {
		return err
	}
	if step := time.Duration(now - r.offset); step.Abs() > 4*time.Millisecond {
		return fmt.Errorf("the machine's clock was set by %s during the run: make another one", step.Round(time.Millisecond))
	}
	return nil
}

// fact is what a file of the system says of a name; "": nothing.
func fact(file, name string) string {
	text, _ := os.ReadFile(file) // there is none on other systems
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// memory is that of the machine, in bytes; 0: unknown.
func memory() int64 {
	kB, err := strconv.ParseInt(strings.TrimSuffix(fact("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return kB << 10
}

// commit is the revision that was built, if this is a checkout of git.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
