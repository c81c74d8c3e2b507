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
	if t, known := troubles[fault[strings.LastIndexByte(fault, '/')+1:]]; known {
		return t
	}
	return rough
}

// fault is one, while it lasted.
type fault struct {
	span
	name string
	trouble
}

// pooled says that the process may have worked behind a pooler, where nobody
// sees its death but by its leases.
func (ix *index) pooled(p *process) bool {
	return ix.Limits.Pooled || slices.ContainsFunc(ix.faults, func(f fault) bool {
		return strings.HasSuffix(f.name, "pooler") && f.meets(p.born, p.gone)
	})
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
