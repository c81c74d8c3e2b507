package rival

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// record is what is known of one trial. All times are those of package history.
type record struct {
	Changes []change
	Runs    []execution
	Faults  []fault
	Acked   []string        // tokens of jobs whose transaction was committed
	Ended   map[string]bool // of the jobs that are there at the end: whether they have ended
	Refused int             // late outcomes that the queue reported to its caller
}

type state int

const (
	waiting state = iota
	running
	ended // or deleted
)

// change is one change of one job, as the database saw it, in order.
type change struct {
	At            int64
	App           string // the process that made it, by its application_name
	Job           int64
	Token         string
	From, To      state
	Before, After int  // attempts
	Rescue        bool // somebody took the job from a process that was thought dead
}

// execution is one run of a handler, as its process saw it.
type execution struct {
	Job        int64
	Attempt    int
	Worker     string
	Start, End int64 // End 0: it did not return
}

// fault is what was done to some processes.
type fault struct {
	Victims []string
	// At is when it began, Until when it was over, or forever.
	At, Until int64
	// Count is when the clock of the recovery starts.
	Count int64
	// Frozen says that no handler of a victim runs during the fault; Dead, that
	// none ever does again.
	Frozen, Dead bool
}

const forever = math.MaxInt64

func killed(victim string, at int64) fault {
	return fault{Victims: []string{victim}, At: at, Until: forever, Count: at, Frozen: true, Dead: true}
}

func frozen(victim string, at int64) fault {
	return fault{Victims: []string{victim}, At: at, Until: forever, Count: at, Frozen: true}
}

func (f fault) hits(worker string) bool { return slices.Contains(f.Victims, worker) }

// runs pairs starts of handlers with their returns.
func runs(events []history.Event) (runs []execution, refused int) {
	type key struct {
		proc string
		n    int64
	}
	open := map[key]int{}
	for _, e := range events {
		k := key{e.Proc, e.N}
		switch e.Op {
		case history.Start:
			open[k] = len(runs)
			runs = append(runs, execution{Job: e.Job, Attempt: e.Attempt, Worker: e.Proc, Start: e.At})
		case history.End:
			if i, ok := open[k]; ok {
				runs[i].End = e.At
			}
		case history.Refused:
			refused++
		}
	}
	return runs, refused
}

// read returns what there is so far, but for what the harness itself knows.
func read(ctx context.Context, q queue, pool *pgxpool.Pool, dir string) (record, error) {
	var r record
	events, err := history.Read(dir)
	if err != nil {
		return r, err
	}
	r.Runs, r.Refused = runs(events)
	if r.Changes, err = q.changes(ctx, pool); err != nil {
		return r, err
	}
	// The servers run on this machine, so one clock can be turned into the other.
	ahead := time.Now().UnixNano() - history.Now()
	for i := range r.Changes {
		r.Changes[i].At -= ahead
	}
	return r, nil
}

// write leaves the record beside the histories, for who wants to see more.
func (r record) write(dir string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "record.json"), text, 0o644)
}

// tokens reads rows of a token and whether its job has ended.
func tokens(ctx context.Context, pool *pgxpool.Pool, sql string) (map[string]bool, error) {
	rows, err := pool.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	var token string
	var done bool
	_, err = pgx.ForEachRow(rows, []any{&token, &done}, func() error {
		found[token] = done
		return nil
	})
	return found, err
}
