package fault

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// claim is one claim of one job.
type claim struct{ job, fence int64 }

// record is what the history of one life of a process says of its handlers and
// promises so far. The process writes each event before it does the next thing, so that of
// one that is frozen nothing is missing.
type record struct {
	name     string // of this life
	path     string
	offset   int64
	started  map[claim]bool
	ended    map[claim]bool
	promised map[string]int64 // queue → when it promised last to look without bells; 0: that is over
}

func recordOf(p *stage.Process) *record {
	return &record{
		name:     p.Name(),
		path:     filepath.Join(p.Assignment().Dir, p.Name()+".jsonl"),
		started:  make(map[claim]bool),
		ended:    make(map[claim]bool),
		promised: make(map[string]int64),
	}
}

// promises says that a promise holds, and will for most of a second.
func (r *record) promises(now int64) bool {
	for _, at := range r.promised {
		if at > 0 && now-at < int64(1200*time.Millisecond) { // of two seconds
			return true
		}
	}
	return false
}

// ops are of the events that count.
var ops = [][]byte{[]byte(`"op":"start"`), []byte(`"op":"end"`), []byte(`"op":"promise"`)}

// read takes in what is new. A history that is not there yet says nothing.
func (r *record) read() {
	f, err := os.Open(r.path)
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := f.Seek(r.offset, io.SeekStart); err != nil {
		return
	}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // half a line is read again
		}
		r.offset += int64(len(line))
		if !slices.ContainsFunc(ops, func(op []byte) bool { return bytes.Contains(line, op) }) {
			continue
		}
		var e history.Event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch c := (claim{e.Job, e.Fence}); e.Op {
		case history.Start:
			r.started[c] = true
		case history.End:
			r.ended[c] = true
		case history.Promise:
			r.promised[e.Queue] = e.At
			if e.DB == 0 {
				r.promised[e.Queue] = 0
			}
		}
	}
}
