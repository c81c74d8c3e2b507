package fencepost

import (
	"sync"
	"time"
)

// Health tells how a Client's Run is doing. Its zero value is that of one that
// has not begun.
//
// For a liveness probe, ask whether Tick.Last is recent: a tick comes at least
// once in each PollInterval (1.1 of it), each second while notifications are
// not heard, and after a failure. A process is stuck if there was none for,
// say, 3 PollIntervals and 30 s; with the database out of reach that is true
// too, and a restart does not help, so look at Tick.Err first. Do not make a
// probe of the number of jobs in hand or of how long they take, nor of Listener
// or Locked: without them the queue is slower, not broken. A loop that ends
// needs no probe, since it ends Run with its error.
type Health struct {
	// Running is true from the time that Run has begun its loops until it
	// returns.
	Running bool
	// Tick is the look at the tables that comes by time.
	Tick Loop
	// Exchange stores outcomes and claims jobs. It acts only when there is
	// something to do.
	Exchange Loop
	// Keeper extends leases. It acts only while jobs are in hand.
	Keeper Loop
	// Listener hears notifications. A pass is one of its own that it has heard,
	// about as often as a tick comes.
	Listener Loop
	// Presence looks after the connection that holds this process's lock, while
	// jobs are in hand and the connection is not used otherwise.
	Presence Loop
	// Hearing: notifications are heard. Otherwise the process polls every
	// second.
	Hearing bool
	// Locked: this process holds a lock that ends with it, so its death is
	// noticed in seconds. Otherwise, as behind a pooler, its jobs come back when
	// their lease is over.
	Locked bool
	// InHand is how many jobs are claimed and have no stored outcome yet.
	InHand int
}

// Loop is one of the parts of Run.
type Loop struct {
	// Last is when it last did what it is for, by this process's clock; zero:
	// not yet.
	Last time.Time
	// Err is the error of its last attempt; nil if that worked.
	Err error
}

// Health returns how Run is doing. It never blocks and may be called at any
// time, from any goroutine.
func (c *Client) Health() Health {
	return c.health.now()
}

// healthBook is where the parts of Run note how they are doing.
type healthBook struct {
	mu     sync.Mutex
	health Health
	run    *running // for what is not noted but asked; nil before Run
}

func (b *healthBook) now() Health {
	b.mu.Lock()
	h, run := b.health, b.run
	b.mu.Unlock()
	if run == nil {
		return h
	}
	h.Listener.Last = run.listener.Heard()
	if h.Running {
		h.Locked, h.InHand = run.presence.holds(), run.dispatcher.InHand()
	}
	return h
}

func (b *healthBook) begin(run *running) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.health.Running, b.run = true, run
}

func (b *healthBook) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.health.Running, b.health.Hearing = false, false
}

// note takes the end of one pass of a loop, which which picks.
func (b *healthBook) note(which func(*Health) *Loop, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	loop := which(&b.health)
	loop.Err = err
	if err == nil {
		loop.Last = time.Now()
	}
}

func (b *healthBook) hearing(hearing bool, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.health.Hearing = hearing
	b.health.Listener.Err = cause
}

func tickLoop(h *Health) *Loop     { return &h.Tick }
func exchangeLoop(h *Health) *Loop { return &h.Exchange }
func keeperLoop(h *Health) *Loop   { return &h.Keeper }
func presenceLoop(h *Health) *Loop { return &h.Presence }
