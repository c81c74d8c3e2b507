package claim

import (
	"cmp"
	"sync"
	"time"
)

// Mark is a place in the order in which the jobs of one queue and priority are
// claimed. The zero Mark is before all jobs.
type Mark struct {
	RunAt time.Time
	ID    int64
}

func (m Mark) compare(o Mark) int {
	return cmp.Or(m.RunAt.Compare(o.RunAt), cmp.Compare(m.ID, o.ID))
}

// Start says where a claim begins: behind a Mark in each of the five
// priorities, −2 first. From the zero Start nothing is passed over.
type Start [5]Mark

// at is the place of a priority in a Start.
func at(priority int) int { return priority + 2 }

// columns are the marks as the statements take them.
func (s Start) columns() (runAts []time.Time, ids []int64) {
	runAts, ids = make([]time.Time, 0, len(s)), make([]int64, 0, len(s))
	for _, m := range s {
		runAts, ids = append(runAts, m.RunAt), append(ids, m.ID)
	}
	return runAts, ids
}

// below is that much run_at before the marks. Where nothing is passed over,
// nothing is.
func (s Start) below(slack time.Duration) Start {
	for i, m := range s {
		if m != (Mark{}) {
			s[i] = Mark{RunAt: m.RunAt.Add(-slack)}
		}
	}
	return s
}

const (
	// slack is how much later than others a transaction may commit and its jobs
	// still be found with those of the others.
	slack = 200 * time.Millisecond
	// slackEvery is after how many claims from the marks one begins a slack
	// below them. At every claim the slack would be what one pays.
	slackEvery = 20
	// crowd is how many jobs a claim brings in the thick of a backlog, where the next
	// passes over jobs that others may be claiming; but once in so long one passes over
	// none, since some of them may be nobody's.
	crowd      = 50
	touchEvery = 5 * time.Second
	// countEvery is for how many claims of that kind one tells what it costs.
	countEvery = 20

	// cheap is what a look may cost that is not rationed: without entries of
	// ended jobs in the index every claim is a look at all jobs.
	cheap = 500 * time.Microsecond
	// share is how much longer than a look takes it is until the next one: all
	// looks together take at most a fiftieth of the time.
	share = 50
	// longest is the most between two looks, whatever they cost; see Within.
	longest = 30 * time.Second
)

// depth is how far below its marks a claim looks.
type depth uint8

const (
	whole depth = iota // looks at all jobs
	some               // begins a slack below the marks
	none               // begins at the marks
)

// Look is how one claim looks for jobs. The zero Look is at all of them.
type Look struct {
	From      Start
	depth     depth
	falls     uint // of the queue's marks until then
	untouched bool // passes over what others may be claiming
	uncounted bool // does not tell what it has cost
}

// Marks decides where claims begin. A job that was taken stays in the index for
// as long as anybody's snapshot might see it as it was, and each claim from the
// beginning steps over all of those. So claims begin where the last one ended:
// at a low-water mark, above which lie the jobs that are ready.
//
// But not all do. Who commits late, hands a job back, or gives it an old run_at,
// leaves one below the mark; so a mark is a hint, never knowledge. Only a claim
// that looked at all jobs and came back short has seen that nothing is due. That
// look is rationed by what it costs, and a claim that came back short without it
// says when it may be taken: see Learn.
//
// Marks does no I/O and has no clock. It may be used by several goroutines.
type Marks struct {
	mu     sync.Mutex
	queues map[string]*marked
	within time.Duration
}

// marked is what is known of one queue.
type marked struct {
	marks Start
	falls uint      // how often a mark has gone down, or all were forgotten
	short bool      // the last claim came back short
	thick int       // large claims that did not, since the last that did
	touch time.Time // when all jobs were last looked at, and none was passed over
	plain time.Time // until then no claim passes over any, since one came back short for it
	since int       // claims in a row that began at the marks
	some  ration    // of looks a slack below the marks
	whole ration    // of looks at all jobs
}

// ration is what the last look has cost, by which the next one is allowed.
type ration struct {
	ended time.Time
	cost  time.Duration
}

// took notes a look. What it costs grows with each job that ends, so it doubles
// at most from one look to the next: more than that is a server that was busy
// with something else, and no reason to wait.
func (r *ration) took(now time.Time, cost time.Duration) {
	*r = ration{now, min(cost, 2*r.cost+cheap)}
}

