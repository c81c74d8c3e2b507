package check

import (
	"slices"
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

// troubles are those of the faults, by name. What is done to single processes or
// to their networks is written down of each of these, and is no trouble of the
// others; but what hangs in such a network may hold rows.
var troubles = map[string]trouble{
	"kill": calm, "kill-claimed": calm, "kill-finishing": calm, "freeze": calm, "pause": calm, "stop": calm, "clock": calm,
	"kill-promiser": calm, "freeze-promiser": calm,
	"bells-doubled": calm, "bells-forged": calm, "bells-malformed": calm,
	"bells-lost": deaf, "bells-deaf": deaf, "bells-late": deaf, "notify-full": deaf, "pooler": deaf,
	"terminate-listener": calm, "terminate-exchange": late, "terminate-keeper": late,
	"reset": late, "reset-inside": late, "stall": late, "answer-lost": late, "latency": late, "slow-link": late,
	"snapshot": late, "several": calm, // which have others inside
	"kill-backend": rough, "crash-restart": rough, "fast-restart": rough, "read-only": rough,
	"failover": rough, "role-swap": rough, "pool-exhausted": rough,
	"ddl-lock": rough, "migration": rough, "disk-full-data": rough, "disk-full-wal": rough,
}

// troubleOf takes the name of a fault, or of one inside of another, as in
// several/kill. One that nobody has thought about is rough: it excuses all that
// a fault can.
func troubleOf(fault string) trouble {
	if t, known := troubles[inner(fault)]; known {
		return t
	}
	return rough
}

// inner is the name of a fault without that of the one that it is in.
func inner(fault string) string { return fault[strings.LastIndexByte(fault, '/')+1:] }

// fault is one, while it lasted.
type fault struct {
	span
	name string // without that of the one that it is in
	trouble
}

// sessionsEnd are the faults that take the server, or the sessions of everybody:
// after one of them a worker may be taken for dead that is not.
var sessionsEnd = []string{
	"kill-backend", "crash-restart", "fast-restart", "read-only", "failover", "role-swap", "disk-full-wal",
}

func (f fault) is(names ...string) bool { return slices.Contains(names, f.name) }

// met says that there was a fault at that time of which that is true.
func (ix *index) met(from, to int64, is func(fault) bool) bool {
	return slices.ContainsFunc(ix.faults, func(f fault) bool { return f.meets(from, to) && is(f) })
}

// cutsOff says that the fault can take connections, or the server.
func (f fault) cutsOff() bool {
	return f.trouble == rough || f.ends() || f.is("stall", "answer-lost", "pooler")
}

// ends says that the fault ends connections, which can be made again at once.
func (f fault) ends() bool {
	return strings.HasPrefix(f.name, "reset") || strings.HasPrefix(f.name, "terminate-")
}

// pooled says that the process may have worked behind a pooler, where nobody
// sees its death but by its leases: its life began when the pooler was there.
func (ix *index) pooled(p *process) bool {
	return ix.Limits.Pooled || ix.met(p.born, p.born, func(f fault) bool { return f.is("pooler") })
}

func faults(calls []*call) (all []fault) {
	for _, c := range calls {
		if c.Op == history.Fault {
			all = append(all, fault{span{c.At, c.until()}, inner(c.Verb), troubleOf(c.Verb)})
		}
	}
	return all
}

// troubled says that there was a fault at that time which was at least that
// bad.
func (ix *index) troubled(least trouble, from, to int64) bool {
	return ix.met(from, to, func(f fault) bool { return f.trouble >= least })
}
