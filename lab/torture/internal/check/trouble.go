package check

import (
	"strings"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// trouble is what a fault can be the reason of, beyond what is written down of
// each process that it kills, freezes or cuts off.
type trouble int

const (
	// calm: nothing. Whatever happens in it, leases hold and bells are heard.
	calm trouble = iota
	// late: things take longer.
	late
	// deaf: bells are not heard, or not in time. Then polling has to do.
	deaf
	// rough: the server, or the way to it, may be gone for everybody.
	rough
)

// troubles are those of the faults, by the beginnings of their names. What is
// not here is rough: a fault that nobody has thought about excuses all that a
// fault can.
var troubles = []struct {
	prefix string
	trouble
}{
	{"none", calm},
	{"kill", calm}, {"sigkill", calm}, {"death", calm}, {"exit", calm},
	{"pause", calm}, {"freeze", calm}, {"sigstop", calm}, {"stop", calm}, {"term", calm}, {"drain", calm}, {"restart-worker", calm},
	{"listener", calm}, {"clock", calm}, {"wrong-clock", calm}, {"zombie", calm}, {"operator", calm},
	{"bells-doubled", calm}, {"bells-forged", calm}, {"bells-malformed", calm},
	{"bells", deaf}, {"bell", deaf}, {"notify", deaf}, {"queue-full", deaf},
	{"snapshot", late},
}

func troubleOf(fault string) trouble {
	for _, t := range troubles {
		if strings.HasPrefix(fault, t.prefix) {
			return t.trouble
		}
	}
	return rough
}

// fault is one, while it lasted.
type fault struct {
	span
	name string
	trouble
}

func faults(calls []*call) (all []fault) {
	for _, c := range calls {
		if c.Op == history.Fault {
			all = append(all, fault{span{c.At, c.until()}, c.Verb, troubleOf(c.Verb)})
		}
	}
	return all
}

// troubled says that there was a fault at that time which was at least that
// bad.
func (ix *index) troubled(least trouble, from, to int64) bool {
	for _, f := range ix.faults {
		if f.trouble >= least && f.meets(from, to) {
			return true
		}
	}
	return false
}
