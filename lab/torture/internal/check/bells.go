package check

import "time"

// bells: a due job starts within moments while bells are heard, and within one
// poll interval when they are not, if a slot is free all the while. Somebody who
// gets as many jobs as he asks for, again and again, has none for this one: it
// waits behind others.
func bells(ix *index, f *finding) {
	for _, j := range ix.jobs {
		if len(j.lost) > 0 {
			continue
		}
		for _, c := range j.changes {
			if c.after.Status == "ready" && c.what != odd && c.what != noted {
				waited(ix, f, j, c)
			}
		}
	}
	idlers(ix, f)
}

// waited looks at how long a job that had become ready was.
func waited(ix *index, f *finding, j *job, c *change) {
	if c.by == never {
		return // nobody knows when
	}
	due := max(c.by, c.after.RunAt.UnixNano()-ix.Offset)
	name, bound := "while bells were heard", ix.Limits.Wake
	if ix.troubled(deaf, due-ix.settle(), due+bound.Nanoseconds()) {
		name, bound = "without bells", ix.Limits.Poll*11/10+ix.Limits.Slack
	}
	deadline := due + bound.Nanoseconds()
	for _, bad := range ix.faults {
		if bad.trouble != calm && bad.trouble != deaf && bad.meets(due-ix.settle(), deadline) {
			return
		}
	}
	if c.next == nil && deadline >= ix.last || c.next != nil && c.next.what != claimed {
		return // the run was over, or somebody did something else with it
	}
	if c.next != nil && c.next.at <= deadline {
		f.Checked++
		f.part(name, 1)
		return
	}
	until := ix.last
	if c.next != nil {
		until = c.next.at
	}
	// While bells are heard the bound is that of bells.
	excused := func(f fault) bool { return f.trouble != calm && (f.trouble != deaf || bound == ix.Limits.Wake) }
	idle, newest, deadline := ix.free(j.queue, span{due, until}, bound, excused)
	if idle == nil {
		return
	}
	f.Checked++
	f.part(name, 1)
	s := []Step{
		ix.change(c),
		{ix.at(due), "documented", "the job is due and committed"},
		{ix.at(deadline), "documented", "by now it should have started, " + name + ": " + idle.name + " had a free slot for " + bound.Round(time.Millisecond).String()},
	}
	if newest != nil {
		s = append(s, ix.call(newest)...)
	}
	if c.next != nil {
		s = append(s, ix.change(c.next))
	}
	f.violated("a due job waited though a slot was free, "+name, s...)
}
