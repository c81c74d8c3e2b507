package check

// attempts: each claim counts one, and only what is documented gives one back.
func attempts(ix *index, f *finding) {
	for _, j := range ix.jobs {
		for _, changes := range [][]*change{j.changes, j.lost} {
			for _, c := range changes {
				counted(ix, f, j, c)
			}
		}
		executions(ix, f, j)
	}
}

func counted(ix *index, f *finding, j *job, c *change) {
	f.Checked++
	by := c.after.Attempts - c.before.Attempts
	want := 0
	switch c.what {
	case claimed:
		want = 1
	case snoozed:
		want = -1
		if c.after.Snoozes != c.before.Snoozes+1 {
			f.violated("a snooze was not counted", ix.change(c))
		}
	case returned:
		want = -1
		if cl := ix.claims[claimName{j.id, c.before.Fence}]; cl != nil && cl.start() != nil {
			f.violated("an attempt was refunded although its handler had started", ix.event(cl.start(), j.id), ix.change(c))
		}
	case inserted:
		if c.after.Attempts != 0 {
			f.violated("a new job has attempts", ix.change(c))
		}
		return
	case removed, forgotten:
		return
	}
	if by != want {
		f.violated("attempts were miscounted", ix.change(c))
	}
	if c.after.Attempts > c.line.Max {
		f.violated("more attempts than allowed", ix.change(c))
	}
}

// executions counts the handlers that started and were not refunded: a snooze
// is not an attempt, a handler that started is.
func executions(ix *index, f *finding, j *job) {
	n := 0
	var all []Step
	for _, cl := range j.claims {
		if cl.start() == nil || cl.given.lost {
			continue // what a former primary has counted, the new one does not know
		}
		for _, s := range cl.starts {
			f.Checked++
			n++
			all = append(all, ix.event(s, j.id))
			if s.Attempt != 0 && s.Attempt != cl.given.after.Attempts {
				f.violated("a handler was told another attempt than was counted", ix.change(cl.given), ix.event(s, j.id))
			}
		}
		if n > cl.given.line.Max {
			f.violated("more handlers started than attempts are allowed", append(all[:len(all):len(all)], ix.change(cl.given))...)
			return
		}
		if cl.out != nil && cl.out.what == snoozed {
			n--
			all = all[:len(all)-1]
		}
	}
}
