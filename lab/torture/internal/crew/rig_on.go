//go:build torture

package crew

import (
	"errors"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/torture"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// doWithout takes the guard away from all that this process does, if one is
// named: a zombie's calls and an operator's are those of the queue too.
func doWithout(guard torture.Guard) {
	if guard != "" {
		torture.Remove(guard)
	}
}

// watch has the calls between dispatcher and database written down.
func watch(w *history.Writer) {
	torture.Watch(torture.Tap{
		Claim: func(worker, queue string, asked int) func([]torture.Job, error) {
			call := history.Event{Op: history.Claim, Worker: worker, Asked: asked}
			call.Queue = queue
			n := w.Begin(call)
			return func(claimed []torture.Job, err error) {
				call.Refs, call.Error = refs(claimed), text(err)
				w.End(n, answered(err), call)
			}
		},
		Finish: func(outcomes []torture.Job) func([]torture.Job, error) {
			n := w.Begin(history.Event{Op: history.Finish, Refs: refs(outcomes)})
			return func(outcomes []torture.Job, err error) {
				phase := answered(err)
				if errors.Is(err, claim.ErrRejected) {
					phase = history.OK // all others have a result
				}
				w.End(n, phase, history.Event{Op: history.Finish, Refs: refs(outcomes), Error: text(err)})
			}
		},
		Extend: func(leases []torture.Job) func([]torture.Job, error) {
			n := w.Begin(history.Event{Op: history.Extend, Refs: refs(leases)})
			return func(lost []torture.Job, err error) {
				w.End(n, answered(err), history.Event{Op: history.Extend, Refs: refs(lost), Error: text(err)})
			}
		},
		Promise: func(queue string, until int64) {
			w.Write(history.Event{Op: history.Promise, DB: until, Ref: history.Ref{Queue: queue}})
		},
	})
}

func refs(jobs []torture.Job) []history.Ref {
	var refs []history.Ref
	for _, j := range jobs {
		refs = append(refs, history.Ref{
			Job: j.ID, Fence: j.Fence, Attempt: j.Attempt, Queue: j.Queue, Kind: j.Kind,
			Verb: j.Verb, Delay: j.Delay, Result: j.Result,
		})
	}
	return refs
}
