package report

import "slices"

// span is a time of the history, without its end.
type span struct{ from, to int64 }

func (s span) has(at int64) bool { return s.from <= at && at < s.to }

func (s span) meets(other span) bool { return s.from < other.to && other.from < s.to }

// covers says that the other is wholly within s.
func (s span) covers(other span) bool { return s.from <= other.from && other.to <= s.to }

// spans are in order and do not meet.
type spans []span

func (all spans) has(at int64) bool {
	return slices.ContainsFunc(all, func(s span) bool { return s.has(at) })
}

func (all spans) length() (sum int64) {
	for _, s := range all {
		sum += s.to - s.from
	}
	return sum
}

// within is what of whole is in none of the holes.
func (whole span) without(holes []span) spans {
	holes = slices.Clone(holes)
	slices.SortFunc(holes, func(a, b span) int {
		if a.from < b.from {
			return -1
		}
		return 1
	})
	var rest spans
	at := whole.from
	for _, h := range holes {
		if h.from > at {
			rest = append(rest, span{at, min(h.from, whole.to)})
		}
		at = max(at, h.to)
		if at >= whole.to {
			return rest
		}
	}
	if at < whole.to {
		rest = append(rest, span{at, whole.to})
	}
	return rest
}
