package fault

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// claim is one claim of one job.
type claim struct{ job, fence int64 }

// record is what the history of one life of a process says of its handlers so
// far. The process writes each event before it does the next thing, so that of
// one that is frozen nothing is missing.
type record struct {
	path    string
	offset  int64
	started map[claim]bool
	ended   map[claim]bool
}

func recordOf(p *stage.Process) *record {
	return &record{
		path:    filepath.Join(p.Assignment().Dir, p.Name()+".jsonl"),
		started: make(map[claim]bool),
		ended:   make(map[claim]bool),
	}
}

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
		if !bytes.Contains(line, []byte(`"op":"start"`)) && !bytes.Contains(line, []byte(`"op":"end"`)) {
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
		}
	}
}
