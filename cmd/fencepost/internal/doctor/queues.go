package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// sqlWorkers tells who lives by the lock that each process holds over its own
// connection: a lock that can be had is held by nobody. It is given back at
// the end of this transaction, and no process ever waits for it. Running jobs are
// found by their claims, and 10,000 at most.
const sqlWorkers = `
WITH r AS (
    SELECT j.worker_id, count(*) AS n
    FROM {{schema}}.jobs AS j
    WHERE j.id = ANY (ARRAY(SELECT k.id FROM {{schema}}.claims AS c CROSS JOIN LATERAL unnest(c.ids) AS k (id)
                            ORDER BY c.look_at LIMIT 10000))
      AND j.status = 'running'
    GROUP BY j.worker_id
)
SELECT w.worker_id,
       CASE WHEN w.lock_key IS NOT NULL THEN NOT pg_try_advisory_xact_lock_shared(w.tableoid::int4, w.lock_key) END,
       extract(epoch FROM clock_timestamp() - w.written_at)::float8,
       w.queues::text, w.kinds, coalesce(r.n, 0)
FROM {{schema}}.workers AS w LEFT JOIN r ON r.worker_id = w.worker_id
ORDER BY w.started_at DESC
LIMIT 1000`

type worker struct {
	ID      string
	Live    *bool // nil: it has no lock, so it cannot be told
	Written float64
	Queues  string
	Kinds   []string // nil: all
	Running int64
}

// may reports that the worker lives, or may live.
func (w worker) may() bool { return w.Live == nil || *w.Live }

// works reports that the worker serves the queue.
func (w worker) works(queue string) bool {
	var slots map[string]int
	_ = json.Unmarshal([]byte(w.Queues), &slots) // what is not such an object serves none
	_, there := slots[queue]
	return there
}

func (w worker) can(kind string) bool { return w.Kinds == nil || slices.Contains(w.Kinds, kind) }

func workers(ctx context.Context, e *exam) ([]Finding, error) {
	rows, err := ask[worker](ctx, e, sqlWorkers)
	if err != nil {
		return nil, err
	}
	live, untold := 0, 0
	var list []Finding
	for _, w := range rows {
		switch {
		case w.Live == nil:
			untold++
		case *w.Live:
			live++
		case len(list) < worst:
			list = append(list, but(Warn, figures{"worker_id": w.ID, "running": w.Running, "written_seconds_ago": w.Written},
				fmt.Sprintf("worker %s is silent: its process is gone, or its connection; running jobs in its name: %d", w.ID, w.Running),
				"nothing, if others work: they take its jobs; if it did not end by your will, see its log and its machine"))
		}
	}
	f := figures{"live": live, "untold": untold}
	if len(list) > 0 {
		return list, nil
	}
	message := fmt.Sprintf("%d live", live)
	if untold > 0 {
		message += fmt.Sprintf("; of %d it cannot be told: they have no lock, as behind a pooler", untold)
	}
	return []Finding{ok(f, "%s", message)}, nil
}

const sqlPriorities = `(VALUES (-2::smallint), (-1::smallint), (0::smallint), (1::smallint), (2::smallint)) AS p (priority)`

// sqlNames walks the names of queues with ready jobs through the index of jobs,
// from one to the next.
const sqlNames = `
WITH RECURSIVE names (queue) AS (
    (SELECT j.queue FROM {{schema}}.jobs AS j WHERE j.status = 'ready' ORDER BY j.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM {{schema}}.jobs AS j WHERE j.status = 'ready' AND j.queue > n.queue ORDER BY j.queue LIMIT 1)
    FROM names AS n WHERE n.queue IS NOT NULL
)`

