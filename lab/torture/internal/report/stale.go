package report

import (
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// StaleWrites are the writes of one sort of process about claims that were over
// before they were sent.
type StaleWrites struct {
	By string `json:"by"` // zombie, frozen, others
	// Attempted are those that the database answered, or may have got.
	Attempted int `json:"attempted"`
	Refused   int `json:"refused"`
	// Repeated: the claim had ended with this outcome or another, as its last
	// word, and was said to be stored. Nothing changed.
	Repeated int `json:"repeated"`
	// Accepted must be 0.
	Accepted int `json:"accepted"`
	// Unknown: no answer came.
	Unknown int `json:"unknown"`
}

// Who makes stale writes.
const (
	byZombie = "zombie"
	byFrozen = "frozen"
	byOthers = "others"
)

const (
	// apart is how far two events must lie apart so that their order is certain,
	// though one has the database's time and the other the machine's.
	apart = int64(5 * time.Millisecond)
	// commit is how long a commit may take.
	commit = int64(5 * time.Second)
)

// stale counts the stale writes: what the zombie replays, which it knows to be
// stale; what workers write about claims that somebody else has ended, after they
// were frozen or cut off. Writes to tables of the business are left out: such a
// row refuses a fence only once it has a newer one.
func (m *measure) stale() []StaleWrites {
	rows := map[string]*StaleWrites{byFrozen: {By: byFrozen}, byZombie: {By: byZombie}, byOthers: {By: byOthers}}
	over := m.over()
	pauses := m.pauses()
	calls := make(map[callKey]history.Event)
	wrote := make(map[writeKey]int64) // the first outcome that a process sent about a claim
	for _, e := range m.Events {
		switch e.Op {
		case history.Replay, history.Finish, history.Extend, history.Complete, history.Progress:
		default:
			continue
		}
		key := callKey{e.Proc, e.N}
		if e.Phase == history.Call {
			if e.Verb == "check" {
				continue // it asks, and writes nothing
			}
			calls[key] = e
			for _, ref := range refs(e) {
				write := writeKey{e.Proc, claimKey{ref.Job, ref.Fence}}
				if _, sent := wrote[write]; !sent && (e.Op == history.Finish || e.Op == history.Complete) {
					wrote[write] = e.At
				}
			}
			continue
		}
		call, ok := calls[key]
		if !ok {
			continue
		}
		delete(calls, key)
		for _, ref := range refs(call) {
			claim := claimKey{ref.Job, ref.Fence}
			if e.Op == history.Replay {
				rows[byZombie].add(answer(e, ref), m.ended[claim])
				continue
			}
			end, ended := over[claim]
			if !ended || end.by+apart >= call.At {
				continue
			}
			if first, sent := wrote[writeKey{e.Proc, claim}]; sent && first <= end.by {
				continue // the process itself may have ended it
			}
			by := byOthers
			if slices.ContainsFunc(pauses[e.Proc], func(p span) bool { return end.byFreeze(p) && p.to <= call.At+apart }) {
				by = byFrozen
			}
			rows[by].add(answer(e, ref), m.ended[claim])
		}
	}
	return []StaleWrites{*rows[byFrozen], *rows[byZombie], *rows[byOthers]}
}

// callKey names a call, writeKey what a process says about a claim.
type (
	callKey struct {
		proc string
		n    int64
	}
	writeKey struct {
		proc  string
		claim claimKey
	}
)

// end is when a claim ended. The witness has the time of the statement, and what
// came before its commit was in time: that was over when the job changed again, or
// a good while later.
type end struct {
	since  int64 // when the claim was made
	at, by int64
	taken  bool // from its worker: by the reaper, if need be for good, or by another claim
}

// byFreeze says that the claim is over because its worker was frozen then: it
// was taken from it during the pause, or soon after. An operator's release or
// cancel is no doing of the freeze.
func (e end) byFreeze(pause span) bool {
	return e.taken && e.since <= pause.to && pause.from <= e.at && e.at-settle <= pause.to
}

// over is when each claim ended, by whomever.
func (m *measure) over() map[claimKey]end {
	over := make(map[claimKey]end)
	for _, j := range m.jobs {
		for i, s := range j.states {
			if s.status != "running" || i+1 == len(j.states) || j.states[i+1].fence == s.fence {
				continue
			}
			next := j.states[i+1]
			e := end{since: s.at, at: next.at, taken: next.reaped || next.status == "running" || next.end == "dead"}
			if e.by = e.at + commit; i+2 < len(j.states) {
				e.by = min(e.by, j.states[i+2].at)
			}
			over[claimKey{j.id, s.fence}] = e
		}
	}
	return over
}

// pauses are the times in which a process was stopped.
func (m *measure) pauses() map[string][]span {
	pauses := make(map[string][]span)
	for _, e := range m.Events {
		switch e.Op {
		case history.Pause:
			pauses[e.Target] = append(pauses[e.Target], span{e.At, never})
		case history.Resume:
			if all := pauses[e.Target]; len(all) > 0 && all[len(all)-1].to == never {
				all[len(all)-1].to = e.At
			}
		}
	}
	return pauses
}

// answer is what the database said about one job of a call.
func answer(e history.Event, ref history.Ref) string {
	switch e.Phase {
	case history.Refusal:
		return "refused"
	case history.Unknown:
		return "unknown"
	case history.Failed:
		return "" // it did not get there
	}
	result := e.Result
	i := slices.IndexFunc(e.Refs, func(r history.Ref) bool { return r.Job == ref.Job && r.Fence == ref.Fence })
	if i >= 0 {
		result = e.Refs[i].Result
	}
	if e.Op == history.Extend {
		if i < 0 {
			return "accepted" // only those that are lost are named
		}
		return "refused"
	}
	switch result {
	case "lost", "gone", "taken", "cancelled", "refused":
		return "refused"
	case "busy":
		return "" // it is asked again
	}
	return "accepted"
}

// add counts an answer. What ended says is that the job was stored as ended
// under that very fence.
func (s *StaleWrites) add(answer string, ended bool) {
	switch {
	case answer == "":
		return
	case answer == "refused":
		s.Refused++
	case answer == "unknown":
		s.Unknown++
	case ended:
		s.Repeated++
	default:
		s.Accepted++
	}
	s.Attempted++
}
