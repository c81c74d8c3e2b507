package report

import (
	"slices"
	"sync"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/check"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/rival"
)

// sampleRun is a run with that record, and all else that a report tells.
func sampleRun(p *play) Run {
	run := Run{
		Name: "all", Seed: 7, Command: "cd lab && go run ./torture --seed 7",
		Began: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Seconds: 312.5, Drain: 4.2,
		Versions: Versions{Fencepost: "v0.3.0", PostgreSQL: "18.1", Go: "go1.26.0", River: "v0.51.2"},
		Machine:  Machine{OS: "linux/amd64", CPU: "Some CPU", Cores: 2, Memory: 8 << 30},
		Settings: Settings{
			Workers: 4, Slots: map[string]int{"main": 20, "side": 8, "bin": 6}, Lease: 6, Poll: 5, Rate: 100,
			Fsync: "on", SynchronousCommit: "on", Server: map[string]string{"max_connections": "120", "wal_level": "replica"},
		},
		Figures: Measure(p.record()),
	}
	for i, name := range []string{
		"no acknowledged job is lost", "nothing runs that was not committed", "a job is there if and only if its business row is",
		"fences of a job only grow, and none is given twice", "no write with an old fence is accepted", "what has ended stays as it is",
		"attempts are claims minus refunds, and no more than allowed", "two handlers of a job only if the first was lost",
		"nothing starts before it is due", "a death is noticed in time", "without bells each job starts within a poll interval",
		"no more jobs than asked for, no more handlers than slots", "every job is accounted for", "a clean stop leaves nothing behind",
		"what was acknowledged as done is not done again", "the history of each job is linearizable",
		"a job that runs is named by a claim",
	} {
		run.Findings = append(run.Findings, check.Finding{Invariant: i + 1, Name: name, Checked: 28_412 / (i + 1)})
	}
	run.Findings[0].Parts = []check.Part{{Name: "acknowledged", N: 28_000}, {Name: "unknown", N: 412}}
	run.Controls = []Control{
		{Name: "finish-fence", Guard: "an outcome changes nothing if the fence has moved", Expected: []int{5}, Caught: []int{5, 6, 16}, Seconds: 24.2},
		{Name: "poll", Guard: "an idle process looks at the tables from time to time", Expected: []int{11}, Caught: []int{11}, Seconds: 31},
	}
	run.Rivals = []rival.Row{
		{Queue: "Fencepost", Version: "this tree", Scenario: "SIGKILL", Settings: "Lease 10s", Held: 40, Recovered: 40, MedianSeconds: 2.4, MaxSeconds: 4.1},
		{Queue: "River", Version: "v0.51.2", Scenario: "SIGKILL", Settings: "RescueStuckJobsAfter 10s", Held: 40, Recovered: 40, MedianSeconds: 21, MaxSeconds: 38.5, StaleAccepted: 3, Doubled: 2},
	}
	return run
}

// smallSample is short enough to be read as a whole.
var smallSample = sync.OnceValue(func() Run {
	var p play
	p.fault(begin+10*sec, begin+12*sec, "stall")
	p.run(load{from: begin, to: begin + 30*sec, rate: 20, capacity: 60, down: []span{{begin + 10*sec, begin + 12*sec}}})
	run := sampleRun(&p)
	run.Name = "stall"
	run.Figures.Bins = run.Figures.Bins[18:26]
	return run
})

// longSample has many faults, also at once, and takes five and a half minutes.
var longSample = sync.OnceValue(func() Run {
	var p play
	l := load{from: begin, to: begin + 330*sec, rate: 100, capacity: 260}
	fault := func(from, to float64, name string, down, closed bool) {
		s := span{begin + int64(from*1e9), begin + int64(to*1e9)}
		p.fault(s.from, s.to, name)
		if down {
			l.down = append(l.down, s)
		}
		if closed {
			l.closed = append(l.closed, s)
			p.event(s.to+400*ms, "harness", history.Event{Op: history.Ready})
		}
	}
	fault(5, 5.01, "kill-worker", false, false)
	fault(30, 43, "freeze-long", false, false)
	fault(60, 64, "freeze-short", false, false)
	fault(80, 83, "crash-restart", true, true)
	fault(90, 240, "snapshot-held", false, false)
	fault(104, 108, "connection-reset", true, false)
	fault(130, 136, "bells-lost", false, false)
	fault(155, 160, "latency", false, false)
	fault(180, 186, "failover", true, true)
	fault(206, 210, "notification-queue-full", false, false)
	fault(262, 272, "several: bells-late", false, false)
	fault(264, 270, "several: backend-killed", true, false)
	fault(266, 276, "several: slow-link", false, false)
	fault(296, 300, "disk-full-wal", true, true)
	for i := range int64(2000) {
		ref := history.Ref{Job: 1 + i, Fence: 1, Verb: "done", Result: "lost"}
		p.call(begin+i*100*ms, begin+i*100*ms+ms, "zombie-1.1", history.OK, history.Event{Op: history.Replay, Ref: ref})
	}
	p.run(l)
	return sampleRun(&p)
})

// failingSample is the long one, with all that can go wrong.
func failingSample() Run {
	run := longSample()
	// The lists are shared with it.
	run.Findings, run.Controls = slices.Clone(run.Findings), slices.Clone(run.Controls)
	run.Figures.Stale, run.Figures.Faults = slices.Clone(run.Figures.Stale), slices.Clone(run.Figures.Faults)
	run.Findings[4].Violations = 2
	run.Findings[4].Examples = []check.Counterexample{{
		Says: "an outcome of worker-2.1 under fence 1700000000000001 was stored, though the job had fence 1700000000000009 by then",
		Steps: []check.Step{
			{At: 30100 * time.Millisecond, Who: "worker-2.1", What: "claims job 4711 (short), fence …0001, attempt 1"},
			{At: 30101 * time.Millisecond, Who: "worker-2.1", What: "its handler starts"},
			{At: 30150 * time.Millisecond, Who: "harness", What: "SIGSTOP to worker-2.1"},
			{At: 36300 * time.Millisecond, Who: "witness", What: "job 4711: running → ready, fence …0005: its lease was over"},
			{At: 36410 * time.Millisecond, Who: "worker-3.1", What: "claims job 4711, fence …0009, attempt 2"},
			{At: 43000 * time.Millisecond, Who: "harness", What: "SIGCONT to worker-2.1"},
			{At: 43012 * time.Millisecond, Who: "worker-2.1", What: "reports done, fence …0001 → stored"},
			{At: 43013 * time.Millisecond, Who: "witness", What: "job 4711: running → done <under fence …0009>"},
		},
	}}
	run.Findings[8].Violations = 1
	run.Findings[8].Examples = []check.Counterexample{{
		Says: "job 12 started 0.4 s before it was due",
		Steps: []check.Step{
			{At: 1200 * time.Millisecond, Who: "producer-1.1", What: "enqueues job 12, due at 5.000 s"},
			{At: 4600 * time.Millisecond, Who: "worker-1.1", What: "starts job 12"},
		},
	}}
	run.Figures.Stale[0] = StaleWrites{By: byFrozen, Attempted: 31, Refused: 30, Accepted: 1}
	run.Figures.Faults[3].Missed = []string{"the backlog was not back at 10 jobs within 10 s"}
	run.Figures.Restarts.Unplanned = []string{"worker-3.1: exit status 2"}
	run.Controls[1].Caught = nil
	run.Left = 3
	run.Name = "failed"
	return run
}
