package poller

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Look is what one tick saw. All times are relative to the database's clock
// at the moment it answered.
type Look struct {
	// Next holds, per queue, the time until its earliest ready job is due;
	// zero or less: due now. A queue without a ready job is absent.
	Next map[string]time.Duration
	// Lease is the time until the earliest lease of a running job of any
	// process ends, if HasLease.
	Lease    time.Duration
	HasLease bool
	// Others says that other processes have jobs in hand whose death is to be
	// noticed: the next tick comes after Guard, not after an interval.
	Others bool
	// Guard is the time between two ticks while others work, and the most
	// between Poller.Guard and the next tick. 0: Config.Guard. It is at most
	// Config.Interval.
	Guard time.Duration
	// LeaseGuard is the least time until a tick that comes because a lease ends.
	// 0: Config.Guard.
	LeaseGuard time.Duration
	// Recheck, if not 0, is when this very look is to be repeated: neither
	// later nor, if nothing else asks for a tick, earlier.
	Recheck time.Duration
	// Again says that a batch of the tick was full: there is more to do.
	Again bool
}

// Config holds what a Poller needs. Tick and Wake are required.
type Config struct {
	// Interval is the time between two ticks while notifications are heard,
	// spread by 10% either way. Default 30 s.
	Interval time.Duration
	// Deaf is the time between two ticks while they are not heard, and after
	// a tick that failed. Default 1 s.
	Deaf time.Duration
	// Guard is the least time between the end of a tick and one that comes
	// because a lease ends, and the time after which others are looked at while
	// they work, unless a Look says otherwise. Default 2 s.
	Guard time.Duration

	// Tick looks at the database. One call at a time, in a goroutine of its
	// own, so that a slow tick holds up no alarm. It must bound itself; its
	// context ends with that of Run.
	Tick func(ctx context.Context) (Look, error)
	// Wake says that the queue may have a due job. It is called from the
	// goroutine of Run and must not block.
	Wake func(queue string)

	// Logger gets one line when ticks begin to fail and one when they work
	// again. nil: no output.
	Logger *slog.Logger
}

// Poller ticks and rings alarms. All methods but Run may be called from any
// goroutine, before, during and after Run, and never block.
type Poller struct {
	config  Config
	changed chan struct{} // one slot: the agenda has changed since the loop last asked

	mu     sync.Mutex
	agenda *agenda
}

// New returns a Poller that is deaf until SetHearing says otherwise.
func New(config Config) *Poller {
	if config.Interval == 0 {
		config.Interval = 30 * time.Second
	}
	if config.Deaf == 0 {
		config.Deaf = time.Second
	}
	if config.Guard == 0 {
		config.Guard = 2 * time.Second
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Poller{
		config:  config,
		changed: make(chan struct{}, 1),
		agenda:  newAgenda(config.Interval, config.Deaf, config.Guard, rand.Float64),
	}
}

// Run ticks at once and then as the agenda says, until ctx is done; then it
// waits for a tick in flight and returns nil. It must be called once.
func (p *Poller) Run(ctx context.Context) error {
	type result struct {
		look Look
		err  error
	}
	ended := make(chan result, 1)
	ticking := false
	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		s := p.step()
		for _, queue := range s.wake {
			p.config.Wake(queue)
		}
		if s.tick {
			ticking = true
			go func() {
				look, err := p.config.Tick(ctx)
				ended <- result{look, err}
			}()
		}
		var alarm <-chan time.Time
		if !s.next.IsZero() {
			timer.Reset(time.Until(s.next))
			alarm = timer.C
		}

		select {
		case <-alarm:
		case <-p.changed:
		case r := <-ended:
			ticking = false
			if ctx.Err() == nil {
				p.ticked(r.look, r.err)
			}
		case <-ctx.Done():
			if ticking {
				<-ended
			}
			return nil
		}
	}
}

// Arm sets the alarm of a queue: Wake is called when the time has passed. An
// earlier alarm of the queue stays.
//
// A time of zero or less says that the queue has a due job that somebody
// else holds: it is looked at again after 1 s, and then after twice the time
// as long as Arm keeps saying so, up to Interval. A job that is simply due
// now needs no alarm; wake its queue instead.
//
// Alarms take memory until they ring: arm only queues that somebody works on.
func (p *Poller) Arm(queue string, in time.Duration) {
	p.change(func(a *agenda) { a.arm(time.Now(), queue, in) })
}

// SetHearing says whether notifications arrive: it chooses between the ticks
// of Interval and those of Deaf. When they cease to, a tick comes at once.
func (p *Poller) SetHearing(hearing bool) {
	p.change(func(a *agenda) { a.hear(hearing) })
}

// TickNow asks for a tick that starts after this call. Calls made before it
// starts are one.
func (p *Poller) TickNow() {
	p.change((*agenda).ask)
}

// Guard says that somebody, here or elsewhere, may begin to work about now:
// whether that process lives is to be seen. A tick comes at most one guard
// interval later, and not before the claim can be seen; calls in between do
// not put it off, nor do they make it more ticks.
func (p *Poller) Guard() {
	p.change(func(a *agenda) { a.somebody(time.Now()) })
}

func (p *Poller) change(f func(*agenda)) {
	p.mu.Lock()
	f(p.agenda)
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default: // the loop has not yet seen the change before
	}
}

func (p *Poller) step() step {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.agenda.step(time.Now())
}

func (p *Poller) ticked(look Look, err error) {
	p.mu.Lock()
	failedBefore := p.agenda.failed
	if err != nil {
		p.agenda.fail(time.Now())
	} else {
		p.agenda.looked(time.Now(), look)
	}
	p.mu.Unlock()

	switch {
	case err != nil && !failedBefore:
		p.config.Logger.Warn("tick failed; trying again", "every", p.config.Deaf, "error", err)
	case err == nil && failedBefore:
		p.config.Logger.Info("tick works again")
	}
}
