// Package history is the record of a run as those who took part saw it: one
// file for each process, one JSON line for each event, written before the
// process does the next thing, so that a kill loses nothing.
package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Op is what an event is about.
type Op string

const (
	// Of every process.
	Hello Op = "hello" // it has begun; Note: what it is
	Bye   Op = "bye"   // it ends by itself; Error: why, if that was not asked for

	// Of producers: one transaction. Refs: its jobs, by token, and, if known, by
	// id. Via: how. Its return is OK (committed), Failed (not committed, also if
	// that was the plan) or Unknown. Delay: how long it is held open, by plan.
	Enqueue Op = "enqueue"

	// Of workers, seen by the tap between dispatcher and database.
	Claim  Op = "claim"  // Call: Queue, Asked; OK: Refs claimed. Worker: the id
	Extend Op = "extend" // Call: Refs; OK: Refs that are lost, Result: why. Unknown otherwise
	Finish Op = "finish" // Call: Refs with Verb and Delay; OK: the same with Result
	// It has promised to look into Queue without bells until DB, by the database's
	// clock; 0: it is about to end that.
	Promise Op = "promise"

	// Of handlers.
	Start    Op = "start"    // Job, Fence, Attempt, Max, Kind, Queue, Token, Payload
	Seen     Op = "seen"     // Job, Fence: Result "row" or "no row" of the business; DB: the database's time
	End      Op = "end"      // Job, Fence: Verb: what it returns; Delay; Error; Note: the cause of its context's end
	Complete Op = "complete" // CompleteTx with its commit: Call, then OK, Refused, Failed (rolled back) or Unknown
	Refused  Op = "refused"  // the observer: an outcome of Job under Fence came too late
	Progress Op = "progress" // SetProgress: Call, OK, Refused, Failed or Unknown; at a handler's start, without a phase: Result is what it found, "" nothing
	Amiss    Op = "amiss"    // a handler saw what must never be, such as another job's progress; Note: what
	Effect   Op = "effect"   // a fenced write to the business: Call, then OK, Refused, Failed or Unknown

	// Of workers and producers, beside what is theirs alone.
	Cancelled Op = "cancelled" // the observer: an operator has cancelled Job under Fence
	Missed    Op = "missed"    // a producer: a transaction of Asked jobs was due, and was not begun; Note: why

	// Of the zombie: Job, Fence (stale before the call), Verb; OK: Result.
	Replay Op = "replay"

	// Of the operator: Verb, Refs; OK: Refs with Result "done", "left" or "busy".
	Operate Op = "operate"

	// Of the harness. Target: the process.
	Fault  Op = "fault"  // Call: it begins, OK: it is over; Verb: its name; N: which
	Ready  Op = "ready"  // a server accepts connections again
	Kill   Op = "kill"   // SIGKILL has been sent
	Pause  Op = "pause"  // SIGSTOP has been sent
	Resume Op = "resume" // SIGCONT has been sent
	Term   Op = "term"   // SIGTERM has been sent
	Exit   Op = "exit"   // the process is gone; Error: how, if not by itself with code 0
	Cut    Op = "cut"    // its network has a fault; Note: Late, Silent or Broken
	Mend   Op = "mend"   // its network works again
	Clean  Op = "clean"  // after a clean stop: Result "" or what was left of Target, see Note
)

// What a fault does to a network.
const (
	Late   = "late"   // everything arrives, and later
	Silent = "silent" // nothing arrives for a while, one way or both
	Broken = "broken" // connections end
)

// Phase tells the beginning of a call from its end. Instant events have none.
type Phase string

const (
	Call    Phase = "call"
	OK      Phase = "ok"
	Refusal Phase = "refused" // answered: the lease is lost
	Failed  Phase = "failed"  // it has changed nothing
	Unknown Phase = "unknown" // nobody can say whether it has changed something
)