// sqlDemand looks at up to 100 due jobs of each priority of a queue, and the first
// one that is due later: at most 1000 queues, and no table is read as a whole.
const sqlDemand = sqlNames + `
SELECT q.queue, d.n, d.age, d.kinds, d.spent, extract(epoch FROM l.run_at - clock_timestamp())::float8,
       extract(epoch FROM clock_timestamp() - s.paused_at)::float8
FROM (SELECT n.queue FROM names AS n WHERE n.queue IS NOT NULL LIMIT 1000) AS q
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE NOT x.spent) AS n,
           coalesce(extract(epoch FROM clock_timestamp() - min(x.run_at) FILTER (WHERE NOT x.spent)), 0)::float8 AS age,
           array_agg(DISTINCT x.kind) FILTER (WHERE NOT x.spent) AS kinds,
           coalesce((array_agg(x.id::text ORDER BY x.id) FILTER (WHERE x.spent))[1:5], '{}') AS spent
    FROM ` + sqlPriorities + `
    CROSS JOIN LATERAL (
        SELECT j.id, j.run_at, j.kind, j.fence >= 4611686018427387902 AS spent FROM {{schema}}.jobs AS j
        WHERE j.queue = q.queue AND j.priority = p.priority AND j.status = 'ready' AND j.run_at <= (SELECT clock_timestamp())
        ORDER BY j.run_at, j.id LIMIT 100) AS x
) AS d
CROSS JOIN LATERAL (
    SELECT min(x.run_at) AS run_at
    FROM ` + sqlPriorities + `
    CROSS JOIN LATERAL (
        SELECT j.run_at FROM {{schema}}.jobs AS j
        WHERE j.queue = q.queue AND j.priority = p.priority AND j.status = 'ready' AND j.run_at > (SELECT clock_timestamp())
        ORDER BY j.run_at, j.id LIMIT 1) AS x
) AS l
LEFT JOIN {{schema}}.queues AS s ON s.name = q.queue`

type demand struct {
	Queue  string
	Jobs   int64
	Age    float64  // of the oldest
	Kinds  []string // of those looked at
	Spent  []string // ids, at most 5, of jobs that nobody takes; not among Jobs
	Next   *float64 // until the first is due of those that are due later; nil: there are none
	Paused *float64 // for how long; nil: it is not
}

// sqlStrangers names queues in which jobs run under a live lease for workers
// that have no row: programs of version 1 write none, and no claims either. Their
// jobs stand where they were in the order of claims, so it looks at the first 100
// of each priority.
const sqlStrangers = sqlNames + `
SELECT q.queue
FROM (SELECT n.queue FROM names AS n WHERE n.queue IS NOT NULL LIMIT 1000) AS q
WHERE EXISTS (
    SELECT
    FROM ` + sqlPriorities + `
    CROSS JOIN LATERAL (
        SELECT j.status, j.lease_until, j.worker_id FROM {{schema}}.jobs AS j
        WHERE j.queue = q.queue AND j.priority = p.priority AND j.run_at <= (SELECT clock_timestamp())
        ORDER BY j.run_at, j.id LIMIT 100) AS r
    WHERE r.status = 'running' AND r.lease_until >= (SELECT clock_timestamp())
      AND NOT EXISTS (SELECT FROM {{schema}}.workers AS w WHERE w.worker_id = r.worker_id))`

// queues with jobs: does somebody work them, and how long do they wait?
func queues(ctx context.Context, e *exam) ([]Finding, error) {
	staff, err := ask[worker](ctx, e, sqlWorkers)
	if err != nil {
		return nil, err
	}
	strangers, err := ask[struct{ Queue string }](ctx, e, sqlStrangers)
	if err != nil {
		return nil, err
	}
	rows, err := ask[demand](ctx, e, sqlDemand)
	if err != nil {
		return nil, err
	}
	var list []Finding
	waiting, oldest := 0, 0.0
	for _, d := range rows {
		if d.Jobs > 0 {
			waiting++
			oldest = max(oldest, d.Age)
		}
		if len(d.Spent) > 0 {
			list = append(list, d.judgeSpent())
		}
		known := slices.ContainsFunc(strangers, func(s struct{ Queue string }) bool { return s.Queue == d.Queue })
		if f := d.judge(staff, known); f.Verdict != OK {
			list = append(list, f)
		}
	}
	const most = 20
	if len(list) > most {
		slices.SortStableFunc(list, func(a, b Finding) int { return strings.Compare(string(a.Verdict), string(b.Verdict)) }) // fail before warn
		list = list[:most]
	}
	switch {
	case len(list) > 0:
	case waiting == 0:
		list = append(list, ok(nil, "no job is due"))
	default:
		list = append(list, ok(figures{"queues": waiting, "oldest_seconds": oldest}, "with due jobs: %d, the oldest due for %s", waiting, span(oldest)))
	}
	return list, nil
}

