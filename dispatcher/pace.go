package dispatcher

import "time"

// pace holds back what has failed, longer after each failure in a row.
type pace struct {
	curve    Curve
	failures int
	until    time.Time // not before
}

// databasePace is for whatever the database has not done for us: soon again at
// first, and never more than a second away from a server that is back.
func databasePace() pace {
	return pace{curve: Curve{Base: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Cap: time.Second}}
}

func (p *pace) failed(now time.Time) {
	p.failures++
	p.until = now.Add(p.curve.Delay(p.failures))
}

func (p *pace) worked() { p.failures, p.until = 0, time.Time{} }

func (p *pace) ready(now time.Time) bool { return !now.Before(p.until) }

// earliest returns the earlier of two times; the zero time means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// latest returns the later of two times; the zero time means at once.
func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