// Ref is one job in an event.
type Ref struct {
	Job     int64  `json:"job,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Token   string `json:"token,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Queue   string `json:"queue,omitempty"`
	Verb    string `json:"verb,omitempty"`
	Delay   int64  `json:"delay,omitempty"` // ns
	Result  string `json:"result,omitempty"`
	RunAt   int64  `json:"runat,omitempty"` // µs since 1970

	// Most and Payload are of an enqueue: how many attempts the job may have, and
	// script.Order.Sum. A start has Payload too.
	Most    int    `json:"most,omitempty"`
	Payload uint32 `json:"payload,omitempty"`
}

// Event is one line of a history.
type Event struct {
	At    int64 `json:"at"` // ns of the machine's monotonic clock, the same in all processes
	Op    Op    `json:"op"`
	N     int64 `json:"n,omitempty"` // joins a call with its return, within one process
	Phase Phase `json:"ph,omitempty"`
	Ref         // the job that it is about, if it is one
	Refs  []Ref `json:"refs,omitempty"` // the jobs, if they are several

	Max    int    `json:"max,omitempty"`
	Asked  int    `json:"asked,omitempty"`
	DB     int64  `json:"db,omitempty"` // µs since 1970 by the database's clock
	Worker string `json:"worker,omitempty"`
	Via    string `json:"via,omitempty"`
	Target string `json:"target,omitempty"`
	Note   string `json:"note,omitempty"`
	Error  string `json:"error,omitempty"`

	// Proc is whose event it is. The reader fills it in: it is the name of the
	// file.
	Proc string `json:"-"`
}

// Now is the machine's monotonic clock, which no process can set.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // there is no machine without it
	}
	return t.Nano()
}

// Writer writes the history of one process. It may be used by any number of
// goroutines.
type Writer struct {
	mu   sync.Mutex
	file *os.File
	n    atomic.Int64
}

// Create begins the history of the process with that name, which has none yet.
func Create(dir, proc string) (*Writer, error) {
	f, err := os.OpenFile(filepath.Join(dir, proc+suffix), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &Writer{file: f}, nil
}

const suffix = ".jsonl"

// Witness is the file beside the histories with what the database saw: it is of
// no process, and Read leaves it out.
const Witness = "witness" + suffix

// Next returns a number for a call of this process.
func (w *Writer) Next() int64 { return w.n.Add(1) }

// Write adds an event, and stamps it unless it has a time. An error is a panic:
// a run without its record proves nothing.
func (w *Writer) Write(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.At == 0 {
		e.At = Now() // under the lock: a file is in the order of its times
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = w.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("history: %v", err))
	}
}

// Begin writes a call and returns its number for End.
func (w *Writer) Begin(e Event) int64 {
	e.N, e.Phase = w.Next(), Call
	w.Write(e)
	return e.N
}

// End writes the return of call n.
func (w *Writer) End(n int64, phase Phase, e Event) {
	e.N, e.Phase = n, phase
	w.Write(e)
}

// Close ends the history. The kernel has it all already.
func (w *Writer) Close() error { return w.file.Close() }

// Read returns all events under dir in the order of their times. A process that
// was killed, or still writes, may have left half of a last line; any other that
// cannot be read is an error.
func Read(dir string) ([]Event, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	var events []Event
	for _, name := range names {
		if filepath.Base(name) == Witness {
			continue
		}
		own, err := readFile(name)
		if err != nil {
			return nil, err
		}
		events = append(events, own...)
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return events, nil
}

func readFile(name string) ([]Event, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	proc := strings.TrimSuffix(filepath.Base(name), suffix)
	var events []Event
	lines := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		half := errors.Is(err, io.EOF) // or nothing, after the last whole one
		if err != nil && !half {
			return nil, err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err == nil {
			e.Proc = proc
			events = append(events, e)
		} else if !half {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Base(name), n, err)
		}
		if half {
			return events, nil
		}
	}
}
