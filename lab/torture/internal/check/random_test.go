package check

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// play is a run in memory, tick by tick: workers that die, freeze and are cut
// off, outcomes of which nobody knows, an operator, a zombie and a failover. All
// do what they should, unless a guard is taken away.
type play struct {
	*world
	r       *rand.Rand
	workers []*actor
	seen    []grip // by the zombie
	tokens  int
	backlog database // a moment ago, for a failover
	lines   int
	rate    float64

	drainStops bool // leases are not extended in a drain
	byID       bool // the reaper takes what is not over
	ackFirst   bool // done is acknowledged before it is stored
	deafStart  bool // what comes while nobody listens is not found
	overClaim  bool // a claim brings more than was asked for
	noRoom     bool // handlers are started whatever slots there are
	unnamed    bool // some claims write no row

	named map[grip]bool // claims that have written one
}

type grip struct{ id, fence int64 }

// actor is a worker process in one of its lives.
type actor struct {
	base    string
	life    int
	hands   map[int64]*hand
	dead    int64 // when it died; 0: it lives
	frozen  int64 // until
	cut     int64 // until
	drains  int64 // until
	settled int64 // from then on it claims
	asked   int64 // when it last did, and got nothing
	paused  bool
	isCut   bool
}

// hand is a job that a worker has in hand.
type hand struct {
	queue                 string
	fence, ends, extended int64
	verb                  string
	delay                 time.Duration
	ended                 bool
	told                  bool // that it has lost it
}

func (a *actor) name() string { return fmt.Sprintf("%s.%d", a.base, a.life) }

func (p *play) awake(a *actor) bool { return a.dead == 0 && a.frozen <= p.now }

const second = int64(time.Second)

func newPlay(seed uint64, rate float64) *play {
	p := &play{world: newWorld(), r: rand.New(rand.NewPCG(seed, 1)), rate: rate, named: make(map[grip]bool)}
	for i := range 4 {
		a := &actor{base: fmt.Sprintf("worker-%d", i+1)}
		p.workers = append(p.workers, a)
		p.born(a)
	}
	p.wait(4 * time.Second)
	return p
}

func (p *play) born(a *actor) {
	a.life++
	a.hands, a.dead, a.frozen, a.drains = make(map[int64]*hand), 0, 0, 0
	a.paused = false
	a.settled = p.now + second
	p.process(a.name(), script.Worker)
	p.idle(a.name())
}

// sample looks at the tables.
func (p *play) sample() {
	s := Sample{At: p.dbNow()}
	for id, r := range p.db.live {
		if r.Status != "running" {
			continue
		}
		s.Running++
		if !p.named[grip{id, r.Fence}] {
			s.Unnamed = append(s.Unnamed, Unnamed{Job: id, Fence: r.Fence})
		}
	}
	p.world.seen = append(p.world.seen, s)
}

func (p *play) chance(perSecond float64) bool { return p.r.Float64() < perSecond*0.02 }

// run plays for so long, and then until the queue has drained.
func (p *play) run(d time.Duration) {
	end := p.now + d.Nanoseconds()
	failover := p.now + d.Nanoseconds()*6/10 + second*2/5
	var roughUntil int64
	over := func() {}
	for {
		load := p.now < end
		if !load && p.now > end+90*second || !load && len(p.db.live) == 0 {
			break
		}
		if load && p.now%(second/2) < second/40 {
			p.backlog, p.lines = p.save()
		}
		if failover != 0 && p.now > failover && p.lines > 0 {
			failover = 0
			over = p.fault("failover")
			p.failover(p.backlog, p.lines)
			roughUntil = p.now + second
		}
		if roughUntil != 0 {
			if p.now < roughUntil {
				p.wait(20 * time.Millisecond)
				continue
			}
			roughUntil = 0
			over()
		}
		tick := p.now + second/50
		if load {
			p.produce()
			p.interfere()
		}
		p.trouble(load)
		for _, a := range p.workers {
			if p.awake(a) && a.cut <= p.now {
				p.work(a)
			}
		}
		p.reaper()
		p.sample()
		p.now = max(p.now, tick)
	}
	p.event("harness", history.Event{Op: history.Ready})
}

