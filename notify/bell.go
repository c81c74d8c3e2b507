package notify

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bell tells that a queue has a new job.
type Bell struct {
	Queue string
	Due   time.Time // by the database's clock; zero: due now
	// Xid is the transaction that rang, whose jobs are due now: whoever looks
	// with a snapshot in which it is over sees them. Zero: the bell does not say.
	Xid uint64
}

// bellVersion is the first field of a payload. A bell of another version may
// mean anything.
const bellVersion = "1"

// Other notifications on the channel of the bells. To programs that do not know
// them they are bells that are none of theirs.
const (
	// recall begins one that is meant for one worker, by its id.
	recall = "recall:"
	// quiet begins one that says until when somebody looks into a queue without
	// being told.
	quiet = "quiet:"
)

// firstTime is the year 2000, in microseconds since 1970. No job that is due
// later than now is due before it, and no transaction has so large a number.
const firstTime = 946_684_800_000_000

// ParseBell reads the payload of a notification: "1:number:queue". The number
// is when the job is due, in microseconds since 1970; or, if it is due now, the
// transaction that rings, a number below that of the year 2000. From schemas
// before version 3 it is 0 then. The queue may contain colons.
func ParseBell(payload string) (Bell, error) {
	version, rest, _ := strings.Cut(payload, ":")
	number, queue, ok := strings.Cut(rest, ":")
	if version != bellVersion || !ok || queue == "" {
		return Bell{}, fmt.Errorf("parse bell %.80q: not of the form %s:number:queue", payload, bellVersion)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return Bell{}, fmt.Errorf("parse bell %.80q: bad number", payload)
	}
	if n < firstTime {
		return Bell{Queue: queue, Xid: uint64(n)}, nil
	}
	return Bell{Queue: queue, Due: time.UnixMicro(n)}, nil
}

// Quiet tells that somebody looks into a queue every few milliseconds, so that
// its bell need not ring.
type Quiet struct {
	Queue string
	Until time.Time // by the database's clock
}

// parseQuiet reads what comes after the word: "until:queue", in microseconds
// since 1970.
func parseQuiet(rest string) (Quiet, error) {
	until, queue, ok := strings.Cut(rest, ":")
	n, err := strconv.ParseInt(until, 10, 64)
	if !ok || queue == "" || err != nil || n < firstTime {
		return Quiet{}, fmt.Errorf("parse %s%.80q: not of the form %suntil:queue", quiet, rest, quiet)
	}
	return Quiet{Queue: queue, Until: time.UnixMicro(n)}, nil
}