// wait is how long no such look may be taken, of which two are at most so far
// apart.
func (r ration) wait(now time.Time, most time.Duration) time.Duration {
	if r.cost <= cheap {
		return 0
	}
	return max(r.ended.Add(min(share*r.cost, most)).Sub(now), 0)
}

// NewMarks returns Marks that know of no queue: the first claim of each looks at
// all jobs.
func NewMarks() *Marks { return &Marks{queues: make(map[string]*marked), within: longest} }

// Within bounds the time between two looks at all jobs while claims go on: less
// than 30 s if the process polls more often, so that it finds by polling what it
// always would.
func (m *Marks) Within(poll time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.within = min(poll, longest)
}

func (m *Marks) of(queue string) *marked {
	q := m.queues[queue]
	if q == nil {
		q = &marked{}
		m.queues[queue] = q
	}
	return q
}

// Look returns how the next claim of the queue is to look. Its answer goes to
// Learn; if there is none, call Forget.
func (m *Marks) Look(queue string, now time.Time) Look {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.of(queue)
	l := Look{falls: q.falls, untouched: q.thick > 0 && !now.Before(q.plain), uncounted: q.thick%countEvery > 0}
	switch {
	case q.marks == Start{}, looksBelow() && q.whole.wait(now, m.within) == 0:
		l.untouched = l.untouched && now.Sub(q.touch) < touchEvery
		l.uncounted = l.uncounted && l.untouched && q.whole.cost <= cheap
	case looksBelow() && (q.short || q.since >= slackEvery) && q.some.wait(now, m.within) == 0:
		l.From, l.depth, l.uncounted = q.marks.below(slack), some, false
	default:
		l.From, l.depth = q.marks, none
		l.uncounted = l.uncounted && l.untouched
	}
	return l
}

// Learn takes the answer to a claim that is committed. What it returns is zero,
// unless the claim came back short and has not looked at all jobs: then it is
// when to claim again, even if nothing happens before. Whoever does so finds
// what lies below the marks within 30 s, or what Within says.
func (m *Marks) Learn(r Request, now time.Time, c Claimed) (again time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.of(r.Queue)
	q.short = len(c.Rows) < r.Limit
	switch {
	case q.short:
		q.thick = 0
		if r.Look.untouched {
			q.plain = now.Add(touchEvery)
		}
	case len(c.Rows) >= crowd:
		q.thick++
	}
	q.move(c.Rows, r.Look)
	cost := 2 * c.Walk // the claim itself has taken the same way
	if r.tells() {
		cost += c.Walk // and so has what it tells
	}
	switch r.Look.depth {
	case whole:
		q.since = 0
		if !r.Look.uncounted {
			q.whole.took(now, cost)
		}
		if !r.Look.untouched {
			q.touch = now
			return 0
		}
	case some:
		q.since = 0
		q.some.took(now, cost)
		again = q.whole.wait(now, m.within)
	case none:
		q.since++
		again = min(q.some.wait(now, m.within), q.whole.wait(now, m.within))
	}
	if !q.short || !looksBelow() {
		return 0
	}
	return max(again, 1)
}

// move sets the marks to the last of the rows in each priority.
//
// Two claims may be made at once. Each passes over what the other holds; and if
// one reaches its limit below the marks, there may be more that the other has never
// looked at. So marks that have fallen since a claim was sent, because the other
// one failed or was there, are not moved by it.
func (q *marked) move(rows []Row, l Look) {
	if l.falls != q.falls {
		return
	}
	for i, r := range rows {
		mark := &q.marks[at(r.Priority)]
		taken := Mark{r.RunAt, r.ID}
		switch {
		case taken.compare(*mark) > 0:
			*mark = taken
		// Not down to a job that was found below: all before the mark was taken
		// or looked at. But where the limit was reached there may be more. (Not in
		// a claim that began at the marks: they have moved on meanwhile.)
		case i == len(rows)-1 && !q.short && l.depth != none && taken != *mark:
			*mark = taken
			q.falls++
		}
	}
}

// Forget makes the next claim of the queue look at all jobs, whatever those bring
// that are under way: because a claim failed, or nobody knows what became of it, or
// the database's clock stepped.
func (m *Marks) Forget(queue string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.of(queue)
	q.marks, q.thick, q.touch = Start{}, 0, time.Time{}
	q.falls++
}
