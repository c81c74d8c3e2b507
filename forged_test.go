package fencepost_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
)

// Whatever a notification on the bells' channel says, and whichever role sends
// it: it costs at most one claim, and none if it is no bell of a queue that is
// worked here. That holds with jobs in the queue that are due only later, too.
func TestAForgedBellCostsAtMostOneClaim(t *testing.T) {
	t.Parallel()
	dsn, direct := database(t)
	seen := make(statements, 10_000)
	pool := traced(t, dsn, seen)
	config, states := hearing(fencepost.Config{PollInterval: never, Queues: map[string]fencepost.Queue{"default": {}, "mark": {}}})
	client, producer := newClient(t, pool, config), newClient(t, direct, fencepost.Config{})
	ran := echo(client)
	work(t, client)
	await(t, states, true)

	// claimed returns how many claims of the queue there were since it was last
	// called. It waits for a job of another queue that is due later than any
	// repetition would come.
	claimed := func() (n int) {
		t.Helper()
		enqueue(t, producer, fencepost.NewJob{Kind: "echo", Queue: "mark", Delay: 150 * time.Millisecond})
		receive(t, ran, "the mark")
		for range len(seen) {
			if s := <-seen; strings.Contains(s.sql, "attempts = j.attempts + 1") && s.args[0] == "default" {
				n++
			}
		}
		return n
	}
	claimed() // the looks of the start
	now := time.Now().UnixMicro()
	forged := []struct {
		payload string
		most    int
	}{
		{"1:0:default", 1},
		{"1:1:default", 1},
		{fmt.Sprintf("1:%d:default", now), 1},
		{fmt.Sprintf("1:%d:default", now+int64(3600e6)), 0}, // not yet
		{"1:9223372036854775807:default", 0},
		{"1:0:unknown", 0},
		{"1:0:" + strings.Repeat("x", 7000), 0},
		{"", 0},
		{"default", 0},
		{"1", 0},
		{"1:0:", 0},
		{"1:x:default", 0},
		{"1:-1:default", 0},
		{"2:0:default", 0},
		{"recall:", 0},
		{"recall:somebody", 0},
		{"recall:1:0:default", 0},
		{"drained:", 0},
		{"drained:1:1:::0:0:default", 0},
		{"drained:9000000000000000000:9000000000000000000::0000000000000000:0000000000000000:0:default", 0},
		{strings.Repeat("1:0:default", 700), 0},
	}
	roles := []*pgxpool.Pool{direct, as(t, direct, producerRole), as(t, direct, monitorRole)}
	for _, later := range []bool{false, true} {
		if later {
			enqueue(t, producer, fencepost.NewJob{Kind: "echo", Delay: never})
			claimed()
		}
		for i, bell := range forged {
			if _, err := roles[i%len(roles)].Exec(t.Context(), "SELECT pg_notify('fencepost', $1)", bell.payload); err != nil {
				t.Fatal(err)
			}
			if n := claimed(); n > bell.most || bell.payload == "1:0:default" && n == 0 {
				t.Errorf("%.40q costs %d claims, want at most %d", bell.payload, n, bell.most)
			}
		}
	}
	// By the function, as a producer may, for a time that comes soon.
	if _, err := roles[1].Exec(t.Context(), "SELECT fencepost.ring('default', clock_timestamp() + interval '50 ms')"); err != nil {
		t.Fatal(err)
	}
	if n := claimed(); n > 1 {
		t.Errorf("a bell for a time that comes costs %d claims", n)
	}
}

// A recall that nobody meant, to a worker with a job in hand: it costs a look at
// its leases, and one more if a trip was under way that may have brought jobs
// which it was meant for. It changes nothing about the job.
func TestAForgedRecallCostsAtMostTwoChecks(t *testing.T) {
	t.Parallel()
	dsn, direct := database(t)
	seen := make(statements, 10_000)
	config, states := hearing(fencepost.Config{PollInterval: never, Lease: time.Hour, Queues: map[string]fencepost.Queue{"default": {}, "mark": {}}})
	client, producer := newClient(t, traced(t, dsn, seen), config), newClient(t, direct, fencepost.Config{})
	ran := echo(client)
	began, release := hold(client)
	work(t, client)
	await(t, states, true)
	held := enqueue(t, producer, fencepost.NewJob{Kind: "hold"})[0]
	receive(t, began, "the held job")

	// checked returns how many looks at leases there were since it was last
	// called; see claimed.
	checked := func() (n int) {
		t.Helper()
		enqueue(t, producer, fencepost.NewJob{Kind: "echo", Queue: "mark", Delay: 150 * time.Millisecond})
		receive(t, ran, "the mark")
		for range len(seen) {
			if s := <-seen; strings.Contains(s.sql, "pg_is_in_recovery()") && strings.Contains(s.sql, "AS o (id, fence)") {
				n++
			}
		}
		return n
	}
	job := func() (row string) {
		t.Helper()
		if err := direct.QueryRow(t.Context(), "SELECT j::text FROM fencepost.jobs AS j WHERE id = $1", held).Scan(&row); err != nil {
			t.Fatal(err)
		}
		return row
	}
	checked() // the looks of the start
	before := job()
	var worker string
	if err := direct.QueryRow(t.Context(), "SELECT worker_id FROM fencepost.jobs WHERE id = $1", held).Scan(&worker); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, role := range []*pgxpool.Pool{direct, as(t, direct, producerRole), as(t, direct, monitorRole)} {
		if _, err := role.Exec(t.Context(), "SELECT pg_notify('fencepost', 'recall:' || $1)", worker); err != nil {
			t.Fatal(err)
		}
		n := checked()
		if n > 2 {
			t.Errorf("a forged recall costs %d checks", n)
		}
		total += n
	}
	if total == 0 {
		t.Error("the test sees no check")
	}
	if after := job(); after != before {
		t.Errorf("the job was changed from %s to %s", before, after)
	}
	close(release)
	if job := ended(t, client, held); job.Status != fencepost.StatusDone || job.Attempts != 1 {
		t.Errorf("the job is %s after %d attempts", job.Status, job.Attempts)
	}
}
