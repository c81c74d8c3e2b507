package report

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

func TestStaleWrites(t *testing.T) {
	const frozen, other = "worker-1.1", "worker-2.1"
	// reaped is a claim of worker, made at 1 s, that is reaped at 10 s.
	reaped := func(p *play, id int64, worker string) (history.Ref, witness.State) {
		running := p.claim(begin+sec, id, script.Long, worker, p.enqueue(begin, id, script.Long, 0))
		ready := witness.State{Status: "ready", Fence: running.Fence + 1, RunAt: at(begin + 10*sec)}
		p.line(begin+10*sec, "UPDATE", id, script.Long, running, ready)
		p.lines[len(p.lines)-1].Error = "lease of worker " + worker + " ran out in attempt 1 of 9"
		return history.Ref{Job: id, Fence: running.Fence}, ready
	}
	// lost is one whose job somebody else has claimed by then.
	lost := func(p *play, id int64, worker string) history.Ref {
		ref, ready := reaped(p, id, worker)
		p.claim(begin+10*sec+500*ms, id, script.Long, "worker-7.1", ready)
		return ref
	}
	write := func(p *play, ns int64, proc string, op history.Op, phase history.Phase, ref history.Ref, result string) {
		ref.Result = result
		p.call(ns, ns+ms, proc, phase, history.Event{Op: op, Refs: []history.Ref{ref}})
	}
	late := begin + 12*sec

	for name, c := range map[string]struct {
		play func(*play)
		want StaleWrites
	}{
		"a frozen worker's outcome is refused": {func(p *play) {
			write(p, late, frozen, history.Finish, history.OK, lost(p, 1, frozen), "lost")
		}, StaleWrites{By: byFrozen, Attempted: 1, Refused: 1}},
		"or accepted": {func(p *play) {
			write(p, late, frozen, history.Finish, history.OK, lost(p, 1, frozen), "stored")
		}, StaleWrites{By: byFrozen, Attempted: 1, Accepted: 1}},
		"its completion is refused": {func(p *play) {
			write(p, late, frozen, history.Complete, history.Refusal, lost(p, 1, frozen), "")
		}, StaleWrites{By: byFrozen, Attempted: 1, Refused: 1}},
		"its extension is refused": {func(p *play) {
			write(p, late, frozen, history.Extend, history.OK, lost(p, 1, frozen), "taken")
		}, StaleWrites{By: byFrozen, Attempted: 1, Refused: 1}},
		"or accepted: it is not among those that are lost": {func(p *play) {
			ref := lost(p, 1, frozen)
			p.call(late, late+ms, frozen, history.OK, history.Event{Op: history.Extend, Refs: []history.Ref{ref}})
			p.events[len(p.events)-1].Refs = nil
		}, StaleWrites{By: byFrozen, Attempted: 1, Accepted: 1}},
		"its progress is refused": {func(p *play) {
			write(p, late, frozen, history.Progress, history.Refusal, lost(p, 1, frozen), "")
		}, StaleWrites{By: byFrozen, Attempted: 1, Refused: 1}},
		"or accepted, too": {func(p *play) {
			write(p, late, frozen, history.Progress, history.OK, lost(p, 1, frozen), "")
		}, StaleWrites{By: byFrozen, Attempted: 1, Accepted: 1}},
		"what a handler finds is no write": {func(p *play) {
			p.event(late, frozen, history.Event{Op: history.Progress, Ref: lost(p, 1, frozen)})
		}, StaleWrites{By: byFrozen}},
		"no answer": {func(p *play) {
			write(p, late, frozen, history.Finish, history.Unknown, lost(p, 1, frozen), "")
		}, StaleWrites{By: byFrozen, Attempted: 1, Unknown: 1}},
		"one that never got there": {func(p *play) {
			write(p, late, frozen, history.Finish, history.Failed, lost(p, 1, frozen), "")
		}, StaleWrites{By: byFrozen}},
		"somebody else's": {func(p *play) {
			write(p, late, other, history.Finish, history.OK, lost(p, 1, other), "lost")
		}, StaleWrites{By: byOthers, Attempted: 1, Refused: 1}},
		"one about a claim that ended before its process was frozen": {func(p *play) {
			ref := lost(p, 1, other)
			p.event(begin+11*sec, "harness", history.Event{Op: history.Pause, Target: other})
			p.event(begin+11*sec+ms, "harness", history.Event{Op: history.Resume, Target: other})
			write(p, late, other, history.Finish, history.OK, ref, "lost")
		}, StaleWrites{By: byOthers, Attempted: 1, Refused: 1}},
		"one about a claim that ended long after its process woke up": {func(p *play) {
			ref := lost(p, 1, other)
			p.event(begin+3*sec, "harness", history.Event{Op: history.Pause, Target: other})
			p.event(begin+4*sec, "harness", history.Event{Op: history.Resume, Target: other})
			write(p, late, other, history.Finish, history.OK, ref, "lost")
		}, StaleWrites{By: byOthers, Attempted: 1, Refused: 1}},
		"one about a claim that an operator has released while its process was frozen": {func(p *play) {
			ref := lost(p, 1, frozen)
			p.lines[len(p.lines)-2].Error = "" // no reaper has left its word
			write(p, late, frozen, history.Finish, history.OK, ref, "lost")
		}, StaleWrites{By: byOthers, Attempted: 1, Refused: 1}},
		"one that was sent in time": {func(p *play) {
			ref := lost(p, 1, frozen)
			ref.Result = "lost"
			p.call(begin+9*sec, late, frozen, history.OK, history.Event{Op: history.Finish, Refs: []history.Ref{ref}})
		}, StaleWrites{By: byFrozen}},
		"one that may have come before the commit that ended the claim": {func(p *play) {
			ref, _ := reaped(p, 1, other)
			p.call(late, late+ms, other, history.OK, history.Event{Op: history.Extend, Refs: []history.Ref{ref}})
			p.events[len(p.events)-1].Refs = nil
		}, StaleWrites{By: byOthers}},
		"and one that cannot have": {func(p *play) {
			ref, _ := reaped(p, 1, other)
			p.call(late+5*sec, late+6*sec, other, history.OK, history.Event{Op: history.Extend, Refs: []history.Ref{ref}})
			p.events[len(p.events)-1].Refs = nil
		}, StaleWrites{By: byOthers, Attempted: 1, Accepted: 1}},
		"one that repeats what may have ended the claim": {func(p *play) {
			ref := lost(p, 1, frozen)
			write(p, begin+9*sec, frozen, history.Finish, history.Unknown, ref, "")
			write(p, late, frozen, history.Finish, history.OK, ref, "lost")
		}, StaleWrites{By: byFrozen}},
		"its replay is refused": {func(p *play) {
			p.call(late, late+ms, "zombie-1.1", history.Refusal, history.Event{Op: history.Replay, Ref: lost(p, 1, other)})
		}, StaleWrites{By: byZombie, Attempted: 1, Refused: 1}},
		"its replay is accepted": {func(p *play) {
			p.call(late, late+ms, "zombie-1.1", history.OK, history.Event{Op: history.Replay, Ref: lost(p, 1, other)})
		}, StaleWrites{By: byZombie, Attempted: 1, Accepted: 1}},
		"a question is no write": {func(p *play) {
			ref := lost(p, 1, other)
			ref.Verb = "check"
			p.call(late, late+ms, "zombie-1.1", history.OK, history.Event{Op: history.Replay, Ref: ref})
		}, StaleWrites{By: byZombie}},
		"or told that the job ended so long ago": {func(p *play) {
			running := p.claim(begin+sec, 1, script.Short, other, p.enqueue(begin, 1, script.Short, 0))
			p.finish(begin+2*sec, 1, script.Short, other, running)
			ref := history.Ref{Job: 1, Fence: running.Fence, Result: "stored"}
			p.call(late, late+ms, "zombie-1.1", history.OK, history.Event{Op: history.Replay, Ref: ref})
		}, StaleWrites{By: byZombie, Attempted: 1, Repeated: 1}},
	} {
		t.Run(name+" "+c.want.By, func(t *testing.T) {
			var p play
			p.event(begin+2*sec, "harness", history.Event{Op: history.Pause, Target: frozen})
			p.event(begin+11*sec, "harness", history.Event{Op: history.Resume, Target: frozen})
			c.play(&p)
			want := []StaleWrites{{By: byFrozen}, {By: byZombie}, {By: byOthers}}
			i := slices.IndexFunc(want, func(s StaleWrites) bool { return s.By == c.want.By })
			want[i] = c.want
			if diff := cmp.Diff(want, Measure(p.record()).Stale); diff != "" {
				t.Error(diff)
			}
		})
	}
}
