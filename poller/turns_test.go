package poller

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// crowd is a queue that n processes work, each of which knows all others and
// hears, under the clock of a test.
type crowd struct {
	t   *testing.T
	now time.Time
	all []*Turns
}

func newCrowd(t *testing.T, n int) *crowd {
	c := &crowd{t: t, now: time.Unix(1_700_000_000, 0)}
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = uint64(i)*1_000_003 + 17
	}
	for _, id := range ids {
		p := NewTurns(id, 42)
		p.Peers(ids)
		p.Hearing(true)
		c.all = append(c.all, p)
	}
	return c
}

// turns rings and returns after what time each claims; -1: not within a second.
func (c *crowd) turns(xid uint64) []time.Duration {
	c.t.Helper()
	after := make([]time.Duration, len(c.all))
	for i, p := range c.all {
		after[i] = -1
		if p.Heard(c.now, xid) {
			after[i] = 0
			continue
		}
		_, next := p.Step(c.now)
		if next.IsZero() || next.Sub(c.now) > time.Second {
			continue
		}
		if claim, _ := p.Step(next.Add(-1)); claim {
			c.t.Errorf("it claims before it says")
		}
		if claim, _ := p.Step(next); !claim {
			c.t.Errorf("it does not claim when it says")
		}
		after[i] = next.Sub(c.now)
	}
	c.now = c.now.Add(time.Second)
	return after
}

func sees(xids ...uint64) func(uint64) bool {
	return func(xid uint64) bool {
		for _, x := range xids {
			if x == xid {
				return true
			}
		}
		return false
	}
}

// Each bell has another first, who does not wait; the next comes 2 ms after him,
// and nobody waits for longer than 30 ms.
func TestTurnsAreTaken(t *testing.T) {
	for _, n := range []int{1, 2, 8, 40} {
		c := newCrowd(t, n)
		first := make(map[int]int)
		const bells = 400
		for xid := uint64(700); xid < 700+bells; xid++ {
			at := make(map[time.Duration]int)
			for i, after := range c.turns(xid) {
				at[after]++
				if after == 0 {
					first[i]++
				}
			}
			for rank := range min(n, 15) {
				if at[time.Duration(rank)*firstTurn] != 1 {
					t.Fatalf("%d processes claim at %v", n, at)
				}
			}
			if last := max(n-15, 0); at[lastTurn] != last {
				t.Fatalf("%d processes claim at %v: want %d at last", n, at, last)
			}
		}
		for i := range n {
			if fair := bells / n; first[i] < fair/4 || first[i] > 4*fair {
				t.Errorf("of %d processes one was first %d times of %d", n, first[i], bells)
			}
		}
	}
}

// In another queue somebody else is first.
func TestTurnsDependOnTheQueue(t *testing.T) {
	a, b := NewTurns(1, 10), NewTurns(1, 11)
	differ := 0
	for xid := range uint64(100) {
		for _, p := range []*Turns{a, b} {
			p.Peers([]uint64{1, 2})
		}
		if a.rank(xid) != b.rank(xid) {
			differ++
		}
	}
	if differ < 25 || differ > 75 {
		t.Errorf("%d of 100 ranks differ", differ)
	}
}

// waiter returns a process that is not the first for these transactions.
func waiter(t *testing.T, xids ...uint64) (p *Turns, now time.Time) {
	t.Helper()
	for me := range uint64(1000) {
		p := NewTurns(me, 42)
		p.Peers([]uint64{10_001, 10_002, 10_003})
		p.Hearing(true)
		first := false
		for _, xid := range xids {
			first = first || p.rank(xid) == 0
		}
		if !first {
			return p, time.Unix(1_700_000_000, 0)
		}
	}
	t.Fatal("somebody is first everywhere")
	return nil, time.Time{}
}

