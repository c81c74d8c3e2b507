package dispatcher_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/dispatcher"
)

// table is a jobs table in memory: fenced, with leases that run out and are
// then free for anybody to claim. Several dispatchers may share one.
type table struct {
	mu     sync.Mutex
	lease  time.Duration
	jobs   map[int64]*job
	live   []int64 // in the order of their insertion
	lastID int64
	fence  int64
	log    []claim.Outcome         // every outcome that was stored
	lost   []claim.Outcome         // every outcome that was refused
	claims int                     // statements
	open   map[int64][]claim.Lease // what was claimed together, by Row.Claim
	ended  int                     // jobs

	ring     func(queue string) // called when a job is ready again; may be nil
	progress chan struct{}      // room for one: a job has ended
}

type job struct {
	row   claim.Row
	until time.Time // of the lease; zero: not claimed
	dueAt time.Time
	ended claim.Verb // "": not yet
	busy  int        // how often its row is found locked
}

func newTable(lease time.Duration) *table {
	return &table{lease: lease, jobs: make(map[int64]*job), open: make(map[int64][]claim.Lease), progress: make(chan struct{}, 1)}
}

// end counts a job that has ended. The table is locked.
func (tb *table) end() {
	tb.ended++
	select {
	case tb.progress <- struct{}{}:
	default:
	}
}

func (tb *table) ends() int {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.ended
}

// insert adds n jobs that are due and returns the first one's id.
func (tb *table) insert(queue, kind string, n int) (first int64) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for range n {
		tb.lastID++
		tb.jobs[tb.lastID] = &job{row: claim.Row{ID: tb.lastID, Queue: queue, Kind: kind}}
		tb.live = append(tb.live, tb.lastID)
	}
	return tb.lastID - int64(n) + 1
}

func (tb *table) finish(outcomes []claim.Outcome) (results []claim.Result) {
	var rings []string
	tb.mu.Lock()
	for _, o := range outcomes {
		j := tb.jobs[o.ID]
		switch {
		case j == nil || j.row.Fence != o.Fence || j.until.IsZero():
			tb.lost = append(tb.lost, o)
			results = append(results, claim.Lost)
		case j.busy > 0:
			j.busy--
			results = append(results, claim.Busy)
		default:
			tb.log = append(tb.log, o)
			results = append(results, claim.Stored)
			j.until = time.Time{}
			switch o.Verb {
			case claim.Done, claim.Dead, claim.Cancelled:
				j.ended = o.Verb
				tb.end()
				continue
			case claim.Return, claim.Snooze:
				j.row.Attempt--
			}
			rings = append(rings, j.row.Queue)
			j.dueAt = time.Now().Add(o.Delay)
		}
	}
	for _, o := range outcomes {
		if o.Closes != 0 && tb.isOver(o.Closes) {
			delete(tb.open, o.Closes)
		}
	}
	tb.mu.Unlock()
	if tb.ring != nil {
		for _, queue := range rings {
			tb.ring(queue)
		}
	}
	return results
}

// isOver says that nothing of a claim runs. The table is locked.
func (tb *table) isOver(number int64) bool {
	return !slices.ContainsFunc(tb.open[number], func(l claim.Lease) bool {
		j := tb.jobs[l.ID]
		return j != nil && j.row.Fence == l.Fence && !j.until.IsZero()
	})
}

// unclosed returns the claims of which nothing runs, and which are open still.
func (tb *table) unclosed() (numbers []int64) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for number := range tb.open {
		if tb.isOver(number) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// shared adds the claims that both of these have an outcome of.
func (tb *table) shared(to map[int64]bool, some, others []claim.Outcome) map[int64]bool {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if to == nil {
		to = make(map[int64]bool)
	}
	number := func(o claim.Outcome) int64 {
		for n, leases := range tb.open {
			if slices.Contains(leases, o.Lease) {
				return n
			}
		}
		return 0
	}
	mine := make(map[int64]bool)
	for _, o := range some {
		mine[number(o)] = true
	}
	for _, o := range others {
		if n := number(o); mine[n] {
			to[n] = true
		}
	}
	return to
}

func (tb *table) claim(w dispatcher.Want) (c claim.Claimed) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.claims++
	now := time.Now()
	tb.live = slices.DeleteFunc(tb.live, func(id int64) bool { return tb.jobs[id].ended != "" })
	for _, id := range tb.live {
		j := tb.jobs[id]
		held := !j.until.IsZero() && now.Before(j.until)
		if j.row.Queue != w.Queue || held {
			continue
		}
		if wait := j.dueAt.Sub(now); wait > 0 || len(c.Rows) == w.Limit {
			if !c.HasNext || wait < c.Next {
				c.Next, c.HasNext = wait, true
			}
			continue
		}
		tb.fence++
		j.row.Fence, j.until = tb.fence, now.Add(tb.lease)
		j.row.Attempt++
		j.row.Claim = int64(tb.claims)
		tb.open[j.row.Claim] = append(tb.open[j.row.Claim], j.row.Lease())
		c.Rows = append(c.Rows, j.row)
	}
	return c
}

