package rival

import (
	"cmp"
	"slices"
	"time"
)

// claim is the time that a job spent in the hands of one process.
type claim struct {
	Job     int64
	Attempt int
	Holder  string
	At      int64
	// Left is when the job was no longer held, by whose doing, and how. 0: it is
	// held still.
	Left   int64
	LeftBy string
	Ended  bool
	Rescue bool
}

// claims reads them from the changes of the jobs.
func claims(changes []change) []claim {
	var all []claim
	held := map[int64]int{} // the claim of each job that runs
	for _, c := range changes {
		if c.From == running && c.To == running && c.Before == c.After {
			continue // nothing that matters here, such as an extension
		}
		if i, ok := held[c.Job]; ok && c.From == running {
			all[i].Left, all[i].LeftBy, all[i].Ended, all[i].Rescue = c.At, c.App, c.To == ended, c.Rescue
			delete(held, c.Job)
		}
		if c.To == running {
			held[c.Job] = len(all)
			all = append(all, claim{Job: c.Job, Attempt: c.After, Holder: c.App, At: c.At})
		}
	}
	return all
}

// stale counts outcomes that were stored by another than the holder: from
// another process, or from the same one while the handler that holds the job has
// not returned.
func (r record) stale() int {
	returned := map[attempt]int64{}
	for _, run := range r.Runs {
		if run.End != 0 {
			returned[attempt{run.Job, run.Attempt, run.Worker}] = run.End
		}
	}
	n := 0
	for _, c := range claims(r.Changes) {
		if c.Left == 0 || c.Rescue {
			continue
		}
		end, ok := returned[attempt{c.Job, c.Attempt, c.Holder}]
		if c.LeftBy != c.Holder || c.Ended && (!ok || end > c.Left) {
			n++
		}
	}
	return n
}

type attempt struct {
	job    int64
	number int
	worker string
}

// late counts handlers that returned after another attempt of their job had
// begun: each of them is a chance of a stale outcome.
func (r record) late() int {
	last := map[int64]int64{} // the newest start of each job
	for _, run := range r.Runs {
		last[run.Job] = max(last[run.Job], run.Start)
	}
	n := 0
	for _, run := range r.Runs {
		if last[run.Job] > run.Start && run.End > last[run.Job] {
			n++
		}
	}
	return n
}

// lost counts jobs that were acknowledged and are gone.
func (r record) lost() int {
	n := 0
	for _, token := range r.Acked {
		if _, ok := r.Ended[token]; !ok {
			n++
		}
	}
	return n
}

// unfinished counts jobs that are there and have not ended.
func (r record) unfinished() int {
	n := 0
	for _, done := range r.Ended {
		if !done {
			n++
		}
	}
	return n
}

// doubled counts jobs of which two handlers ran at once. A handler runs until
// it returns or its process dies; one in a frozen process runs.
func (r record) doubled() int {
	byJob := map[int64][]execution{}
	for _, run := range r.Runs {
		if run.End == 0 {
			run.End = r.death(run.Worker)
		}
		byJob[run.Job] = append(byJob[run.Job], run)
	}
	n := 0
	for _, runs := range byJob {
		slices.SortFunc(runs, func(a, b execution) int { return cmp.Compare(a.Start, b.Start) })
		var until int64
		for _, run := range runs {
			if run.Start < until {
				n++
				break
			}
			until = max(until, run.End)
		}
	}
	return n
}

// death is when a worker was killed.
func (r record) death(worker string) int64 {
	for _, f := range r.Faults {
		if f.Dead && f.hits(worker) {
			return f.At
		}
	}
	return forever
}

// recovery is of all faults: how many jobs they caught, and how long each of
// those that went on had waited for somebody who works on it.
func (r record) recovery() (held int, waits []time.Duration) {
	all := claims(r.Changes)
	for _, f := range r.Faults {
		h, w := r.recoveryOf(f, all)
		held, waits = held+h, append(waits, w...)
	}
	return held, waits
}

func (r record) recoveryOf(f fault, all []claim) (held int, waits []time.Duration) {
	for _, c := range all {
		if !f.hits(c.Holder) || c.At > f.Until || c.Left != 0 && c.Left < f.At {
			continue
		}
		held++
		begin, again := max(f.Count, c.At), int64(forever)
		for _, run := range r.Runs {
			switch {
			case run.Job != c.Job:
			case run.Attempt != c.Attempt || run.Worker != c.Holder:
				if run.Start > c.At {
					again = min(again, run.Start)
				}
			case !f.Frozen:
				begin = max(begin, run.End)
			}
		}
		if c.Left != 0 && !c.Rescue {
			again = min(again, c.Left)
		}
		if again != forever {
			waits = append(waits, time.Duration(max(again-begin, 0)))
		}
	}
	return held, waits
}

// elsewhere is how many of the jobs that a fault caught, and that were not
// through, have been started by another process.
func (r record) elsewhere(f fault) (started, held int) {
	for _, c := range claims(r.Changes) {
		if !f.hits(c.Holder) || c.At > f.Until || c.Left != 0 && (c.Left < f.At || !c.Rescue) {
			continue
		}
		held++
		if slices.ContainsFunc(r.Runs, func(run execution) bool {
			return run.Job == c.Job && run.Worker != c.Holder && run.Start > c.At
		}) {
			started++
		}
	}
	return started, held
}

// fill puts the figures into a row.
func (r record) fill(row *Row) {
	held, waits := r.recovery()
	row.Held, row.Recovered = held, len(waits)
	row.MedianSeconds, row.MaxSeconds = median(waits).Seconds(), slices.Max(append(waits, 0)).Seconds()
	row.StaleAccepted, row.Lost, row.Doubled = r.stale(), r.lost(), r.doubled()
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return (d[(len(d)-1)/2] + d[len(d)/2]) / 2
}
