package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// assignment is the first line that a worker reads: all it has to know. It
// goes through a pipe, so that no password shows in the list of processes.
type assignment struct {
	DatabaseURL string
	Schema      string
	Name        string
	Naive       bool
	Lease, Poll time.Duration
	Effort      time.Duration
}

// report is one line of what a worker says.
type report struct {
	Event event
	Value int64 `json:",omitempty"`
}

type event string

const (
	eventWorking    event = "working"    // jobs are taken from now on
	eventRefused    event = "refused"    // an outcome came too late
	eventStarted    event = "started"    // the handler of a probe, at Value ns since 1970
	eventStatements event = "statements" // Value statements were sent so far
)

// voice says reports, from any goroutine.
type voice struct {
	mu  sync.Mutex
	out io.Writer
}

func (v *voice) say(e event, value int64) {
	line, err := json.Marshal(report{Event: e, Value: value})
	if err != nil {
		panic(fmt.Sprintf("report %s: %v", e, err)) // two plain fields
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = v.out.Write(append(line, '\n')) // nobody listens any more: our input ends too
}
