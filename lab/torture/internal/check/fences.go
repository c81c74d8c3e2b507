package check

// fences: each move of a job gives it a larger one, and each is given to one
// worker and one handler, whatever a failover has lost.
func fences(ix *index, f *finding) {
	for _, cl := range ix.claimList {
		if cl.given == nil {
			continue
		}
		f.Checked++
		if cl.again != nil {
			f.violated("a fence was given twice", ix.change(cl.given), ix.change(cl.again))
		}
		if len(cl.more) > 0 {
			f.violated("two calls were given one claim", steps(ix.call(cl.taken, cl.id, cl.fence), ix.call(cl.more[0], cl.id, cl.fence))...)
		}
		if len(cl.starts) > 1 {
			f.violated("two handlers started under one fence", ix.event(cl.starts[0], cl.id, cl.fence), ix.event(cl.starts[1], cl.id, cl.fence))
		}
	}
	for _, j := range ix.jobs {
		moves(ix, f, j.changes)
		moves(ix, f, j.lost)
		for _, old := range j.lost {
			if old.what != claimed {
				continue
			}
			f.Checked++
			f.part("claims that went with a former primary", 1)
			for _, c := range j.changes {
				if c.what == claimed && c.at > old.at && c.after.Fence <= old.after.Fence {
					f.violated("after a failover a fence is not larger than one that was given before", ix.change(old), ix.change(c))
					break
				}
			}
		}
	}
}

func moves(ix *index, f *finding, changes []*change) {
	for i, c := range changes {
		f.Checked++
		if i > 0 && c.before.Status != "" && c.before.Fence != changes[i-1].after.Fence {
			f.violated("a fence moved, and no line says how", ix.change(changes[i-1]), ix.change(c))
		}
		grows := c.after.Fence > c.before.Fence
		switch c.what {
		case claimed, failed, snoozed, returned, released, reaped, retried, cancelled, buried:
			if !grows {
				f.violated("a fence did not grow", ix.change(c))
			}
		case extended, noted:
			if c.after.Fence != c.before.Fence {
				f.violated("a fence moved while the job stayed where it was", ix.change(c))
			}
		case odd:
			if c.after.Status != "" && c.after.Fence < c.before.Fence {
				f.violated("a fence went back", ix.change(c))
			}
		}
	}
}
