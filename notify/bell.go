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
}

// bellVersion is the first field of a payload. A bell of another version may
// mean anything.
const bellVersion = "1"

// recall begins a notification that is meant for one worker, by its id. To
// programs of version 1 it is a bell that is none of theirs.
const recall = "recall:"

// ParseBell reads the payload of a notification: "1:due:queue", where due is
// in microseconds since 1970, 0 if now, and the queue may contain colons.
func ParseBell(payload string) (Bell, error) {
	version, rest, _ := strings.Cut(payload, ":")
	due, queue, ok := strings.Cut(rest, ":")
	if version != bellVersion || !ok || queue == "" {
		return Bell{}, fmt.Errorf("parse bell %.80q: not of the form %s:due:queue", payload, bellVersion)
	}
	micros, err := strconv.ParseInt(due, 10, 64)
	if err != nil || micros < 0 {
		return Bell{}, fmt.Errorf("parse bell %.80q: bad due time", payload)
	}
	bell := Bell{Queue: queue}
	if micros > 0 {
		bell.Due = time.UnixMicro(micros)
	}
	return bell, nil
}
