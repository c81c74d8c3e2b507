package notify

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// pace keeps attempts to connect apart: from 250 ms, doubling to 1 s, spread
// by 20% either way. The time counts from the start of the attempt before, so
// that the loss of a connection that has lived for a while is followed by the
// next attempt at once.
type pace struct {
	policy *backoff.ExponentialBackOff
	last   time.Time // start of the last attempt; zero: none yet
}

func newPace() *pace {
	return &pace{policy: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(250*time.Millisecond),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(time.Second),
		backoff.WithRandomizationFactor(0.2),
		backoff.WithMaxElapsedTime(0), // for ever
	)}
}

// wait returns when the next attempt may start, or with the error of ctx.
func (p *pace) wait(ctx context.Context) error {
	if !p.last.IsZero() {
		timer := time.NewTimer(time.Until(p.last.Add(p.policy.NextBackOff())))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	p.last = time.Now()
	return ctx.Err()
}

// lived says that the last attempt led to a connection that works.
func (p *pace) lived() {
	p.policy.Reset()
}
