package check

import (
	"math"
	"slices"
	"strings"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

const never = math.MaxInt64

// span is a time, by the histories' clock.
type span struct{ from, to int64 }

func (s span) meets(from, to int64) bool { return s.from <= to && s.to >= from }

func meets(spans []span, from, to int64) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.meets(from, to) })
}

// within is how much of a time lies in the spans.
func within(spans []span, from, to int64) (sum int64) {
	for _, s := range spans {
		sum += max(0, min(s.to, to)-max(s.from, from))
	}
	return sum
}

// process is one that took part, in one of its lives.
type process struct {
	name    string
	role    script.Role
	workers []string // the ids of its clients

	born   int64
	gone   int64 // when it was killed, or had ended; never: it was there at the end
	killed bool
	termed int64 // when it was told to stop; never: not
	bye    *history.Event
	exit   *history.Event
	pauses []span
	cuts   []span  // when its network had a fault; it is that of a former life, too
	apart  []span  // of these times, those in which it could not reach the server
	acts   []int64 // when it wrote something down

	claims []*call
	asks   map[string][]*call // the same, by queue
	busy   map[string]*load   // its handlers, by queue
}

// base is the name of a process without the number of its life.
func base(name string) string {
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		return name[:i]
	}
	return name
}

// processes reads who took part, and what the harness did to them.
func processes(events []history.Event) map[string]*process {
	all := make(map[string]*process)
	lives := make(map[string][]*process)
	networks := make(map[string]*network)
	// life is whom an event of the harness is about: one life by its name, or
	// the newest of several.
	life := func(e *history.Event) *process {
		if p := all[e.Target]; p != nil {
			return p
		}
		if l := lives[base(e.Target)]; len(l) > 0 {
			return l[len(l)-1]
		}
		return nil
	}
	for i := range events {
		e := &events[i]
		p := all[e.Proc]
		if p == nil {
			p = &process{name: e.Proc, born: e.At, gone: never, termed: never}
			all[e.Proc] = p
			lives[base(e.Proc)] = append(lives[base(e.Proc)], p)
		}
		p.acts = append(p.acts, e.At)
		switch e.Op {
		case history.Hello:
			p.role = script.Role(e.Note)
		case history.Bye:
			p.bye, p.gone = e, min(p.gone, e.At)
		case history.Claim:
			p.role = script.Worker
			if e.Worker != "" && !slices.Contains(p.workers, e.Worker) {
				p.workers = append(p.workers, e.Worker)
			}
		case history.Cut, history.Mend:
			n := networks[base(e.Target)]
			if n == nil {
				n = &network{}
				networks[base(e.Target)] = n
			}
			if e.Op == history.Mend {
				n.mend(e.At)
			} else {
				n.cut(e.At, e.Note)
			}
		case history.Kill, history.Exit, history.Pause, history.Resume, history.Term:
			t := life(e)
			if t == nil {
				continue // before it wrote anything
			}
			switch e.Op {
			case history.Kill:
				t.killed, t.gone = true, min(t.gone, e.At)
			case history.Exit:
				t.exit, t.gone = e, min(t.gone, e.At)
			case history.Pause:
				t.pauses = append(t.pauses, span{e.At, never})
			case history.Resume:
				if n := len(t.pauses); n > 0 {
					t.pauses[n-1].to = e.At
				}
			case history.Term:
				t.termed = min(t.termed, e.At)
			}
		}
	}
	for _, n := range networks {
		n.mend(never)
	}
	for _, p := range all {
		if n := networks[base(p.name)]; n != nil {
			p.cuts, p.apart = n.cuts, n.apart
		}
	}
	return all
}
