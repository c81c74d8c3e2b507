package peer

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Pace keeps attempts to connect apart: from 250 ms, doubling to 1 s, spread
// by 20% either way. The time counts from the start of the attempt before, so
// that the loss of a connection that has lived for a while is followed by the
// next attempt at once.
//
// It is for one goroutine at a time.
type Pace struct {
	policy backoff.BackOff
	last   time.Time     // start of the last attempt; zero: none yet
	least  time.Duration // for the next attempt alone
}

// NewPace returns a pace at which the first attempt is made at once.
func NewPace() *Pace {
	return NewPaceOf(250*time.Millisecond, time.Second)
}

// NewPaceOf is NewPace with other limits, for tests.
func NewPaceOf(first, longest time.Duration) *Pace {
	return &Pace{policy: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(first),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(longest),
		backoff.WithRandomizationFactor(0.2),
		backoff.WithMaxElapsedTime(0), // for ever
	)}
}

// Wait returns when the next attempt may start, or with the error of ctx.
func (p *Pace) Wait(ctx context.Context) error {
	if !p.last.IsZero() {
		pause := max(p.policy.NextBackOff(), p.least)
		p.least = 0
		timer := time.NewTimer(time.Until(p.last.Add(pause)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.last = time.Now()
	return ctx.Err()
}

// Lived says that the last attempt led to a connection that works.
func (p *Pace) Lived() {
	p.policy.Reset()
}

// Hold keeps the next attempt at least so far from the last one.
func (p *Pace) Hold(least time.Duration) {
	p.least = least
}