func (p *play) produce() {
	for n := p.r.Float64() * 2 * p.rate * 0.02; n > p.r.Float64(); n-- {
		p.tokens++
		phase, commits := history.OK, true
		switch p.r.IntN(20) {
		case 0:
			phase, commits = history.Failed, false
		case 1:
			phase, commits = history.Unknown, p.r.IntN(2) == 0
		}
		delay := time.Duration(0)
		if p.r.IntN(10) == 0 {
			delay = time.Duration(p.r.IntN(2000)) * time.Millisecond
		}
		queue := []string{script.Main, script.Main, script.Main, script.Side, script.Bin}[p.r.IntN(5)]
		p.enqueueAs(fmt.Sprintf("t%d", p.tokens), queue, delay, phase, commits)
	}
}

// interfere is the zombie and the operator.
func (p *play) interfere() {
	if len(p.seen) > 0 && p.chance(10) {
		g := p.seen[p.r.IntN(len(p.seen))]
		r, live := p.db.live[g.id]
		if e, known := p.db.ended[g.id]; (!live || r.Fence > g.fence) && !(known && e.Fence == g.fence) {
			p.replay(g.id, g.fence, []string{"done", "retry", "snooze", "return", "dead"}[p.r.IntN(5)])
			p.extendOf("zombie-1.1", history.Event{Op: history.Extend, Refs: []history.Ref{{Job: g.id, Fence: g.fence}}}, g.id, g.fence)
		}
	}
	if !p.chance(2) {
		return
	}
	verb := []string{"cancel", "release", "retry", "delete"}[p.r.IntN(4)]
	rows := p.db.live
	if verb == "retry" {
		rows = p.db.ended
	}
	if id := p.any(rows); id != 0 {
		p.operate(verb, id)
	}
}

func (p *play) any(rows map[int64]row) int64 {
	ids := slices.Sorted(maps.Keys(rows))
	if len(ids) == 0 {
		return 0
	}
	return ids[p.r.IntN(len(ids))]
}

// trouble is what becomes of processes.
func (p *play) trouble(load bool) {
	for i, a := range p.workers {
		switch {
		case a.dead != 0:
			if p.now > a.dead+second/2 {
				p.born(a)
			}
		case a.paused && a.frozen <= p.now:
			a.paused = false
			a.settled = p.now
			p.harness(history.Resume, a.name())
		case a.isCut && a.cut <= p.now:
			a.isCut = false
			a.settled = p.now + second/10
			p.harness(history.Mend, a.name())
		case a.drains != 0:
			p.drained(a)
		case !load || i == 0 || a.isCut || a.paused: // one is always there
		case p.chance(0.05):
			p.kill(a.name())
			a.dead = p.now
		case p.chance(0.03):
			a.paused, a.frozen = true, p.now+testLimits.Lease.Nanoseconds()*[]int64{6, 25}[p.r.IntN(2)]/10
			p.harness(history.Pause, a.name())
		case p.chance(0.03):
			a.isCut, a.cut = true, p.now+int64(p.r.IntN(6))*second
			p.harness(history.Cut, a.name())
		case p.chance(0.03):
			p.harness(history.Term, a.name())
			a.drains = p.now + 20*second
		}
	}
}

// drained ends a process that was told to stop, once its hands are empty.
func (p *play) drained(a *actor) {
	if len(a.hands) > 0 || !p.awake(a) || a.cut > p.now {
		return
	}
	p.event(a.name(), history.Event{Op: history.Bye})
	p.harness(history.Exit, a.name())
	p.harness(history.Clean, a.name())
	a.dead = p.now
}

