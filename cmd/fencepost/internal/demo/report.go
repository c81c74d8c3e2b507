package demo

import "fmt"

// Report is what came of the story of Run.
type Report struct {
	Enqueued int `json:"enqueued"` // jobs whose commit was acknowledged
	Done     int `json:"done"`
	Dead     int `json:"dead"`
	// Lost jobs neither ended as dead nor as done with an effect under the
	// fence of their completion.
	Lost int `json:"lost"`
	// RepeatedEffects counts runs of a job after its first, by what had become
	// of the worker that held it before.
	RepeatedEffects int `json:"repeated_effects"`
	RepeatedKilled  int `json:"repeated_killed"`
	RepeatedPaused  int `json:"repeated_paused"`
	// LateRefused counts outcomes that were sent after the lease was over and
	// that the fence refused.
	LateRefused int `json:"late_refused"`
	// LiveOverlaps counts pairs of runs of one job at the same time, by the
	// database's clock, though the worker of the first was neither killed nor
	// paused.
	LiveOverlaps int `json:"live_overlaps"`
	// RecoverySeconds is the time from the kill until the last job that the
	// worker had in hand was running again.
	RecoverySeconds float64 `json:"recovery_seconds"`
	// Pickup is the time from the return of a commit to the start of the
	// handler, with an idle queue.
	PickupP50 float64 `json:"pickup_p50_ms"`
	PickupP99 float64 `json:"pickup_p99_ms"`
	// Idle is what one idle worker costs with the plan's poll interval.
	IdleStatements float64 `json:"idle_statements_per_minute"`
	IdleWALBytes   float64 `json:"idle_wal_bytes_per_minute"`
	OK             bool    `json:"ok"` // no promise was broken
}

// Broken returns a line for each promise that was not kept.
func (r Report) Broken() []string {
	var lines []string
	check := func(kept bool, format string, args ...any) {
		if !kept {
			lines = append(lines, fmt.Sprintf(format, args...))
		}
	}
	check(r.Lost == 0, "%d of %d acknowledged jobs are lost", r.Lost, r.Enqueued)
	check(r.Done+r.Dead == r.Enqueued, "%d jobs were enqueued, but %d ended", r.Enqueued, r.Done+r.Dead)
	check(r.RepeatedKilled+r.RepeatedPaused == r.RepeatedEffects,
		"%d effects were repeated though the worker before was neither killed nor paused",
		r.RepeatedEffects-r.RepeatedKilled-r.RepeatedPaused)
	check(r.LiveOverlaps == 0, "%d times a job ran twice at once though its worker was alive", r.LiveOverlaps)
	check(r.LateRefused > 0, "no late outcome was seen to be refused")
	return lines
}

// NaiveReport is what came of the story of RunNaive.
type NaiveReport struct {
	Enqueued int `json:"enqueued"`
	// DoubleClaims counts claims of a job before the lease of the claim before
	// was over.
	DoubleClaims int `json:"double_claims"`
	// LateOverwrites counts completions by a worker whose lease was over and
	// whose job somebody else had taken.
	LateOverwrites int  `json:"late_overwrites"`
	OK             bool `json:"ok"` // both faults were shown
}

// Broken returns a line for each fault that the story failed to show.
func (r NaiveReport) Broken() []string {
	var lines []string
	if r.DoubleClaims == 0 {
		lines = append(lines, "no job was claimed twice")
	}
	if r.LateOverwrites == 0 {
		lines = append(lines, "no late completion was stored")
	}
	return lines
}
