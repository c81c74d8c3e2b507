package notify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// drained begins a notification that says that nothing is left in a queue. To
// programs that do not know it, it is a bell that is none of theirs.
const drained = "drained:"

// Drained tells that somebody has looked at all jobs of a queue that workers of
// some kinds can run, and that none of them was left that was due. Whoever would
// look because of a transaction that he saw need not.
type Drained struct {
	Queue string
	// Kinds and Worker stand for the kinds that were looked for and for who
	// looked.
	Kinds, Worker uint64
	// Next is when the earliest of the jobs that are left is due, by the
	// database's clock; zero: there is none.
	Next time.Time

	// The snapshot of that look: all transactions before min are over in it, none
	// from max on is, and of those between all but the ones under way.
	min, max uint64
	underWay []uint64
}

// Sees says whether the transaction is over in the snapshot of the look, so that
// what it has inserted was seen. Of a transaction that is not known (0) it
// says no.
func (d Drained) Sees(xid uint64) bool {
	return xid > 0 && (xid < d.min || xid < d.max && !slices.Contains(d.underWay, xid))
}

// parseDrained reads what comes after the word:
// "xmin:xmax:xid,…:kinds:worker:next:queue". The first three are as PostgreSQL
// writes a snapshot, kinds and worker are numbers of 16 hexadecimal digits, and
// next is in microseconds since 1970, 0 for none.
func parseDrained(rest string) (Drained, error) {
	bad := fmt.Errorf("parse %s%.80q: not of the form %sxmin:xmax:xid,…:kinds:worker:next:queue", drained, rest, drained)
	f := strings.SplitN(rest, ":", 7)
	if len(f) < 7 || f[6] == "" {
		return Drained{}, bad
	}
	d := Drained{Queue: f[6]}
	number := func(field string, base int) (n uint64) {
		n, err := strconv.ParseUint(field, base, 64)
		if err != nil {
			d.Queue = ""
		}
		return n
	}
	d.min, d.max = number(f[0], 10), number(f[1], 10)
	if f[2] != "" {
		for xid := range strings.SplitSeq(f[2], ",") {
			d.underWay = append(d.underWay, number(xid, 10))
		}
	}
	d.Kinds, d.Worker = number(f[3], 16), number(f[4], 16)
	if next, err := strconv.ParseInt(f[5], 10, 64); err != nil || next != 0 && next < firstTime {
		return Drained{}, bad
	} else if next != 0 {
		d.Next = time.UnixMicro(next)
	}
	if d.Queue == "" {
		return Drained{}, bad
	}
	return d, nil
}
