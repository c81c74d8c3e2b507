package check

// terminal: what has ended stays so, unless an operator brings it back or
// deletes it; and a job goes only in ways that there are.
func terminal(ix *index, f *finding) {
	for _, j := range ix.jobs {
		for _, changes := range [][]*change{j.changes, j.lost} {
			for _, c := range changes {
				if c.what == odd {
					f.violated("a job changed in a way that there is none for", ix.change(c))
				}
				if c.what == retried && ix.operated(j.id, c, "retry") == nil {
					f.violated("a job that had ended came back, and no operator asked for it", ix.change(c))
				}
				if c.what == cancelled && ix.operated(j.id, c, "cancel") == nil {
					f.violated("a job was cancelled, and no operator asked for it", ix.change(c))
				}
				if !c.terminal() {
					continue
				}
				f.Checked++
				if n := c.next; n != nil && (c.what == removed || n.what != retried && n.what != forgotten) {
					f.violated("something happened to a job that had ended", ix.change(c), ix.change(n))
				}
			}
		}
		if j.final == nil || len(j.changes) == 0 {
			continue
		}
		last := j.changes[len(j.changes)-1]
		if s := last.after.Status; s != "" && s != j.final.Status {
			f.violated("a job is not at the end what it had become", ix.change(last), ix.row("job %d is %s", j.id, j.final.Status))
		}
	}
}

func (c *change) terminal() bool {
	switch c.what {
	case ended, buried, cancelled, removed:
		return true
	}
	return c.what == odd && c.line.Place == "finished"
}
