package dispatcher

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Curve is the delay between a failed attempt and the next one. It is a pure
// function of the number of failures, because attempts are counted in the
// database and move between processes.
//
// DefaultCurve, which is also the zero Curve, gives with a jitter of ± 20 %:
//
//	failure  1    2    3    4    5     6     7       8       9        10       11        12       13 and on
//	delay    1 s  2 s  4 s  8 s  16 s  32 s  1m 4s   2m 8s   4m 16s   8m 32s   17m 4s    34m 8s   1 h
//
// Each delay is Base × Factor^(failure−1), at most Cap, then spread by Jitter,
// and then held between 1 ms and Cap. It is never zero and never negative.
type Curve struct {
	// Base is the delay after the first failure, before jitter. Zero or less
	// means 1 s; anything else counts as at least 1 ms and at most Cap.
	Base time.Duration
	// Factor is what each further failure multiplies the delay by. Zero means
	// 2; anything else below 1 counts as 1, a constant delay.
	Factor float64
	// Jitter spreads a delay d evenly over d ± Jitter·d. Zero means 0.2, more
	// than 1 counts as 1, and less than zero means none.
	Jitter float64
	// Cap is the longest delay. Zero or less means 1 h; anything else counts
	// as at least 1 ms and at most a year of 365 days.
	Cap time.Duration
}

// DefaultCurve is what the zero fields of a Curve stand for.
var DefaultCurve = Curve{Base: time.Second, Factor: 2, Jitter: 0.2, Cap: time.Hour}

const (
	shortestDelay = time.Millisecond
	longestCap    = 365 * 24 * time.Hour
	// mostSteps bounds the work of one Delay. A curve so flat that it has not
	// reached its Cap by then (from 1 s to 1 h: a Factor under 1.009) stays level.
	mostSteps = 1000
)

// Delay returns how long to wait after the given number of failures, counted
// from 1; less than 1 counts as 1.
func (c Curve) Delay(failures int) time.Duration {
	c = c.normal()
	policy := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(c.Base),
		backoff.WithMultiplier(c.Factor),
		backoff.WithMaxInterval(c.Cap),
		backoff.WithMaxElapsedTime(0), // the library's default would end the curve after 15 minutes
		backoff.WithRandomizationFactor(0),
	)
	for range min(max(failures, 1), mostSteps) - 1 {
		if policy.NextBackOff() >= c.Cap || c.Factor == 1 {
			break
		}
	}
	policy.RandomizationFactor = c.Jitter
	// The library caps before it adds the jitter.
	return min(max(policy.NextBackOff(), shortestDelay), c.Cap)
}

// normal puts the defaults and the bounds in place of what is outside them.
func (c Curve) normal() Curve {
	if c.Cap <= 0 {
		c.Cap = DefaultCurve.Cap
	}
	c.Cap = min(max(c.Cap, shortestDelay), longestCap)
	if c.Base <= 0 {
		c.Base = DefaultCurve.Base
	}
	c.Base = min(max(c.Base, shortestDelay), c.Cap) // the library does not cap the first delay
	switch {
	case c.Factor == 0:
		c.Factor = DefaultCurve.Factor
	case !(c.Factor >= 1): // also not a number
		c.Factor = 1
	}
	switch {
	case c.Jitter == 0:
		c.Jitter = DefaultCurve.Jitter
	case !(c.Jitter > 0): // also not a number
		c.Jitter = 0
	}
	c.Jitter = min(c.Jitter, 1)
	return c
}