// steal makes the job somebody else's.
func (tb *table) steal(id int64) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.fence++
	tb.jobs[id].row.Fence, tb.jobs[id].until = tb.fence, time.Now().Add(time.Hour)
}

// cancel is an operator's doing.
func (tb *table) cancel(id int64) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	j := tb.jobs[id]
	tb.fence++
	j.row.Fence, j.until, j.ended = j.row.Fence+1, time.Time{}, claim.Cancelled
	tb.end()
}

// remove is a DELETE of the row.
func (tb *table) remove(id int64) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	delete(tb.jobs, id)
	tb.live = slices.DeleteFunc(tb.live, func(live int64) bool { return live == id })
}

func (tb *table) verbs(id int64) (verbs []claim.Verb) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for _, o := range tb.log {
		if o.ID == id {
			verbs = append(verbs, o.Verb)
		}
	}
	return verbs
}

// held is how many leases have not run out.
func (tb *table) held() (n int) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for _, j := range tb.jobs {
		if time.Now().Before(j.until) {
			n++
		}
	}
	return n
}

func (tb *table) claimed() int {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.claims
}

func (tb *table) stored() []claim.Outcome {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return slices.Clone(tb.log)
}

// store is one process's way to a table. Each part may be replaced by one that
// fails, stalls or looks on; all changes are made before Run or within the
// hooks.
type store struct {
	*table
	onTrip   func(dispatcher.Trip) error
	onFinish func(context.Context, []claim.Outcome) error
	onClaim  func(context.Context, dispatcher.Want) error
	onExtend func(context.Context, []claim.Lease) error
	onCheck  func(context.Context, []claim.Lease) error
	onOpen   func(context.Context) error
	onClose  func()
	// afterClaim may change what a claim has brought.
	afterClaim func(*claim.Claimed)

	mu      sync.Mutex
	rests   int
	away    [2]*dispatcher.Trip // the trips under way
	besides int                 // trips that began while another was under way
	twice   []claim.Lease       // named in two of them at once
	split   map[int64]bool      // claims that were in two of them at once, as the dispatcher may see it
	back    [2]time.Time        // when the trip that was under way last was back
	before  [2]*dispatcher.Trip // which that was

	last [2]dispatcher.Haul // of each lane's goroutine alone
}

func (s *store) Exchange(ctx context.Context, trip dispatcher.Trip) (h dispatcher.Haul) {
	record := trip
	record.Outcomes = slices.Clone(trip.Outcomes) // that of the trip is used again
	s.board(&record)
	defer s.leave(&record)
	// The memory of the last haul is used again.
	last := &s.last[trip.Lane]
	for _, c := range last.Claimed {
		for i := range c.Rows {
			c.Rows[i] = claim.Row{ID: -1, Fence: -1, Kind: "somebody else's"}
		}
	}
	defer func() { *last = h }()
	if s.onTrip != nil {
		if err := s.onTrip(trip); err != nil && len(trip.Outcomes) > 0 {
			return dispatcher.Haul{FinishErr: err}
		} else if err != nil {
			return dispatcher.Haul{ClaimErr: err}
		}
	}
	if len(trip.Outcomes) > 0 {
		if s.onFinish != nil {
			if h.FinishErr = s.onFinish(ctx, trip.Outcomes); h.FinishErr != nil {
				return h
			}
		}
		h.Results = s.finish(trip.Outcomes)
	}
	for _, w := range trip.Wants {
		if s.onClaim != nil {
			if h.ClaimErr = s.onClaim(ctx, w); h.ClaimErr != nil {
				return h
			}
		}
		c := s.claim(w)
		if s.afterClaim != nil {
			s.afterClaim(&c)
		}
		h.Claimed = append(h.Claimed, c)
	}
	return h
}

