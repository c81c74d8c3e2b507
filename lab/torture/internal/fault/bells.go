package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage/filter"
)

var bellFaults = []Fault{
	{
		Name: "bells-lost", About: "no notification of new jobs arrives; the listeners' own do, so that nobody can know",
		Length: 12 * time.Second, touches: bells,
		body: fate(func(channel, _ string) filter.Fate {
			if channel == stage.Schema {
				return filter.Fate{}
			}
			return filter.Pass
		}),
	},
	{
		Name: "bells-deaf", About: "no notification arrives at all: the listeners know that they are deaf",
		Length: 12 * time.Second, touches: bells,
		body: fate(func(string, string) filter.Fate { return filter.Fate{} }),
	},
	{
		Name: "bells-doubled", About: "each notification arrives three times",
		Length: 8 * time.Second, touches: bells,
		body: fate(func(string, string) filter.Fate { return filter.Fate{Copies: 3} }),
	},
	{
		Name: "bells-late", About: "each notification of new jobs arrives up to 4 s late, and out of order",
		Length: 10 * time.Second, touches: bells,
		body: fate(func(channel, _ string) filter.Fate {
			if channel != stage.Schema {
				return filter.Pass
			}
			return filter.Fate{Copies: 1, Late: rand.N(4 * time.Second)}
		}),
	},
	{
		Name: "bells-forged", About: "somebody rings, 200 times a second, for jobs that do not exist, for any time and queue, and recalls jobs",
		Length: 8 * time.Second, touches: bells,
		body: func(ctx context.Context, a *act) error { return ring(ctx, a, 5*time.Millisecond, forged) },
	},
	{
		Name: "bells-malformed", About: "somebody sends notifications that are none of ours on our channel",
		Length: 8 * time.Second, touches: bells,
		body: func(ctx context.Context, a *act) error { return ring(ctx, a, 10*time.Millisecond, malformed) },
	},
	{
		Name: "notify-full", About: "a session that listens in an open transaction keeps the queue of notifications full: whoever notifies is refused, and nobody who enqueues",
		Needs:  Needs{Major: 17},
		Length: 6 * time.Second, touches: bells | sessions, body: notifyFull,
	},
}

// fate decides what becomes of the notifications to all processes.
func fate(of func(channel, payload string) filter.Fate) func(context.Context, *act) error {
	return func(ctx context.Context, a *act) error {
		all := a.Processes("")
		for _, p := range all {
			p.Net().Bells(of)
		}
		wait(ctx, a.length)
		for _, p := range all {
			p.Net().Bells(nil)
		}
		return nil
	}
}

// ring notifies from a session that is nobody's.
func ring(ctx context.Context, a *act, every time.Duration, payload func(*rand.Rand, []string) string) error {
	var workers []string
	rows, err := a.Admin().Query(ctx, "SELECT worker_id FROM fencepost.workers")
	if err == nil {
		workers, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return ignoreLost(err)
	}
	return a.repeat(ctx, every, func() error {
		_, err := a.Admin().Exec(ctx, "SELECT pg_notify($1, $2)", stage.Schema, payload(a.r, workers))
		return ignoreLost(err)
	})
}

// forged is well formed, and not true.
func forged(r *rand.Rand, workers []string) string {
	queues := []string{script.Main, script.Side, script.Bin, "no-such-queue", ""}
	due := []int64{0, 1, time.Now().UnixMicro(), time.Now().UnixMicro() + r.Int64N(1e7), 1 << 62}
	if r.IntN(4) == 0 {
		worker := "nobody:1:ABCDEFGH"
		if len(workers) > 0 && r.IntN(2) == 0 {
			worker = workers[r.IntN(len(workers))]
		}
		return "recall:" + worker
	}
	return fmt.Sprintf("1:%d:%s", due[r.IntN(len(due))], queues[r.IntN(len(queues))])
}

func malformed(r *rand.Rand, _ []string) string {
	all := []string{
		"", ":", "::::", "1", "1:", "1::", "1:x:main", "1:-1:main", "1:99999999999999999999999999:main",
		"2:5:main", "0:5:main", "-1:5:main", "recall", "recall:", "recall::", "1:1e9:main", "1: 5:main", "1:5:" + strings.Repeat("q", 7000),
		"\u202e1:5:main", "1:5:main\x00"[:8], `{"queue":"main"}`, "'; DROP TABLE fencepost.jobs; --", strings.Repeat("1:", 3900),
	}
	return all[r.IntN(len(all))]
}

// notifyFull fills the queue, which only goes as far as the slowest listener.
func notifyFull(ctx context.Context, a *act) error {
	mend, cancel := mending(ctx)
	defer cancel()
	slow, err := a.connect(mend, "")
	if err != nil {
		return err
	}
	defer slow.Close(mend)
	for _, sql := range []string{"LISTEN torture", "BEGIN", "SELECT pg_current_xact_id()"} {
		if _, err := slow.Exec(mend, sql); err != nil {
			return &failed{sql, err}
		}
	}
	full, payload := false, strings.Repeat("x", 7900)
	for end := time.Now().Add(a.length); time.Now().Before(end) && ctx.Err() == nil; {
		_, err := a.Admin().Exec(mend, "SELECT pg_notify('torture', $1)", payload)
		switch {
		case err == nil:
			continue
		case isCode(err, "54000"): // program_limit_exceeded: it is full, and is kept so
			full = true
			wait(ctx, 20*time.Millisecond)
		case ignoreLost(err) != nil:
			return err
		}
	}
	err = nil
	if !full && ctx.Err() == nil {
		err = errors.New("the queue of notifications did not become full")
	}
	_, undo := slow.Exec(mend, "ROLLBACK")
	return errors.Join(err, ignoreLost(undo))
}
