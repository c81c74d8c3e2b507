package poller

import (
	"slices"
	"time"
)

const (
	// firstTurn is the least time between the turns of two processes, and
	// longestTurn the most.
	firstTurn   = 2 * time.Millisecond
	longestTurn = 10 * time.Millisecond
	// lastTurn is when everybody claims who has heard of nothing: nobody may
	// depend on others for longer.
	lastTurn = 30 * time.Millisecond

	// recent is how long after a bell others may wait for news of it: longer than
	// lastTurn, since they may have heard of it later.
	recent = 100 * time.Millisecond
	// calm is how many bells a second make the news worth it. Each is a
	// notification, which is what bells are silenced for when there are many.
	calm = 50
	// mostPeers bounds how many others are ranked.
	mostPeers = 1000
)

// Turns decides for one queue when this process claims because of a bell that
// all processes have heard. If all claimed at once, all but one would find
// nothing. So they take turns, in an order that each knows by itself, since it
// depends on the bell and on who they are; and who has taken the last job that
// was due says so, and then the others need not claim at all.
//
// Every bell leads to a claim within 30 ms, whatever others do, unless one of
// them has said that he has seen the jobs of just this bell, and that nothing
// that is due is left.
//
// It has no goroutine, no clock and does no I/O: every method is told what time
// it is.
type Turns struct {
	me      uint64   // stands for this process
	queue   uint64   // and this for the queue, so that not the same is first in all
	peers   []uint64 // the others
	hearing bool
	bells   []rung // the recent ones, oldest first

	usual time.Duration // from a bell to the news that its jobs are taken

	began time.Time // of the second in which bells are counted
	count int
}

// rung is a bell that was heard.
type rung struct {
	xid  uint64
	at   time.Time
	turn time.Time // when to claim; zero: that is done
}

// NewTurns returns the Turns of a queue for a process that knows no other and
// does not hear yet.
func NewTurns(me, queue uint64) *Turns { return &Turns{me: me, queue: queue} }

// Peers says who else works the queue and can run the same kinds.
func (t *Turns) Peers(peers []uint64) {
	t.peers = t.peers[:0]
	for _, p := range peers {
		t.meet(p)
	}
}

func (t *Turns) meet(peer uint64) {
	if peer != t.me && len(t.peers) < mostPeers && !slices.Contains(t.peers, peer) {
		t.peers = append(t.peers, peer)
	}
}

// Hearing says whether notifications are heard. It returns whether to claim now:
// who does not hear has nothing to wait for. Bells of one connection are so
// never taken for seen by what is heard on the next, perhaps of another server.
func (t *Turns) Hearing(hearing bool) (claim bool) {
	t.hearing = hearing
	if hearing {
		return false
	}
	claim = t.waiting()
	t.bells = t.bells[:0]
	return claim
}

func (t *Turns) waiting() bool {
	return slices.ContainsFunc(t.bells, func(b rung) bool { return !b.turn.IsZero() })
}

// Heard takes a bell for jobs that are due, and the transaction that has rung;
// 0: it is not known. It returns whether to claim now; otherwise Step says when.
func (t *Turns) Heard(now time.Time, xid uint64) (claim bool) {
	if !t.hearing {
		return true
	}
	if now.Sub(t.began) >= time.Second {
		t.began, t.count = now, 0
	}
	t.count++
	t.forget(now)
	wait := min(time.Duration(t.rank(xid))*t.pause(), lastTurn)
	t.bells = append(t.bells, rung{xid, now, now.Add(wait)})
	claim, _ = t.Step(now)
	return claim
}

// Step returns whether to claim now, and when to ask again unless something
// happens before; zero: never. One claim is enough for all bells before it.
func (t *Turns) Step(now time.Time) (claim bool, next time.Time) {
	for _, b := range t.bells {
		next = earlier(next, b.turn)
	}
	if next.IsZero() || now.Before(next) {
		return false, next
	}
	for i := range t.bells {
		t.bells[i].turn = time.Time{}
	}
	return true, time.Time{}
}

// Drained takes the news from a peer that nothing is left, and which
// transactions he has seen. It returns whether that spares a claim here. Of the
// bells that are heard later it says nothing.
func (t *Turns) Drained(now time.Time, peer uint64, sees func(xid uint64) bool) (spared bool) {
	t.meet(peer)
	before, took := t.waiting(), time.Duration(-1)
	t.bells = slices.DeleteFunc(t.bells, func(b rung) bool {
		seen := b.xid != 0 && sees(b.xid)
		if seen {
			took = now.Sub(b.at)
		}
		return seen
	})
	if took >= 0 {
		t.usual += (min(took, lastTurn) - t.usual) / 8
	}
	return before && !t.waiting()
}

// Tell says whether a claim that is sent now is to tell the others if nothing is
// left: somebody may be waiting for it, and bells are few.
func (t *Turns) Tell(now time.Time) bool {
	t.forget(now)
	return len(t.peers) > 0 && len(t.bells) > 0 && t.count <= calm
}

// forget drops bells that nobody waits for any more.
func (t *Turns) forget(now time.Time) {
	old := 0
	for old < len(t.bells) && t.bells[old].turn.IsZero() && now.Sub(t.bells[old].at) > recent {
		old++
	}
	t.bells = slices.Delete(t.bells, 0, old)
}

// pause is the time between two turns: long enough that the next one has most
// often heard by then what the one before has found.
func (t *Turns) pause() time.Duration { return min(max(2*t.usual, firstTurn), longestTurn) }

// rank is how many of the others come before this process.
func (t *Turns) rank(xid uint64) (before int) {
	bell := mix(xid ^ mix(t.queue))
	mine := mix(t.me ^ bell)
	for _, p := range t.peers {
		if theirs := mix(p ^ bell); theirs < mine {
			before++
		}
	}
	return before
}

// mix spreads a number over all numbers, one to one (the last step of
// splitmix64).
func mix(n uint64) uint64 {
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}