// work is one turn of a worker.
func (p *play) work(a *actor) {
	for _, id := range slices.Sorted(maps.Keys(a.hands)) {
		h := a.hands[id]
		if !h.ended && p.now >= h.ends {
			h.ended = true
			if h.verb == "done" && p.r.IntN(6) == 0 {
				p.complete(a.name(), id, h.fence)
			}
			p.stopFor(a.name(), id, h.fence, h.verb, h.delay)
		}
		if h.ended {
			p.settle(a, id, h)
			continue
		}
		if p.now-h.extended > testLimits.Lease.Nanoseconds()/3 && !h.told && !(p.drainStops && a.drains != 0) {
			h.extended = p.now
			p.extend(a.name(), id, h.fence)
			if ret := p.events[len(p.events)-1]; len(ret.Refs) > 0 {
				h.told, h.ends = true, p.now // its context ends
			}
		}
	}
	if a.drains == 0 && p.now >= a.settled {
		p.look(a)
	}
}

// settle sends an outcome, until it is answered.
func (p *play) settle(a *actor, id int64, h *hand) {
	if p.ackFirst && h.verb == "done" && p.r.IntN(4) == 0 {
		ref := history.Ref{Job: id, Fence: h.fence, Verb: "done", Result: "stored"}
		p.call(a.name(), history.Event{Op: history.Finish, Refs: []history.Ref{ref}}, func() (history.Phase, history.Event) {
			return history.OK, history.Event{Refs: []history.Ref{ref}}
		})
		p.wait(20 * time.Millisecond)
		p.begin()
		p.store(id, h.fence, "done", 0)
		delete(a.hands, id)
		return
	}
	switch p.r.IntN(15) {
	case 0:
		p.finishAs(a.name(), id, h.fence, h.verb, h.delay, history.Unknown, false)
	case 1:
		p.finishAs(a.name(), id, h.fence, h.verb, h.delay, history.Unknown, true)
	default:
		p.finish(a.name(), id, h.fence, h.verb, h.delay)
		delete(a.hands, id)
	}
}

// look claims what is due, as far as there are slots.
func (p *play) look(a *actor) {
	if p.deafStart && p.now%second < second/3 {
		return
	}
	for _, queue := range []string{script.Main, script.Side, script.Bin} {
		free := testLimits.Slots[queue]
		for _, h := range a.hands {
			if !h.ended && h.queue == queue {
				free--
			}
		}
		if p.noRoom {
			free = max(free, 1)
		}
		var due []row
		for _, r := range p.db.live {
			if r.Status == "ready" && r.queue == queue && !r.RunAt.After(p.dbNow()) && a.hands[r.id] == nil {
				due = append(due, r)
			}
		}
		slices.SortFunc(due, func(x, y row) int { return cmp.Or(x.RunAt.Compare(y.RunAt), cmp.Compare(x.id, y.id)) })
		if free > 0 && len(due) == 0 && queue == script.Main && p.now > a.asked+second {
			p.idle(a.name())
			a.asked = p.now
		}
		if free <= 0 || len(due) == 0 {
			continue
		}
		asked := free
		if p.overClaim && len(due) > 1 {
			asked = min(asked, len(due)-1)
		}
		p.claimAll(a, queue, asked, due[:min(len(due), free)])
	}
}