// Whether the news spare a claim: only if the transaction that has rung was seen
// by who tells, of each bell that is waited for.
func TestNewsSpareAClaim(t *testing.T) {
	const x, y = 500, 501
	for name, test := range map[string]struct {
		bells, seen   []uint64
		spared, claim bool
	}{
		"seen":                        {bells: []uint64{x}, seen: []uint64{x}, spared: true},
		"both seen":                   {bells: []uint64{x, y}, seen: []uint64{x, y}, spared: true},
		"not seen":                    {bells: []uint64{x}, seen: nil, claim: true},
		"another seen":                {bells: []uint64{x}, seen: []uint64{y}, claim: true},
		"one of two seen":             {bells: []uint64{x, y}, seen: []uint64{x}, claim: true},
		"the other of two":            {bells: []uint64{x, y}, seen: []uint64{y}, claim: true},
		"nobody knows who rang":       {bells: []uint64{0}, seen: []uint64{0, x}, claim: true},
		"one bell is of nobody":       {bells: []uint64{x, 0}, seen: []uint64{0, x}, claim: true},
		"nothing is waited for":       {seen: []uint64{x}},
		"many bells, one transaction": {bells: []uint64{x, x, x}, seen: []uint64{x}, spared: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, now := waiter(t, 0, x, y)
			for _, xid := range test.bells {
				if p.Heard(now, xid) {
					t.Fatal("it does not wait")
				}
			}
			if spared := p.Drained(now.Add(ms), 10_001, sees(test.seen...)); spared != test.spared {
				t.Errorf("spared: %v, want %v", spared, test.spared)
			}
			if claim, next := p.Step(now.Add(lastTurn)); claim != test.claim || !next.IsZero() {
				t.Errorf("it claims within %v: %v, want %v; asks again at %v", lastTurn, claim, test.claim, next)
			}
		})
	}
}

// A bell that comes after the news is not spared by them, even if they have seen
// its transaction: they say nothing of what is heard later.
func TestNewsSpareNoLaterBell(t *testing.T) {
	const x = 500
	p, now := waiter(t, x)
	p.Drained(now, 10_001, sees(x))
	if p.Heard(now.Add(ms), x) {
		t.Fatal("it does not wait")
	}
	if claim, _ := p.Step(now.Add(ms + lastTurn)); !claim {
		t.Error("a bell that came after the news led to no claim")
	}
}

// One claim is enough for all bells that were heard before it, and only for
// those.
func TestOneClaimForAllBellsBeforeIt(t *testing.T) {
	p, now := waiter(t, 1, 2, 3)
	p.Heard(now, 1)
	p.Heard(now.Add(ms), 2)
	_, next := p.Step(now.Add(ms))
	if claim, again := p.Step(next); !claim || !again.IsZero() {
		t.Errorf("claims %v, asks again at %v", claim, again)
	}
	p.Heard(next, 3)
	if claim, _ := p.Step(next.Add(lastTurn)); !claim {
		t.Error("the third bell led to no claim")
	}
	if claim, again := p.Step(next.Add(time.Hour)); claim || !again.IsZero() {
		t.Error("there was another claim without a bell")
	}
}

// Who does not hear does not wait, and what was waited for is claimed when
// hearing ends: who hears of it later hears it from another server, maybe.
func TestTheDeafDoNotWait(t *testing.T) {
	const x = 500
	p, now := waiter(t, x)
	p.Hearing(false)
	if !p.Heard(now, x) {
		t.Error("a deaf process waits")
	}
	p.Hearing(true)
	if p.Heard(now, x) {
		t.Fatal("it does not wait")
	}
	if !p.Hearing(false) {
		t.Error("nothing is claimed when hearing ends")
	}
	p.Hearing(true)
	if p.Drained(now, 10_001, sees(x)) {
		t.Error("news spare what was rung on another connection")
	}
	if p.Hearing(false) {
		t.Error("a claim is called for once more")
	}
}

