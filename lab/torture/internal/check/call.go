package check

import (
	"slices"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// call is a call with its return.
type call struct {
	*history.Event
	ret *history.Event // nil: none was written down
}

func (c *call) phase() history.Phase {
	if c.ret == nil {
		return history.Unknown
	}
	return c.ret.Phase
}

// until is when what was called for had happened, if it ever did.
func (c *call) until() int64 {
	if c.phase() == history.Unknown {
		return never
	}
	return c.ret.At
}

// could says that the call may have done what was done at that time.
func (c *call) could(at int64) bool {
	return c.phase() != history.Failed && c.At-clockError <= at && at <= add(c.until(), clockError)
}

func add(t, d int64) int64 {
	if t > never-d {
		return never
	}
	return t + d
}

// calls joins calls with their returns.
func calls(events []history.Event) (all []*call) {
	type name struct {
		proc string
		n    int64
	}
	open := make(map[name]*call)
	for i := range events {
		e := &events[i]
		switch e.Phase {
		case "":
		case history.Call:
			c := &call{Event: e}
			open[name{e.Proc, e.N}] = c
			all = append(all, c)
		default:
			if c := open[name{e.Proc, e.N}]; c != nil && c.Op == e.Op {
				c.ret = e
				delete(open, name{e.Proc, e.N})
			}
		}
	}
	return all
}

// write is one job in a call that is to change it under a fence.
type write struct {
	*call
	ref    history.Ref
	verb   string
	result string // accepted, refused, or a word that is neither; "": no answer
}

// outcome says that the write is to end the claim.
func (w *write) outcome() bool {
	switch w.verb {
	case "extend", "check", "progress", "effect":
		return false
	}
	return true
}

// results that are told apart.
const (
	accepted = "accepted"
	refused  = "refused"
	busy     = "busy"
)

// writes are the jobs of a call, each with its answer.
func (c *call) writes() (all []*write) {
	switch c.Op {
	case history.Finish:
		for i, ref := range c.Refs {
			w := &write{call: c, ref: ref, verb: ref.Verb}
			if c.phase() == history.OK {
				w.result = verdict(answerTo(c.ret.Refs, i, ref))
			}
			all = append(all, w)
		}
	case history.Extend:
		for _, ref := range c.Refs {
			w := &write{call: c, ref: ref, verb: "extend"}
			if c.phase() == history.OK {
				w.result = accepted
				if slices.ContainsFunc(c.ret.Refs, func(r history.Ref) bool { return same(r, ref) }) {
					w.result = refused
				}
			}
			all = append(all, w)
		}
	case history.Complete, history.Effect, history.Progress, history.Replay:
		refs := c.Refs
		if c.Job != 0 {
			refs = []history.Ref{c.Ref}
		}
		for i, ref := range refs {
			w := &write{call: c, ref: ref, verb: c.Verb}
			if w.verb == "" {
				w.verb = string(c.Op)
			}
			switch c.phase() {
			case history.Refusal:
				w.result = refused
			case history.OK:
				w.result = accepted
				if word := c.ret.Result; c.Job != 0 && word != "" {
					w.result = verdict(word)
				} else if c.Job == 0 {
					w.result = verdict(answerTo(c.ret.Refs, i, ref))
				}
			}
			all = append(all, w)
		}
	}
	return all
}

func same(a, b history.Ref) bool { return a.Job == b.Job && a.Fence == b.Fence }

// answerTo finds the answer for one job: most often at its place.
func answerTo(answers []history.Ref, i int, ref history.Ref) string {
	if i < len(answers) && same(answers[i], ref) {
		return answers[i].Result
	}
	for _, a := range answers {
		if same(a, ref) {
			return a.Result
		}
	}
	return ""
}

func verdict(word string) string {
	switch word {
	case "stored", "extended", "completed", "done", "held", accepted:
		return accepted
	case "lost", "gone", "taken", "cancelled", "lease lost", refused:
		return refused
	}
	return word
}