func (s *store) Extend(ctx context.Context, leases []claim.Lease) (lost []claim.Loss, err error) {
	if s.onExtend != nil {
		if err := s.onExtend(ctx, leases); err != nil {
			return nil, err
		}
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for _, l := range leases {
		if j := s.jobs[l.ID]; j != nil && j.row.Fence == l.Fence && !j.until.IsZero() {
			j.until = time.Now().Add(s.lease)
		}
	}
	return s.over(leases), nil
}

func (s *store) Check(ctx context.Context, leases []claim.Lease) (lost []claim.Loss, err error) {
	if s.onCheck != nil {
		if err := s.onCheck(ctx, leases); err != nil {
			return nil, err
		}
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.over(leases), nil
}

// over returns the claims that their holder has lost. The table is locked.
func (tb *table) over(leases []claim.Lease) (lost []claim.Loss) {
	for _, l := range leases {
		j := tb.jobs[l.ID]
		if j == nil {
			lost = append(lost, claim.Loss{Lease: l, Reason: claim.ReasonGone})
			continue
		}
		if j.row.Fence == l.Fence && !j.until.IsZero() {
			continue
		}
		reason := claim.ReasonTaken
		if j.ended == claim.Cancelled && j.row.Fence == l.Fence+1 {
			reason = claim.ReasonCancelled
		}
		lost = append(lost, claim.Loss{Lease: l, Reason: reason})
	}
	return lost
}

func (s *store) board(trip *dispatcher.Trip) {
	s.mu.Lock()
	defer s.mu.Unlock()
	beside := s.away[1-trip.Lane]
	if beside == nil && time.Since(s.back[1-trip.Lane]) < 50*time.Millisecond {
		beside = s.before[1-trip.Lane] // this one may have left before that was known to be back
	}
	if beside != nil {
		s.split = s.table.shared(s.split, beside.Outcomes, trip.Outcomes)
	}
	if beside := s.away[1-trip.Lane]; beside != nil {
		s.besides++
		for _, o := range trip.Outcomes {
			if slices.ContainsFunc(beside.Outcomes, func(b claim.Outcome) bool { return b.Lease == o.Lease }) {
				s.twice = append(s.twice, o.Lease)
			}
		}
	}
	s.away[trip.Lane] = trip
}

func (s *store) leave(trip *dispatcher.Trip) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away[trip.Lane], s.before[trip.Lane], s.back[trip.Lane] = nil, trip, time.Now()
}

// beside is how many trips went beside another, and which leases were in both.
func (s *store) beside() (trips int, twice []claim.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.besides, s.twice
}

func (s *store) OpenSecond(ctx context.Context) error {
	if s.onOpen != nil {
		return s.onOpen(ctx)
	}
	return nil
}

func (s *store) CloseSecond() {
	if s.onClose != nil {
		s.onClose()
	}
}

func (s *store) Rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rests++
}

func (s *store) term() time.Duration { return s.lease }

func (s *store) rested() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rests
}

// worker is a dispatcher under test, with its Run.
type worker struct {
	*dispatcher.Dispatcher
	t      testing.TB
	cancel context.CancelFunc
	result chan error
	logs   *logs
}

const lease = 12 * time.Second

// fake is a store, or one that changes a little of it.
type fake interface {
	dispatcher.Store
	term() time.Duration
}

// start runs a dispatcher on the store with two slots in queue "q", unless cfg
// says otherwise. It is woken once.
func start(t testing.TB, s fake, cfg dispatcher.Config) *worker {
	ctx, cancel := context.WithCancel(t.Context())
	w := &worker{t: t, cancel: cancel, result: make(chan error, 1), logs: &logs{}}
	cfg.Store = s
	if cfg.Queues == nil {
		cfg.Queues = []dispatcher.Queue{{Name: "q", Slots: 2}}
	}
	if cfg.Delay == nil {
		cfg.Delay = func(int, error) time.Duration { return time.Hour }
	}
	cfg.Lease = s.term()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(w.logs, nil))
	}
	w.Dispatcher = dispatcher.New(cfg)
	w.WakeAll()
	go func() { w.result <- w.Run(ctx) }()
	return w
}

// stop ends the worker and returns what Run has returned, and when.
func (w *worker) stop() (took time.Duration, err error) {
	begin := time.Now()
	w.cancel()
	err = w.wait()
	return time.Since(begin), err
}

func (w *worker) wait() error {
	w.t.Helper()
	select {
	case err := <-w.result:
		return err
	case <-time.After(10 * time.Minute): // longer than any of these tests, by the test's clock
		w.t.Fatal("Run does not return")
		return nil
	}
}

// mustStop is stop for a worker that leaves nothing behind.
func (w *worker) mustStop() {
	w.t.Helper()
	if _, err := w.stop(); err != nil {
		w.t.Fatalf("Run: %v", err)
	}
}

// list is a slice for many goroutines.
type list[T any] struct {
	mu    sync.Mutex
	items []T
}

func (l *list[T]) add(item T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, item)
}

// take returns the items since it was last called.
func (l *list[T]) take() (items []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	items, l.items = l.items, nil
	return items
}

// logs collects log lines.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buf.Bytes(), []byte(text))
}
