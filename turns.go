package fencepost

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/notify"
	"github.com/fencepost-go/fencepost/poller"
)

// turns has the processes of a queue claim one after the other when a bell has
// rung, and not all at once. Who claims when is decided by a poller.Turns for
// each queue.
//
// Nothing depends on what others do or say: without it each claims 30 ms after
// the bell at the latest.
type turns struct {
	run     *running
	me      claim.Teller
	changed chan struct{} // one slot: a queue may have something new to say

	mu     sync.Mutex
	queues map[string]*poller.Turns
}

func newTurns(run *running) *turns {
	t := &turns{
		run:     run,
		me:      claim.Teller{Kinds: kindsDigest(run.store.kinds), Worker: digest(run.client.workerID)},
		changed: make(chan struct{}, 1),
		queues:  make(map[string]*poller.Turns),
	}
	for _, name := range run.queues {
		t.queues[name] = poller.NewTurns(t.me.Worker, digest(name))
	}
	return t
}

// kindsDigest stands for a set of kinds. Only who looks for the very same may
// spare others a look.
func kindsDigest(kinds []string) uint64 {
	if kinds == nil {
		return digest("every kind")
	}
	return digest("these kinds\x00" + strings.Join(slices.Sorted(slices.Values(kinds)), "\x00"))
}

// digest is a number for a text, the same in all processes and versions.
func digest(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:])
}

// heard is called for each bell of a job that is due.
func (t *turns) heard(b notify.Bell) {
	t.mu.Lock()
	claim := t.queues[b.Queue].Heard(time.Now(), b.Xid)
	t.mu.Unlock()
	if claim {
		t.run.dispatcher.Wake(b.Queue)
		return
	}
	t.change()
}

// drained is called when somebody has told that nothing is left in a queue.
func (t *turns) drained(d notify.Drained) {
	if d.Kinds != t.me.Kinds {
		return // what we can run may be left
	}
	t.mu.Lock()
	q, ours := t.queues[d.Queue]
	spared := ours && q.Drained(time.Now(), d.Worker, d.Sees)
	t.mu.Unlock()
	if !spared || d.Next.IsZero() {
		return
	}
	// A claim would have told as well.
	if in := t.run.clock.Until(d.Next); in > 0 {
		t.run.poller.Arm(d.Queue, in)
	} else {
		t.run.due(d.Queue)
	}
}

// hearing is called when notifications begin or cease to be heard.
func (t *turns) hearing(hearing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, q := range t.queues {
		if q.Hearing(hearing) {
			t.run.dispatcher.Wake(name)
		}
	}
}

// met is called when a tick has seen who else works our queues.
func (t *turns) met(peers map[string][]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	most := 0
	for name, q := range t.queues {
		var others []uint64
		for _, worker := range peers[name] {
			others = append(others, digest(worker))
		}
		q.Peers(others)
		most = max(most, len(others))
	}
	t.run.dispatcher.Beside(most)
}

// teller is who tells the others if a claim of the queue leaves nothing; zero:
// nobody does.
func (t *turns) teller(queue string) claim.Teller {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queues[queue].Tell(time.Now()) {
		return t.me
	}
	return claim.Teller{}
}

func (t *turns) change() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Run claims when it is this process's turn.
func (t *turns) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.changed:
		case <-timer.C:
		}
		if next := t.step(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// step does what is due, and returns when to come again.
func (t *turns) step() (next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for name, q := range t.queues {
		claim, at := q.Step(now)
		if claim {
			t.run.dispatcher.Wake(name)
		}
		if next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next
}
