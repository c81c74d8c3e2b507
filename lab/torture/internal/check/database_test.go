package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// database is what a failover may take back.
type database struct {
	live, ended map[int64]row
	orders      []FinalOrder
	effects     []FinalEffect
	id          int64
	seq, xid    int64
}

type row struct {
	id      int64
	created time.Time
	token   string
	kind    string
	queue   string
	max     int
	witness.State
	err string
}

// write adds a line of the witness.
func (w *world) write(place, op string, before, after *row) {
	r := after
	if r == nil {
		r = before
	}
	w.db.seq++
	l := witness.Line{
		Seq: w.db.seq, At: w.dbNow(), XID: w.db.xid, Place: place, Op: op,
		ID: r.id, Token: r.token, Kind: r.kind, Queue: r.queue, Max: r.max, CreatedAt: r.created, Error: r.err,
	}
	if before != nil {
		l.Before = before.State
	}
	if after != nil {
		l.After = after.State
	}
	w.lines = append(w.lines, l)
}

func (w *world) begin() { w.db.xid++ }

// insert enqueues in the open transaction.
func (w *world) insert(token, kind, queue string, delay time.Duration, max int) int64 {
	w.db.id++
	w.now += 1000
	r := row{
		id: w.db.id, created: w.dbNow(), token: token, kind: kind, queue: queue, max: max,
		State: witness.State{Status: "ready", RunAt: w.dbNow().Add(delay)},
	}
	w.db.live[r.id] = r
	w.write("jobs", "INSERT", nil, &r)
	w.db.orders = append(w.db.orders, FinalOrder{Token: token, Via: "test", XID: w.db.xid})
	return r.id
}

// update changes a live row.
func (w *world) update(id int64, do func(*row)) {
	before := w.db.live[id]
	after := before
	do(&after)
	w.db.live[id] = after
	w.write("jobs", "UPDATE", &before, &after)
}

// end moves a live row to the ended ones.
func (w *world) end(id int64, status string, by int64, err string) {
	before := w.db.live[id]
	delete(w.db.live, id)
	w.write("jobs", "DELETE", &before, nil)
	if before.queue == script.Bin && status == "done" {
		return
	}
	after := before
	after.Status, after.Fence, after.Lease = status, before.Fence+by, time.Time{}
	if err != "" {
		after.err = err
	}
	w.db.ended[id] = after
	w.write("finished", "INSERT", nil, &after)
}

// take is what a claim does to one row; it returns the fence.
func (w *world) take(worker string, id int64) (fence int64) {
	w.now += 2000
	w.update(id, func(r *row) {
		fence = max(r.Fence+1, w.dbNow().UnixMicro())
		if w.clockFence {
			fence = r.Fence + 1
		}
		if !w.claimCounts {
			r.Attempts++
		}
		r.Status, r.Fence, r.Worker, r.Lease = "running", fence, worker, w.dbNow().Add(testLimits.Lease)
	})
	return fence
}

// store is what the database does with an outcome, and what it answers.
func (w *world) store(id, fence int64, verb string, delay time.Duration) string {
	w.begin()
	r, live := w.db.live[id]
	if live && r.Fence == fence && r.Status == "running" || live && w.finishFence {
		switch {
		case verb == "done" || verb == "dead" || verb == "cancelled":
			w.end(id, verb, 0, "")
		case (verb == "retry" || verb == "release") && r.Attempts >= r.max:
			w.end(id, "dead", 0, "failed")
		default:
			w.update(id, func(r *row) { w.back(r, verb, delay) })
		}
		return "stored"
	}
	if e, ok := w.db.ended[id]; ok && e.Fence == fence {
		return "stored"
	} else if !ok && !live {
		return "gone"
	}
	return "lost"
}

func (w *world) back(r *row, verb string, delay time.Duration) {
	r.Status, r.Worker, r.Lease = "ready", "", time.Time{}
	r.Fence++
	switch verb {
	case "retry":
		r.RunAt, r.err = w.dbNow().Add(delay), "failed"
	case "snooze":
		r.RunAt, r.Attempts, r.Snoozes = w.dbNow().Add(delay), r.Attempts-1, r.Snoozes+1
	case "return":
		r.Attempts--
	}
}

// reap takes a job from its worker, whose lease is over.
func (w *world) reap(id int64) {
	pause := 100 * time.Millisecond
	if n := w.db.live[id].Attempts; n > 1 {
		pause = time.Second << (n - 1)
	}
	w.reapAs(id, "lease of worker %s ran out in attempt %d of %d", pause)
}

func (w *world) reapAs(id int64, text string, pause time.Duration) {
	w.begin()
	r := w.db.live[id]
	why := fmt.Sprintf(text, r.Worker, r.Attempts, r.max)
	if r.Attempts >= r.max {
		w.end(id, "dead", 1, why+", the last one")
		return
	}
	w.update(id, func(r *row) {
		r.Status, r.Worker, r.Lease, r.err = "ready", "", time.Time{}, why
		r.Fence++
		r.RunAt = w.dbNow().Add(pause)
	})
}

func (w *world) operated(verb string, id int64) string {
	r, live := w.db.live[id]
	ended, known := w.db.ended[id]
	switch {
	case verb == "cancel" && live:
		w.end(id, "cancelled", 1, "cancelled by an operator")
	case verb == "release" && live && r.Status == "running":
		w.update(id, func(r *row) {
			w.back(r, "release", 0)
			r.max = max(r.max, r.Attempts+1)
		})
	case verb == "retry" && !live && known:
		delete(w.db.ended, id)
		after := ended
		after.Status, after.Worker, after.RunAt = "ready", "", w.dbNow()
		after.Fence++
		after.max = max(after.max, after.Attempts+1)
		w.db.live[id] = after
		w.write("jobs", "INSERT", nil, &after)
		w.write("finished", "DELETE", &ended, nil)
	case verb == "delete" && live:
		delete(w.db.live, id)
		w.write("jobs", "DELETE", &r, nil)
	case verb == "delete" && known:
		delete(w.db.ended, id)
		w.write("finished", "DELETE", &ended, nil)
	default:
		return "left"
	}
	return "done"
}

// save is a copy of the database, for a failover to go back to.
func (w *world) save() (database, int) {
	saved := w.db
	saved.live, saved.ended = make(map[int64]row), make(map[int64]row)
	for id, r := range w.db.live {
		saved.live[id] = r
	}
	for id, r := range w.db.ended {
		saved.ended[id] = r
	}
	saved.orders, saved.effects = slices.Clone(w.db.orders), slices.Clone(w.db.effects)
	return saved, len(w.lines)
}

// failover goes back to what was saved.
func (w *world) failover(saved database, lines int) {
	w.lost = append(w.lost, w.lines[lines:]...)
	w.lines, w.db = w.lines[:lines:lines], saved
}
