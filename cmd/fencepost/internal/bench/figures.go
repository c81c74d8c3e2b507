package bench

import "math"

// Figure is one line of the report.
type Figure struct {
	Name  string // stable: programs read it
	Value string // for people; "-" if it could not be measured
	Plain float64
	Unit  string // of Plain: "ms" or "per_second"
	N     int    // how many were measured; 0: it could not be
	About string
}

// Figures lists what was measured, in the order of the measurements.
func Figures(s Seen) []Figure {
	var list []Figure
	rate := func(name string, r Rate, about string) {
		list = append(list, Figure{name, count(r.PerSecond) + " /s", math.Round(r.PerSecond*10) / 10, "per_second", r.N, about})
	}
	times := func(name string, t Times, about string) {
		list = append(list,
			Figure{name + "_p50", span(t.P50), millis(t.P50), "ms", t.N, about},
			Figure{name + "_p99", span(t.P99), millis(t.P99), "ms", t.N, ""})
	}
	times("round_trip", s.RoundTrip, "an empty statement and its answer")
	rate("commit", s.Commits, "one connection, one row in each commit")
	times("notify", s.Notify, "from sending a NOTIFY alone, which waits for no disk, to hearing it")
	times("floor", s.Floor, "by hand: from a commit to its NOTIFY heard and one row claimed durably")
	times("wake", s.Wake, "from a commit to the start of the handler, jobs at random times")
	rate("enqueue_1", s.One, "Enqueue of one job in each commit, one client")
	rate("enqueue_16", s.Sixteen, "the same from 16 clients")
	rate("bulk", s.Bulk, "EnqueueCopy, 5,000 jobs in each commit")
	rate("drain", s.Drain, "jobs that do nothing, until their outcomes are stored")
	for i := range list {
		if list[i].N == 0 {
			list[i].Value = "-"
		}
	}
	return list
}
