package claim_test

import (
	"slices"
	"testing"

	"github.com/fencepost-go/fencepost/claim"
)

// What an operator sees of a job, in each of its states.
func TestGetAndList(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	ready := b.insertOne("queue, payload", `'a', '[1, 2]'`)
	scheduled := b.insertOne("queue, run_at", "'a', clock_timestamp() + interval '1 hour'")
	retrying := b.insertOne("queue, run_at, attempts, last_error", "'b', clock_timestamp() + interval '1 hour', 1, 'it broke'")
	running := b.insertOne("queue", "'c'")
	ended := map[claim.Verb]int64{claim.Done: 0, claim.Dead: 0, claim.Cancelled: 0}
	for verb := range ended {
		ended[verb] = b.insertOne("queue", "'d'")
		c, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: "d", Limit: 1}, lease, "worker")
		if err != nil || len(c.Rows) != 1 {
			t.Fatal(c, err)
		}
		b.finish(claim.Stored, claim.Outcome{Lease: c.Rows[0].Lease(), Verb: verb, Error: "over"})
	}
	if _, err := b.Claim(b.ctx, b.conn, claim.Request{Queue: "c", Limit: 1}, lease, "worker"); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int64]string{
		ready: "ready", scheduled: "scheduled", retrying: "retrying", running: "running",
		ended[claim.Done]: "done", ended[claim.Dead]: "dead", ended[claim.Cancelled]: "cancelled",
	} {
		got, err := b.Get(b.ctx, b.conn, id)
		if err != nil {
			t.Fatal(err)
		}
		isEnded := want == "done" || want == "dead" || want == "cancelled"
		if got.ID != id || got.Status != want || got.FinishedAt.IsZero() == isEnded || got.LeaseUntil.IsZero() == (want == "running") {
			t.Errorf("want job %d as %s, got %+v", id, want, got)
		}
		list, err := b.List(b.ctx, b.conn, claim.Filter{Status: want})
		if err != nil || len(list) != 1 || list[0].ID != id {
			t.Errorf("list of %s: %+v, %v", want, list, err)
		}
	}
	if job, err := b.Get(b.ctx, b.conn, ready); err != nil || string(job.Payload) != "[1, 2]" || job.Progress != nil || job.LastError != "" {
		t.Errorf("got %+v, %v", job, err)
	}
	ids := func(f claim.Filter) (ids []int64) {
		t.Helper()
		list, err := b.List(b.ctx, b.conn, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range list {
			ids = append(ids, job.ID)
		}
		return ids
	}
	for _, test := range []struct {
		filter claim.Filter
		want   []int64
	}{
		{claim.Filter{Queue: "a"}, []int64{scheduled, ready}},
		{claim.Filter{Queue: "a", Status: "ready"}, []int64{ready}},
		{claim.Filter{Kind: "unknown"}, nil},
		{claim.Filter{Kind: "test", Limit: 1}, []int64{max(ended[claim.Done], ended[claim.Dead], ended[claim.Cancelled])}},
	} {
		if got := ids(test.filter); !slices.Equal(got, test.want) {
			t.Errorf("%+v: jobs %v, want %v", test.filter, got, test.want)
		}
	}
	if got := ids(claim.Filter{}); len(got) != 7 {
		t.Errorf("%d jobs in all, want 7", len(got))
	}
}

// The ids that match come in pages, each once, and their number alone.
func TestIDsAndCount(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.inState(7, "dead")
	for id, state := range map[int64]string{-5: "ready", 0: "done", 3: "dead", 4: "running", 5: "scheduled", 6: "retrying", 7: "ready"} {
		b.inState(id, state)
	}
	for _, test := range []struct {
		filter claim.Filter
		after  int64
		want   []int64
		count  int64
	}{
		{claim.Filter{}, -100, []int64{-5, 0, 3, 4, 5, 6, 7}, 7},
		{claim.Filter{Limit: 2}, -100, []int64{-5, 0}, 7},
		{claim.Filter{Limit: 2}, 0, []int64{3, 4}, 7},
		{claim.Filter{Limit: 2}, 7, nil, 7},
		{claim.Filter{Status: "dead"}, -100, []int64{3, 7}, 2},
		{claim.Filter{Status: "ready"}, 0, []int64{7}, 2},
		{claim.Filter{Status: "scheduled"}, 0, []int64{5}, 1},
		{claim.Filter{Queue: "dead"}, 0, []int64{3, 7}, 2},
		{claim.Filter{Kind: "other"}, -100, nil, 0},
	} {
		got, err := b.IDs(b.ctx, b.conn, test.filter, test.after)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%+v after %d: %v, %v; want %v", test.filter, test.after, got, err, test.want)
		}
		if n, err := b.Count(b.ctx, b.conn, test.filter); err != nil || n != test.count {
			t.Errorf("%+v: count %d, %v; want %d", test.filter, n, err, test.count)
		}
	}
}

// An id of the producer's own choice may come a second time: that neither
// keeps the second job from ending, nor hides it.
func TestFinishedKeepsBothJobsOfOneID(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for _, verb := range []claim.Verb{claim.Dead, claim.Done} {
		b.insertOne("id", "7")
		if job, err := b.Get(b.ctx, b.conn, 7); err != nil || job.Status != "ready" {
			t.Errorf("got %+v, %v; want the live job", job, err)
		}
		row := b.takeOne(lease)
		b.finish(claim.Stored, claim.Outcome{Lease: row.Lease(), Verb: verb})
	}
	if job, err := b.Get(b.ctx, b.conn, 7); err != nil || job.Status != "done" {
		t.Errorf("got %+v, %v; want the one that ended last", job, err)
	}
	if list, err := b.List(b.ctx, b.conn, claim.Filter{}); err != nil || len(list) != 2 {
		t.Errorf("listed %+v, %v; want both", list, err)
	}
}