// Whether a claim tells the others.
func TestTell(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(p *Turns, now time.Time) (then time.Time)
		want bool
	}{
		"after a bell": {func(p *Turns, now time.Time) time.Time {
			p.Heard(now, 7)
			return now.Add(20 * ms)
		}, true},
		"without a bell": {func(_ *Turns, now time.Time) time.Time { return now }, false},
		"long after it": {func(p *Turns, now time.Time) time.Time {
			p.Heard(now, 7)
			p.Step(now.Add(lastTurn))
			return now.Add(recent + ms)
		}, false},
		"alone": {func(p *Turns, now time.Time) time.Time {
			p.Peers(nil)
			p.Heard(now, 7)
			return now
		}, false},
		"when somebody else has told": {func(p *Turns, now time.Time) time.Time {
			p.Heard(now, 7)
			p.Drained(now, 10_001, sees(7))
			return now
		}, false},
		"when bells are many": {func(p *Turns, now time.Time) time.Time {
			for i := range calm + 1 {
				now = now.Add(5 * ms)
				p.Heard(now, uint64(100+i))
			}
			return now
		}, false},
		"when they were many": {func(p *Turns, now time.Time) time.Time {
			for i := range 10 * calm {
				p.Heard(now, uint64(100+i))
			}
			now = now.Add(time.Second)
			p.Heard(now, 99)
			return now
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, now := waiter(t, 7)
			if got := p.Tell(test.do(p, now)); got != test.want {
				t.Errorf("tells: %v, want %v", got, test.want)
			}
		})
	}
}

// Who tells is known from then on, until the next list.
func TestWhoTellsIsKnown(t *testing.T) {
	p := NewTurns(1, 42)
	p.Hearing(true)
	now := time.Unix(1_700_000_000, 0)
	first := func() (n int) {
		for xid := range uint64(100) {
			if p.rank(xid) == 0 {
				n++
			}
		}
		return n
	}
	if first() != 100 {
		t.Error("it is not always first though it knows nobody")
	}
	p.Drained(now, 2, sees())
	p.Drained(now, 2, sees())
	p.Drained(now, 1, sees()) // that was we
	if n := first(); n < 30 || n > 70 {
		t.Errorf("of two it is first %d times of 100", n)
	}
	p.Peers([]uint64{1})
	if first() != 100 {
		t.Error("it waits for somebody who is gone")
	}
}

// Where news are slow, turns are further apart, so that they come in time; but
// nobody ever waits for longer than 30 ms.
func TestTurnsAreAsFarApartAsNewsNeed(t *testing.T) {
	for news, want := range map[time.Duration]time.Duration{
		100 * time.Microsecond: firstTurn,
		3 * ms:                 6 * ms,
		20 * ms:                longestTurn,
		time.Hour:              longestTurn,
	} {
		p, now := waiter(t)
		for xid := uint64(1); xid <= 100; xid++ {
			p.Heard(now, xid)
			p.Drained(now.Add(news), 10_001, sees(xid))
			now = now.Add(news)
		}
		if got := p.pause(); got < want*9/10 || got > want {
			t.Errorf("news take %v: turns are %v apart, want %v", news, got, want)
		}
		for range 100 {
			p.meet(uint64(now.UnixNano()) + uint64(len(p.peers)))
		}
		for xid := uint64(200); xid < 300; xid++ {
			now = now.Add(time.Second)
			p.Heard(now, xid)
			if _, next := p.Step(now); next.Sub(now) > lastTurn {
				t.Fatalf("its turn comes after %v", next.Sub(now))
			}
			p.Step(now.Add(lastTurn))
		}
	}
}

// However many bells there are, what is kept of them is not much.
func TestBellsDoNotPileUp(t *testing.T) {
	p, now := waiter(t)
	for xid := range uint64(10_000) {
		now = now.Add(100 * time.Microsecond)
		p.Heard(now, xid)
		p.Step(now)
	}
	if n := len(p.bells); n > 1100 {
		t.Errorf("%d bells are kept", n)
	}
}