// judgeSpent names jobs whose fence, which somebody gave them by hand, is at the
// end of its range: no claim of them could be told from the next.
func (d demand) judgeSpent() Finding {
	return but(Fail, figures{"queue": d.Queue, "spent": d.Spent},
		fmt.Sprintf("queue %s: no worker takes job %s, inserted with a fence that leaves none for a claim", d.Queue, strings.Join(d.Spent, ", ")),
		"fencepost cancel "+strings.Join(d.Spent, " ")+", and enqueue it again without a fence of its own")
}

// judge says what is wrong with a queue that has jobs, due or not. A stranger
// works it and has no row.
func (d demand) judge(staff []worker, stranger bool) Finding {
	var alive []worker
	untold := 0
	for _, w := range staff {
		if w.may() && w.works(d.Queue) {
			alive = append(alive, w)
			if w.Live == nil {
				untold++
			}
		}
	}
	hire := "start a worker for it: fencepost work --exec COMMAND --queue " + word(d.Queue) + ", or a service with it in Config.Queues"
	if d.Jobs == 0 {
		if d.Next == nil || d.Paused != nil || len(alive) > 0 || stranger {
			return Finding{Verdict: OK}
		}
		return but(Warn, figures{"queue": d.Queue, "next_seconds": *d.Next},
			fmt.Sprintf("queue %s: the next job is due in %s, and no live worker serves it", d.Queue, span(*d.Next)), hire)
	}
	var idle []string // kinds that nobody can run
	for _, kind := range d.Kinds {
		if !slices.ContainsFunc(alive, func(w worker) bool { return w.can(kind) }) {
			idle = append(idle, kind)
		}
	}
	jobs := fmt.Sprint(d.Jobs)
	if d.Jobs >= 100 {
		jobs = "at least " + jobs // of a priority no more were looked at
	}
	f := figures{"queue": d.Queue, "due": d.Jobs, "oldest_seconds": d.Age, "workers": len(alive), "workers_untold": untold}
	waits := fmt.Sprintf("queue %s: %s due, the oldest for %s", d.Queue, jobs, span(d.Age))
	verdict := Warn
	if d.Age > time.Minute.Seconds() {
		verdict = Fail
	}
	switch {
	case d.Paused != nil:
		f["paused_seconds"] = *d.Paused
		return but(Warn, f, fmt.Sprintf("%s, and it has been paused for %s", waits, span(*d.Paused)), "fencepost queue resume "+word(d.Queue))
	case len(alive) == 0 && !stranger:
		return but(verdict, f, waits+", and no live worker serves it", hire)
	case len(idle) > 0 && !stranger:
		f["kinds"] = idle
		return but(verdict, f, fmt.Sprintf("%s, and no live worker has a handler for kind %s", waits, strings.Join(idle, ", ")),
			"start a worker that handles it, or cancel the jobs if the kind is no longer in use")
	case d.Age > time.Minute.Seconds():
		message := fmt.Sprintf("%s, and live workers: %d", waits, len(alive))
		if untold > 0 {
			message += fmt.Sprintf(", of which it cannot be told for %d", untold)
		}
		return but(Warn, f, message, "give it more slots or workers; see whether handlers hang: fencepost list --status running --queue "+word(d.Queue))
	default:
		return Finding{Verdict: OK}
	}
}
