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
	pc, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(statements, 10_000)
	pc.ConnConfig.Tracer = seen
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
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