func (p *play) claimAll(a *actor, queue string, asked int, due []row) {
	worker := "w:" + a.name()
	e := history.Event{Op: history.Claim, Worker: worker, Asked: asked, Ref: history.Ref{Queue: queue}}
	answered := p.r.IntN(60) != 0
	p.call(a.name(), e, func() (history.Phase, history.Event) {
		p.begin()
		ret := e
		for _, r := range due {
			fence := p.take(worker, r.id)
			p.seen = append(p.seen, grip{r.id, fence})
			p.named[grip{r.id, fence}] = !p.unnamed || p.r.IntN(10) > 0
			ret.Refs = append(ret.Refs, history.Ref{Job: r.id, Fence: fence, Attempt: p.db.live[r.id].Attempts})
		}
		if !answered {
			return history.Unknown, e
		}
		return history.OK, ret
	})
	if !answered {
		return
	}
	for _, r := range due {
		fence := p.db.live[r.id].Fence
		h := &hand{queue: queue, fence: fence, extended: p.now, verb: "done", ends: p.now + int64(p.r.IntN(200))*1e6}
		switch p.r.IntN(12) {
		case 0:
			h.verb, h.delay = "retry", time.Duration(p.r.IntN(500))*time.Millisecond
		case 1:
			h.verb, h.delay = "snooze", time.Duration(p.r.IntN(500))*time.Millisecond
		case 2:
			h.ends = p.now + int64(p.r.IntN(12))*second
		case 3:
			h.verb = "dead"
		}
		a.hands[r.id] = h
		p.start(a.name(), r.id, fence)
	}
}

// reaper takes what is over, and what the dead have left.
func (p *play) reaper() {
	for _, id := range slices.Sorted(maps.Keys(p.db.live)) {
		r := p.db.live[id]
		if r.Status != "running" {
			continue
		}
		over := p.dbNow().After(r.Lease.Add(100 * time.Millisecond))
		if p.byID && p.r.IntN(2000) == 0 {
			over = true
		}
		if over || p.isGone(r.Worker) {
			p.reap(id)
		}
	}
}

// isGone says that a worker has been dead, or cut off, for long enough.
func (p *play) isGone(worker string) bool {
	for _, a := range p.workers {
		if worker == "w:"+a.name() {
			return a.dead != 0 && p.now > a.dead+3*second || a.isCut && p.now < a.cut && p.now > a.cut-2*second
		}
	}
	return true // of a former life
}

func played(seed uint64, d time.Duration, rate float64, wrong func(*play)) *play {
	p := newPlay(seed, rate)
	if wrong != nil {
		wrong(p)
	}
	p.run(d)
	return p
}

// A queue that does everything right is found right, whatever happens to it.
func TestRandomLegalRuns(t *testing.T) {
	for seed := range uint64(12) {
		p := played(seed, time.Minute, 15, nil)
		findings := Check(p.input())
		if got := violated(findings); got != nil {
			t.Errorf("seed %d: violates %v", seed, got)
			say(t, findings)
			if t.Failed() {
				break
			}
		}
		if seed == 0 {
			for _, f := range findings {
				t.Logf("%2d %-60s checked %6d %v", f.Invariant, f.Name, f.Checked, f.Parts)
				if f.Checked == 0 {
					t.Errorf("%d: nothing was checked", f.Invariant)
				}
			}
		}
	}
}

// Each guard that is taken away is missed, by the invariant that it is for.
func TestRandomRunsWithoutAGuard(t *testing.T) {
	for name, c := range map[string]struct {
		invariant int
		wrong     func(*play)
	}{
		"finish-fence":   {5, func(p *play) { p.finishFence = true }},
		"extend-fence":   {5, func(p *play) { p.extendFence = true }},
		"complete-fence": {5, func(p *play) { p.completeFence = true }},
		"reap-lock":      {8, func(p *play) { p.byID = true }},
		"claim-lock":     {12, func(p *play) { p.overClaim = true }},
		"claim-counts":   {7, func(p *play) { p.claimCounts = true }},
		"claim-row":      {17, func(p *play) { p.unnamed = true }},
		"clock-fence":    {4, func(p *play) { p.clockFence = true }},
		"drain-extends":  {8, func(p *play) { p.drainStops = true }},
		"stored-first":   {15, func(p *play) { p.ackFirst = true }},
		"slots":          {12, func(p *play) { p.noRoom = true }},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(8) {
				if slices.Contains(violated(Check(played(seed, time.Minute, 15, c.wrong).input())), c.invariant) {
					t.Logf("caught with seed %d", seed)
					return
				}
			}
			t.Errorf("invariant %d has not caught it", c.invariant)
		})
	}
}
